"""Nodes as arrays, and their network domains.

Arrays have a capacity beyond the rows in use; the row of a deleted node has ``alive`` False until
it is reused.  Amounts are stored resource-major, so that a column over all nodes is contiguous, and
shown row first.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from koordinator.api.cluster_network_topology import DEFAULT_NAME, ClusterNetworkTopology
from koordinator.api.core import Taint
from koordinator.api.device import DeviceType
from koordinator.api.node import Node
from koordinator.domain.devices.allocation import MEMORY, RATIO
from koordinator.domain.network import DomainLayer, NetworkTree, layers_of
from koordinator.foundation.arrays import BoolArray, IntArray, extended
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.rules.node_facts import NEEDED_BY_PODS
from koordinator.scheduler.snapshot.axis import ResourceAxis
from koordinator.scheduler.snapshot.devices import DeviceColumns, DeviceTable
from koordinator.scheduler.snapshot.numa import NumaTable
from koordinator.scheduler.snapshot.objects import ChangeLog, ObjectTable

LARGE = 2000  # nodes
SPARE = 16  # values of a label, or sets of taints, before it is worth looking for idle ones
MEMORY_OF_GPU, RATIO_OF_GPU = MEMORY, RATIO  # bytes, percent: places in the amounts of a GPU

LabelIds = npt.NDArray[np.int32]


@dataclass(slots=True, eq=False)
class LabelColumn:
    """Values of one label or annotation key.  ``ids`` is -1 where a node lacks it."""

    ids: LabelIds  # (capacity,)
    values: list[str]
    index: dict[str, int]
    was_read: bool = True  # since the last sweep
    most: int = SPARE  # values before those are looked for that no node has any more

    def set(self, row: int, value: str | None) -> None:
        if value is None:
            self.ids[row] = -1
            return
        known = self.index.get(value)
        if known is None:
            if len(self.values) >= self.most:
                self._forget_idle()
            known = self.index[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = known

    def _forget_idle(self) -> None:
        """Give new numbers to the values that nodes have, and none to the others."""
        used = np.unique(self.ids[self.ids >= 0])
        self.most = 2 * len(used) + SPARE
        numbers = np.full(len(self.values), -1, np.int32)
        numbers[used] = np.arange(len(used))
        self.ids = np.where(self.ids < 0, -1, numbers[self.ids]).astype(np.int32)
        self.values = [self.values[at] for at in used.tolist()]
        self.index = {value: at for at, value in enumerate(self.values)}


@dataclass(slots=True, eq=False)
class Image:
    """A container image and the nodes that have it.  The size is the first one reported."""

    size: int  # bytes
    present: BoolArray  # (capacity,)


class NodeTable:
    """All nodes.  Written by ``ClusterState`` only."""

    def __init__(self, axis: ResourceAxis) -> None:
        self.axis = axis
        self.names: list[str] = []  # by row; of a row not alive: the last node that had it
        self.objects: list[Node | None] = []
        self.rows: dict[str, int] = {}
        self.count = 0  # nodes alive
        self.had_many_pods = False  # enough in one batch or sequence to load compiled kernels
        self.capacity = 0
        self._free: list[int] = []
        self._allocatable = np.zeros((len(axis), 0), np.int64)
        self._requested = np.zeros((len(axis), 0), np.int64)
        self.nonzero = np.zeros((2, 0), np.int64)  # cpu, memory with the defaults of the scorers
        self.alive = np.zeros(0, bool)
        self.rank = np.zeros(0, np.int64)  # among equal scores the lowest rank wins
        self.unschedulable = np.zeros(0, bool)
        self.taint_set = np.zeros(0, np.int64)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self._taint_index: dict[tuple[Taint, ...], int] = {(): 0}
        self._most_taints = SPARE  # before those are looked for that no node has any more
        self.labels: dict[str, LabelColumn] = {}
        self.annotations: dict[str, LabelColumn] = {}
        self._label_keys: Counter[str] = Counter()  # how many nodes have it
        self._on_no_node = LabelColumn(np.full(0, -1, np.int32), [], {})
        self.images: dict[str, Image] = {}
        self.declared = {name: np.zeros(0, bool) for name in NEEDED_BY_PODS}
        self.ports: dict[tuple[str, str, int], IntArray] = {}
        self.devices = DeviceTable()
        self.numa = NumaTable()

    @property
    def gpus(self) -> DeviceColumns:
        """The GPUs: core percent, memory bytes, memory percent, and what single vendors have."""
        return self.devices.columns[DeviceType.GPU]

    # -- arrays ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.names)

    @property
    def uses_kernels(self) -> bool:
        """Whether compiled kernels pay: there are many nodes, or were many pods at once."""
        return self.had_many_pods or len(self.names) >= LARGE

    @property
    def allocatable(self) -> IntArray:
        """``(n_resources, capacity)``, as wide as the axis is now."""
        if len(self._allocatable) < len(self.axis.names):
            self._widen()
        return self._allocatable

    @property
    def requested(self) -> IntArray:
        """``(n_resources, capacity)``: the sum over the pods on each row."""
        if len(self._requested) < len(self.axis.names):
            self._widen()
        return self._requested

    def _widen(self) -> None:
        wide = (max(len(self.axis), 2 * len(self._allocatable)), self.capacity)
        for name in ("_allocatable", "_requested"):
            old: IntArray = getattr(self, name)
            new = np.zeros(wide, np.int64)
            new[: len(old)] = old
            setattr(self, name, new)

    @property
    def label_keys(self) -> Collection[str]:
        """The labels that some node has."""
        return self._label_keys.keys()

    def label(self, key: str) -> LabelColumn:
        """Return the column of a label key, made on first use, which is to be read at once.

        All keys that no node has share one: pods may make up as many as they like.
        """
        column = self.labels.get(key)
        if column is None and key not in self._label_keys:
            return self._on_no_node
        if column is None:
            column = LabelColumn(np.full(self.capacity, -1, np.int32), [], {})
            for row, node in enumerate(self.objects):
                if node is not None:
                    column.set(row, node.metadata.labels.get(key))
            self.labels[key] = column
        column.was_read = True
        return column

    def annotation(self, key: str) -> LabelColumn:
        """Return the column of an annotation key, made on first use."""
        column = self.annotations.get(key)
        if column is None:
            column = LabelColumn(np.full(self.capacity, -1, np.int32), [], {})
            for row, node in enumerate(self.objects):
                if node is not None:
                    column.set(row, node.metadata.annotations.get(key))
            self.annotations[key] = column
        column.was_read = True
        return column

    def port(self, port: tuple[str, str, int]) -> IntArray:
        """Return how many pods of each row hold a host port (ip, protocol, number)."""
        counts = self.ports.get(port)
        if counts is None:
            counts = self.ports[port] = np.zeros(self.capacity, np.int64)
        return counts

    def sweep(self) -> None:
        """Drop columns of node facts that were not read lately, and ports that no pod holds."""
        self.labels = _read_since_sweep(self.labels)
        self.annotations = _read_since_sweep(self.annotations)
        self.ports = {port: counts for port, counts in self.ports.items() if counts.any()}

    @property
    def columns_in_use(self) -> Iterable[int]:
        """The columns with an amount on some node."""
        used = self.allocatable.any(axis=1) | self.requested.any(axis=1)
        return np.flatnonzero(used).tolist()

    # -- rows --------------------------------------------------------------------------------

    def put(self, node: Node) -> int:
        """Add a node or replace its facts; return its row."""
        name = node.metadata.name
        row = self.rows.get(name)
        if row is None:
            row = self._new_row(name)
        else:
            self._forget_images(row)
        known = self.objects[row]
        self._count_labels(known.metadata.labels if known else {}, node.metadata.labels)
        self.objects[row] = node
        amounts = self.axis.amounts(node.status.allocatable)
        column = self.allocatable[:, row]  # after amounts(): the axis may have grown
        column[:] = 0
        for index, amount in amounts.items():
            column[index] = amount
        self.unschedulable[row] = node.spec.unschedulable
        self.taint_set[row] = self._intern_taints(node.spec.taints)
        for feature, declares in self.declared.items():
            declares[row] = feature in node.status.declared_features
        for key, labels in self.labels.items():
            labels.set(row, node.metadata.labels.get(key))
        for key, annotations in self.annotations.items():
            annotations.set(row, node.metadata.annotations.get(key))
        for image in node.status.images:
            for text in image.names:
                self._image(text, image.size_bytes).present[row] = True
        return row

    def drop(self, name: str) -> int:
        """Take a node out; its row will be used again."""
        row = self.rows.pop(name)
        self._forget_images(row)
        known = self.objects[row]
        self._count_labels(known.metadata.labels if known else {}, {})
        self.objects[row] = None
        self.alive[row] = False
        self.taint_set[row] = 0
        self.allocatable[:, row] = 0
        self.devices.report(row, None, {})
        self.numa.report(row, None, None)
        for column in (*self.labels.values(), *self.annotations.values()):
            column.set(row, None)
        self.count -= 1
        self._free.append(row)
        return row

    def _new_row(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            self.objects.append(None)
            if row >= self.capacity:
                self._grow(max(64, 2 * self.capacity))
            self.rank[row] = row
        self.rows[name] = row
        self.alive[row] = True
        self.numa.arrive(row)
        self.count += 1
        return row

    def _grow(self, capacity: int) -> None:
        more = capacity - self.capacity
        self._allocatable = extended(self._allocatable, more, axis=1)
        self._requested = extended(self._requested, more, axis=1)
        self.nonzero = extended(self.nonzero, more, axis=1)
        self.alive = extended(self.alive, more)
        self.rank = extended(self.rank, more)
        self.unschedulable = extended(self.unschedulable, more)
        self.taint_set = extended(self.taint_set, more)
        for column in (self._on_no_node, *self.labels.values(), *self.annotations.values()):
            column.ids = extended(column.ids, more, fill=-1)
        for image in self.images.values():
            image.present = extended(image.present, more)
        for port, counts in self.ports.items():
            self.ports[port] = extended(counts, more)
        for feature, declares in self.declared.items():
            self.declared[feature] = extended(declares, more)
        self.devices.grow(more)
        self.numa.grow(more)
        self.capacity = capacity

    def _count_labels(self, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        if old and old.keys() == new.keys():
            return
        counts = self._label_keys
        for key in new:
            if key not in old:
                counts[key] += 1
        for key in old:
            if key not in new:
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]

    def _intern_taints(self, taints: tuple[Taint, ...]) -> int:
        known = self._taint_index.get(taints)
        if known is None:
            if len(self.taint_sets) >= self._most_taints:
                self._forget_idle_taints()
            known = self._taint_index[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return known

    def _forget_idle_taints(self) -> None:
        """Give new numbers to the sets of taints that nodes have, and none to the others."""
        used, self.taint_set = np.unique(np.append(self.taint_set, 0), return_inverse=True)
        self.taint_set = self.taint_set[:-1]
        self._most_taints = 2 * len(used) + SPARE
        self.taint_sets = [self.taint_sets[at] for at in used.tolist()]
        self._taint_index = {taints: at for at, taints in enumerate(self.taint_sets)}

    def _image(self, name: str, size: int) -> Image:
        image = self.images.get(name)
        if image is None:
            image = self.images[name] = Image(size, np.zeros(self.capacity, bool))
        return image

    def _forget_images(self, row: int) -> None:
        node = self.objects[row]
        for image in node.status.images if node else ():
            for name in image.names:
                self.images[name].present[row] = False
                if not self.images[name].present.any():
                    del self.images[name]


def _read_since_sweep(columns: Mapping[str, LabelColumn]) -> dict[str, LabelColumn]:
    """Return the columns read since the last call."""
    kept = {key: column for key, column in columns.items() if column.was_read}
    for column in kept.values():
        column.was_read = False
    return kept


class Network:
    """Tree of the network, built on first use and updated by later changes."""

    def __init__(self) -> None:
        self.topology: ClusterNetworkTopology | None = None  # the object as it is now
        self.warning = ""  # why the object is of no use
        self.generation = 0  # grows whenever there are other layers
        self._tree: NetworkTree | None = None
        self._position = 0  # in the node log
        self._objects_version = -1

    @property
    def tree(self) -> NetworkTree | None:
        """The domains; None without a valid ClusterNetworkTopology."""
        return self._tree

    def refresh(self, nodes: NodeTable, log: ChangeLog, objects: ObjectTable) -> "Network":
        """Apply the changes since the last call."""
        version = objects.version(ClusterNetworkTopology)
        if version != self._objects_version:
            self._objects_version = version
            self._read(objects.get(ClusterNetworkTopology, DEFAULT_NAME), nodes, log)
        if self._tree is None or self._position == log.position:
            return self
        rows = log.since(self._position)
        changed = range(len(nodes)) if rows is None else np.unique(rows).tolist()
        self._put(self._tree, changed, nodes)
        self._position = log.position
        return self

    def _read(
        self, topology: ClusterNetworkTopology | None, nodes: NodeTable, log: ChangeLog
    ) -> None:
        self.topology, self.warning = topology, ""
        layers: tuple[DomainLayer, ...] | None = None
        if topology is not None:
            try:
                layers = layers_of(topology)
            except InputError as error:
                self.warning = str(error)
        if layers == (None if self._tree is None else self._tree.layers):
            return
        self.generation += 1
        self._tree = None if layers is None else NetworkTree(layers)
        if self._tree is not None:
            self._put(self._tree, range(len(nodes)), nodes)
            self._position = log.position

    @staticmethod
    def _put(tree: NetworkTree, rows: "range | list[int]", nodes: NodeTable) -> None:
        for row in rows:
            node = nodes.objects[row]
            if node is None:
                tree.drop(row)
            else:
                tree.put(row, node.metadata.name, node.metadata.labels)
