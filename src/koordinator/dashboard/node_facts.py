"""Attributes of nodes besides amounts: names, pools, zones, GPU models, health.

Derived once per version of the scheduler's state.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from koordinator.api.conditions import find_condition
from koordinator.api.device import DeviceType
from koordinator.api.node_metric import NodeMetric
from koordinator.domain.devices.partitions import PartitionTable
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.snapshot.axis import CPU

ZONE = "topology.kubernetes.io/zone"
#: Labels that name a pool of equal nodes, in order of precedence.
POOLS = (
    "koordinator.sh/node-pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "node.koordinator.sh/gpu-model",
    "node.kubernetes.io/instance-type",
)
_UNKNOWN = -1
_WHOLE = 1000


class NodeHealth(IntEnum):
    """Health of a node; the highest applicable value wins."""

    READY = 0
    CORDONED = 1
    UNHEALTHY_DEVICE = 2
    NOT_READY = 3


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Attributes of a node that rarely change."""

    name: str
    pool: str
    zone: str
    block: str  # lowest network domain above the node; empty if unknown
    gpus: int
    gpu_model: str


class NodeRoster:
    """All nodes ordered by name, with their cached attributes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._version = (-1, -1, -1)  # of nodes, network and devices
        self._states: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._rows: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._facts: tuple[NodeFacts, ...] = ()
        self._metrics_version = -1
        self._loads: dict[str, tuple[NodeMetric, int]] = {}  # milli-CPU in use
        #: By row: partition table, mask of untouched GPUs, size of the largest free partition.
        self._links: dict[int, tuple[PartitionTable, int, int]] = {}

    def refresh(self) -> tuple[npt.NDArray[np.int64], tuple[NodeFacts, ...]]:
        """Return rows and facts of all nodes; the same tuple while the facts are unchanged."""
        state, nodes = self._state, self._state.nodes
        version = (state.node_log.position, state.network.generation, state.devices)
        if version != self._version:
            self._version = version
            rows = [nodes.rows[name] for name in sorted(nodes.rows)]
            self._states = np.array([self._state_of(row) for row in rows], np.int64)
            facts = tuple(self._of(row) for row in rows)
            self._rows = np.array(rows, np.int64)
            if facts != self._facts:
                self._facts = facts
        return self._rows, self._facts

    def states(self) -> npt.NDArray[np.int64]:
        """Return the NodeHealth of each node at the last ``refresh``."""
        return self._states

    def load_shares(self) -> npt.NDArray[np.int64]:
        """Return the measured CPU usage of each node in thousandths of its CPU, or -1."""
        state = self._state
        shares = np.full(len(self._rows), _UNKNOWN, np.int64)
        if not state.objects.version(NodeMetric):
            return shares
        for place, row in enumerate(self._rows.tolist()):
            name = state.nodes.names[row]
            metric = state.objects.get(NodeMetric, name)
            whole = int(state.nodes.allocatable[CPU, row])
            if metric is None or metric.status.node_metric is None or not whole:
                continue
            known = self._loads.get(name)
            if known is None or known[0] is not metric:
                amounts = metric.status.node_metric.node_usage.resources
                usage = amounts.get("cpu", Quantity.from_int(0))
                known = self._loads[name] = (metric, usage.milli())
            shares[place] = _WHOLE * known[1] // whole
        if len(self._loads) > 2 * len(self._rows):
            self._loads = {n: v for n, v in self._loads.items() if n in state.nodes.rows}
        return shares

    def linked_gpus(self, untouched: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return the size of each node's largest untouched partition of linked GPUs; -1 if unknown.

        ``untouched`` is ``(n_nodes, n_gpus)`` in the order of the last ``refresh``.
        """
        linked = np.full(len(self._rows), _UNKNOWN, np.int64)
        reports = self._state.nodes.devices.reports
        links: dict[int, tuple[PartitionTable, int, int]] = {}
        for place, row in enumerate(self._rows.tolist()) if reports else ():
            report = reports.get(row)
            table = report.model.partitions if report is not None else None
            if table is None:
                continue
            free = sum(1 << minor for minor in np.flatnonzero(untouched[place]).tolist())
            known = self._links.get(row)
            if known is None or known[0] is not table or known[1] != free:
                known = (table, free, _largest(table, free))
            links[row] = known
            linked[place] = known[2]
        self._links = links
        return linked

    def _state_of(self, row: int) -> NodeHealth:
        node = self._state.nodes.objects[row]
        if node is None:
            return NodeHealth.NOT_READY
        ready = find_condition(node.status.conditions, "Ready")
        if ready is not None and ready.status != "True":
            return NodeHealth.NOT_READY
        report = self._state.nodes.devices.reports.get(row)
        if report is not None and any(
            group.mask & ~report.healthy.get(group.kind, 0) for group in report.model.groups
        ):
            return NodeHealth.UNHEALTHY_DEVICE
        return NodeHealth.CORDONED if node.spec.unschedulable else NodeHealth.READY

    def _of(self, row: int) -> NodeFacts:
        nodes = self._state.nodes
        node = nodes.objects[row]
        labels = node.metadata.labels if node is not None else {}
        report = nodes.devices.reports.get(row)
        group = report.model.group(DeviceType.GPU) if report is not None else None
        return NodeFacts(
            nodes.names[row],
            next((labels[key] for key in POOLS if key in labels), ""),
            labels.get(ZONE, ""),
            self._block(row),
            len(group.devices) if group is not None else 0,
            report.model.gpu_model if report is not None else "",
        )

    def _block(self, row: int) -> str:
        tree = self._state.network.tree
        if tree is None:
            return ""
        path = tree.domains(len(self._state.nodes))[:, row].tolist()
        named = [tree.name(level, d) for level, d in enumerate(path) if level and d >= 0]
        own = self._state.nodes.names[row]  # the tree names a block of one node after the node
        return next((name for name in reversed(named) if name != own), "")


def _largest(table: PartitionTable, free: int) -> int:
    """Return the size of the largest partition whose GPUs are all in a mask."""
    sizes = (
        size
        for size, groups in table.sizes
        if any(p.mask & ~free == 0 for partitions in groups for p in partitions)
    )
    return max(sizes, default=0)
