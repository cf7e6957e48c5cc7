"""The state of the cluster as the scheduler knows it, and the one door through which it changes.

Every change is logged by row.  ``usage_log`` has rows on which pods came or went, ``node_log`` rows
whose node changed; a cached result is brought up to date from these.  ``layout`` counts changes of
the set of nodes, ``cluster`` changes that may concern every row (namespaces, the extra objects that
plugins read).
"""

from typing import Any

import numpy as np

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.errors import BugError
from koordinator.scheduler.snapshot.axis import CPU, BoolArray, IntArray, ResourceAxis
from koordinator.scheduler.snapshot.classes import PodClass, PodClasses
from koordinator.scheduler.snapshot.log import ChangeLog
from koordinator.scheduler.snapshot.network import Network
from koordinator.scheduler.snapshot.nodes import NodeTable
from koordinator.scheduler.snapshot.objects import ObjectTable
from koordinator.scheduler.snapshot.pods import PlacedPod, PodTable

__all__ = ["BoolArray", "ClusterState", "Devices", "IntArray"]

Devices = tuple[tuple[int, IntArray], ...]  # (minor, amounts) of the GPUs that a pod holds


class ClusterState:
    """Nodes, placed pods and the other objects that plugins read."""

    def __init__(self, axis: ResourceAxis | None = None) -> None:
        self.axis = axis or ResourceAxis()
        self.nodes = NodeTable(self.axis)
        self.pods = PodTable()
        self.classes = PodClasses(self.axis, self.pods.intern_labels)
        self.objects = ObjectTable()
        self.usage_log = ChangeLog()
        self.node_log = ChangeLog()
        self.ranked = False  # ranks differ from row order
        self.layout = 0
        self.cluster = 0
        self.devices = 0  # reports of devices taken in
        self.memo: dict[Any, Any] = {}  # see ``Snapshot.memo``
        self._network = Network()
        self._orphans: dict[str, dict[str, tuple[Pod, PodClass, Devices]]] = {}

    @property
    def network(self) -> Network:
        """The network between the nodes, as it is now."""
        return self._network.refresh(self.nodes, self.node_log, self.objects)

    # -- nodes -------------------------------------------------------------------------------

    def put_node(self, node: Node) -> int:
        """Add a node or take over its new facts; return its row."""
        new = node.metadata.name not in self.nodes.rows
        capacity = self.nodes.capacity
        row = self.nodes.put(node)
        if self.nodes.capacity != capacity:
            self.pods.grow(self.nodes.capacity)
        self.node_log.append(row)
        if new:
            self.layout += 1
            for key, (pod, pod_class, devices) in self._orphans.pop(node.metadata.name, {}).items():
                self.place(key, pod, pod_class, row, devices)
        return row

    def drop_node(self, name: str) -> None:
        """Remove a node.  Its pods are kept aside: they count again should the node come back."""
        row = self.nodes.rows[name]
        for placed in list(self.pods.on_row[row].values()):
            self.displace(placed.key)
            self._orphans.setdefault(name, {})[placed.key] = (
                placed.pod,
                placed.pod_class,
                placed.devices,
            )
        self.nodes.drop(name)
        self.node_log.append(row)
        self.layout += 1

    def set_gpus(self, name: str, devices: dict[int, tuple[int, int, int]] | None) -> None:
        """Report the healthy GPUs of a node that is known: ``{minor: (core, memory, ratio)}``."""
        row = self.nodes.rows[name]
        self.nodes.set_gpus(row, devices)
        self.devices += 1
        self.usage_log.append(row)

    def set_ranks(self, ranks: dict[str, int]) -> None:
        """Say which of equally scored nodes comes first: the one with the lowest rank."""
        for name, rank in ranks.items():
            self.nodes.rank[self.nodes.rows[name]] = rank
        self.ranked = True
        self.layout += 1

    # -- pods --------------------------------------------------------------------------------

    def place(
        self, key: str, pod: Pod, pod_class: PodClass, row: int, devices: Devices = ()
    ) -> PlacedPod:
        """Put a pod on a row and charge what it takes."""
        placed = self.pods.add(key, pod, pod_class, row)
        placed.devices = devices
        self._charge(placed, 1)
        self.usage_log.append(row)
        return placed

    def place_on(
        self, key: str, pod: Pod, pod_class: PodClass, node: str, devices: Devices
    ) -> None:
        """Put a bound pod on the node it names, known or not."""
        row = self.nodes.rows.get(node)
        if row is None:
            self._orphans.setdefault(node, {})[key] = (pod, pod_class, devices)
        else:
            self.place(key, pod, pod_class, row, devices)

    def place_run(self, items: list[tuple[str, Pod, PodClass, int]]) -> list[PlacedPod]:
        """Place many pods of equal requests, none of them with ports or devices, at once."""
        if not items:
            return []
        first = items[0][2]
        rows = np.fromiter((item[3] for item in items), np.int64, len(items))
        add = self.pods.add
        placed = [add(key, pod, pod_class, row) for key, pod, pod_class, row in items]
        times = np.bincount(rows, minlength=self.nodes.capacity)
        touched = np.flatnonzero(times)
        times = times[touched]
        requested = self.nodes.requested
        for column, amount in zip(first.columns.tolist(), first.amounts.tolist(), strict=True):
            requested[column, touched] += times * amount
        self.nodes.nonzero[0, touched] += times * first.nonzero_cpu
        self.nodes.nonzero[1, touched] += times * first.nonzero_memory
        self.usage_log.extend(touched)
        return placed

    def give_back(self, placed: PlacedPod) -> None:
        """Take a pod off its row, unless it has been displaced or placed anew since."""
        if self.pods.by_key.get(placed.key) is placed:
            self.displace(placed.key)

    def displace(self, key: str) -> PlacedPod | None:
        """Take a pod off its row and release what it took; None if it is nowhere."""
        placed = self.pods.by_key.get(key)
        if placed is None:
            for waiting in self._orphans.values():
                waiting.pop(key, None)
            return None
        self.pods.remove(placed)
        self._charge(placed, -1)
        self.usage_log.append(placed.row)
        return placed

    def update_placed(self, placed: PlacedPod, pod: Pod, pod_class: PodClass) -> bool:
        """Take over a pod's new version where it is; False if it takes other amounts or ports.

        Then nothing was done.
        """
        old = placed.pod_class
        if (old.demand, old.nonzero_cpu, old.nonzero_memory, old.host_ports) != (
            pod_class.demand,
            pod_class.nonzero_cpu,
            pod_class.nonzero_memory,
            pod_class.host_ports,
        ) or placed.priority != (pod.spec.priority or 0):
            return False
        self.pods.reclassify(placed, pod_class)
        placed.pod = pod
        self.touch_cluster()
        return True

    def _charge(self, placed: PlacedPod, sign: int) -> None:
        pod_class, row, nodes = placed.pod_class, placed.row, self.nodes
        requested = nodes.requested
        for column, amount in pod_class.demand:
            requested[column, row] += sign * amount
        nodes.nonzero[0, row] += sign * pod_class.nonzero_cpu
        nodes.nonzero[1, row] += sign * pod_class.nonzero_memory
        for port in pod_class.host_ports:
            nodes.port(port)[row] += sign
        if placed.devices:
            nodes.use_gpus(row, placed.devices, sign)

    # -- everything else ---------------------------------------------------------------------

    def touch_cluster(self) -> None:
        """Note that something changed which any row's result may depend on."""
        self.cluster += 1

    def validate(self) -> None:
        """Derive every sum again from the pods and compare.  Raises BugError."""
        self.pods.validate()
        nodes = self.nodes
        requested = np.zeros_like(nodes.requested)
        nonzero = np.zeros_like(nodes.nonzero)
        gpus = np.zeros_like(nodes.gpus.used)
        for placed in self.pods.by_key.values():
            pod_class = placed.pod_class
            requested[pod_class.columns, placed.row] += pod_class.amounts
            nonzero[CPU, placed.row] += pod_class.nonzero_cpu
            nonzero[1, placed.row] += pod_class.nonzero_memory
            for minor, amounts in placed.devices:
                gpus[placed.row, minor] += amounts
        for name, kept, derived in (
            ("requested", nodes.requested, requested),
            ("non-zero requested", nodes.nonzero, nonzero),
            ("GPU use", nodes.gpus.used, gpus),
        ):
            if not np.array_equal(kept, derived):
                raise BugError(f"{name} amounts differ from the sum over the pods")
