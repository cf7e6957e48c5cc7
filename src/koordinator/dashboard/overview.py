"""State of a cluster at one moment: nodes as columns, pending pods by cause.

Reads the arrays of a scheduler's state.  An overview is built after every change, so each must take
only a few milliseconds with thousands of nodes.

The health of Koordinator's components is derived from their Leases and webhook configurations.  A
separate thread checks it at intervals, as each check sends several requests.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from koordinator.api.control_plane import Lease
from koordinator.api.meta import KubeObject
from koordinator.api.resource_names import BATCH_CPU, MID_CPU
from koordinator.cluster.port import Cluster
from koordinator.dashboard.node_facts import NodeFacts, NodeRoster
from koordinator.dashboard.sources import SourceStatus
from koordinator.dashboard.waiting_pods import WaitingPods, WaitingSurvey
from koordinator.domain.component_health import (
    LEASES,
    WEBHOOKS,
    ComponentFinding,
    lease_findings,
    webhook_findings,
)
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.snapshot.axis import CPU, MEMORY
from koordinator.scheduler.snapshot.nodes import RATIO_OF_GPU

#: Columns of ``NodeColumns.values``; shares are in thousandths, -1 where unknown.
COLUMNS = (
    *("cpu", "memory", "gpu", "load", "holes", "lowQos", "freeGpus", "linkedGpus"),
    *("pods", "state"),
)
UNKNOWN = -1
_WHOLE = 1000

IntColumns = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """All nodes; ``values`` is ``(n_nodes, len(COLUMNS))``.

    ``holes``: free share of the GPU amount on partially allocated GPUs.
    ``lowQos``: share of the requested CPU in the batch and mid bands.
    ``freeGpus``: number of unallocated GPUs.
    ``linkedGpus``: size of the largest partition of linked GPUs without allocations.
    ``state``: NodeHealth.
    """

    facts: Sequence[NodeFacts]
    values: IntColumns


@dataclass(frozen=True, slots=True)
class ClusterTotals:
    """Sums over all nodes: CPU in milli-CPU, memory in bytes, GPUs in percent of one."""

    nodes: int
    placed: int
    cpu: tuple[int, int]  # requested, allocatable
    memory: tuple[int, int]
    gpu: tuple[int, int]

    @property
    def shares(self) -> tuple[int, int, int]:
        """Used shares of CPU, memory and GPUs in thousandths; UNKNOWN without capacity."""
        cpu, memory, gpu = (
            _WHOLE * used // total if total else UNKNOWN
            for used, total in (self.cpu, self.memory, self.gpu)
        )
        return cpu, memory, gpu


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """State of a cluster at one moment."""

    status: SourceStatus
    nodes: NodeColumns
    totals: ClusterTotals
    waiting: WaitingPods


NO_NODES = NodeColumns((), np.empty((0, len(COLUMNS)), np.int32))
NO_TOTALS = ClusterTotals(0, 0, (0, 0), (0, 0), (0, 0))


def empty_overview(status: SourceStatus) -> ClusterOverview:
    """Return the overview of a source that has not been read yet."""
    return ClusterOverview(status, NO_NODES, NO_TOTALS, WaitingPods.none())


class OverviewBuilder:
    """Builder of overviews of one scheduler; caches attributes that rarely change."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle
        self._roster = NodeRoster(handle.state)
        self._survey = WaitingSurvey(handle)

    def build(self, status: SourceStatus) -> ClusterOverview:
        """Return the current overview.

        With thousands of pending pods, a real cluster's pending pods may be some seconds old.
        """
        rows, facts = self._roster.refresh()
        nodes = NodeColumns(facts, self._values(rows))
        # Hours of virtual time may pass between two overviews of a run, so all pods are updated.
        waiting = self._survey.update(is_complete=status.speed is not None)
        return ClusterOverview(status, nodes, self._totals(rows), waiting)

    # -- nodes -------------------------------------------------------------------------------

    def _values(self, rows: npt.NDArray[np.int64]) -> IntColumns:
        state = self._handle.state
        nodes = state.nodes
        requested, allocatable = nodes.requested[:, rows], nodes.allocatable[:, rows]
        values = np.empty((len(rows), len(COLUMNS)), np.int32)
        values[:, 0] = _shares(requested[CPU], allocatable[CPU])
        values[:, 1] = _shares(requested[MEMORY], allocatable[MEMORY])
        total, used = (a[rows, :, RATIO_OF_GPU] for a in (nodes.gpus.total, nodes.gpus.used))
        values[:, 2] = _shares(used.sum(axis=1), total.sum(axis=1))
        values[:, 3] = self._roster.load_shares()
        broken = np.where((used > 0) & (used < total), total - used, 0)
        values[:, 4] = _shares(broken.sum(axis=1), total.sum(axis=1))
        values[:, 5] = self._low_qos(requested)
        on_row = state.pods.on_row
        untouched = (total > 0) & (used == 0)
        values[:, 6] = untouched.sum(axis=1)
        values[:, 7] = self._roster.linked_gpus(untouched)
        values[:, 8] = np.fromiter((len(on_row[row]) for row in rows.tolist()), np.int64, len(rows))
        values[:, 9] = self._roster.states()
        return values

    def _low_qos(self, requested: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        names = self._handle.state.axis.names
        low = np.zeros(requested.shape[1], np.int64)
        for name in (BATCH_CPU, MID_CPU):
            if name in names:
                low += requested[names.index(name)]
        return _shares(low, requested[CPU] + low)

    def _totals(self, rows: npt.NDArray[np.int64]) -> ClusterTotals:
        state = self._handle.state
        nodes = state.nodes
        cpu, memory = (
            (int(nodes.requested[column, rows].sum()), int(nodes.allocatable[column, rows].sum()))
            for column in (CPU, MEMORY)
        )
        gpus = nodes.gpus
        gpu = (
            int(gpus.used[rows, :, RATIO_OF_GPU].sum()),
            int(gpus.total[rows, :, RATIO_OF_GPU].sum()),
        )
        return ClusterTotals(len(rows), len(state.pods.by_key), cpu, memory, gpu)


def _shares(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return ``part / whole`` in thousandths, UNKNOWN where ``whole`` is 0.

    Floating-point division: the error with large amounts is far below a thousandth.
    """
    known = whole > 0
    ratio = np.divide(part, whole, out=np.zeros(len(whole)), where=known)
    return np.where(known, np.rint(np.clip(ratio, 0, 30) * _WHOLE), UNKNOWN).astype(np.int64)


class ComponentHealth:
    """Result of the last check; ``unread`` is the reason where there is none."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self.findings: tuple[ComponentFinding, ...] = ()
        self.unread = "the first check has not finished"

    def check(self, now_s: float) -> None:
        """Read the objects and update ``findings``; may block on the API server."""
        try:
            leases = [*self._existing(Lease, LEASES, self._namespace)]
            webhooks = [
                one for kind, name in WEBHOOKS.items() for one in self._existing(kind, (name,), "")
            ]
        except ClusterError as error:
            self.findings, self.unread = (), str(error)
            return
        self.findings = (*lease_findings(leases, now_s), *webhook_findings(webhooks))
        self.unread = (
            "" if leases or webhooks else f"no component is installed in {self._namespace}"
        )

    def _existing(
        self, kind: type[KubeObject], names: Iterable[str], namespace: str
    ) -> Iterator[KubeObject]:
        for name in names:
            try:
                yield self._cluster.get(kind, name, namespace)
            except NotFoundError:
                continue
