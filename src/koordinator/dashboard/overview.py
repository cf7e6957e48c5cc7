"""A cluster at one moment as readers first see it: nodes as columns, who waits and for what.

Reads a scheduler's state, array by array; made again whenever something has changed, so nothing
here may take longer than some milliseconds on thousands of nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from koordinator.api.pod import Pod
from koordinator.api.resource_names import BATCH_CPU, MID_CPU
from koordinator.dashboard.node_facts import NodeFacts, NodeRoster
from koordinator.dashboard.sources import SourceStatus
from koordinator.domain.gangs import gang_id
from koordinator.foundation.clock import to_epoch_s
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot.axis import CPU, MEMORY
from koordinator.scheduler.snapshot.nodes import RATIO_OF_GPU
from koordinator.simulator.gauge import waiting_cause

#: Columns of ``NodeColumns.values``; shares are in thousandths, -1 where nobody knows.
COLUMNS = (
    *("cpu", "memory", "gpu", "load", "holes", "lowQos", "freeGpus", "linkedGpus"),
    *("pods", "state"),
)
UNKNOWN = -1
UNTRIED = "nobody has tried it yet"
_WHOLE = 1000
_GPU_PERCENT = 100

IntColumns = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """All nodes; ``values`` is ``(n_nodes, len(COLUMNS))``.

    ``holes`` is the share of the GPUs' amount that is free on GPUs which somebody else holds a part
    of; ``lowQos`` that of the requested CPU which is of band batch or mid; ``freeGpus`` counts GPUs
    that nobody holds a part of, ``linkedGpus`` the most of those that are linked to each other, as
    far as the node's partitions tell; ``state`` is a NodeHealth.
    """

    facts: Sequence[NodeFacts]
    values: IntColumns


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod without a node."""

    namespace: str
    name: str
    cause: str  # in words, the one of the most nodes
    plugin: str
    since_s: float
    position: int  # 1: nobody is tried before it; 0: it is in no queue
    state: str  # of the queue; empty: it is in none
    priority: int
    attempts: int
    gang: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClusterTotals:
    """Sums over all nodes: CPU in milli, memory in bytes, GPUs in percent of one."""

    nodes: int
    placed: int
    cpu: tuple[int, int]  # requested, allocatable
    memory: tuple[int, int]
    gpu: tuple[int, int]

    @property
    def shares(self) -> tuple[int, int, int]:
        """CPU, memory and GPUs in thousandths; UNKNOWN where there are none."""
        cpu, memory, gpu = (
            _WHOLE * used // total if total else UNKNOWN
            for used, total in (self.cpu, self.memory, self.gpu)
        )
        return cpu, memory, gpu


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """A cluster at one moment."""

    status: SourceStatus
    nodes: NodeColumns
    totals: ClusterTotals
    waiting: Sequence[WaitingPod]  # the longest first


def nothing_yet(status: SourceStatus) -> ClusterOverview:
    """Return the overview of a cluster of which nothing has been read."""
    nodes = NodeColumns((), np.empty((0, len(COLUMNS)), np.int32))
    return ClusterOverview(status, nodes, ClusterTotals(0, 0, (0, 0), (0, 0), (0, 0)), ())


@dataclass(frozen=True, slots=True)
class _Remembered:
    pod: Pod
    heard: tuple[object, ...]  # what the queue had to say of it
    told: WaitingPod


def _heard(queued: QueuedPod | None) -> tuple[object, ...]:
    """Return all that a ``WaitingPod`` takes from the queue, but for the place."""
    if queued is None:
        return ()
    one = queued
    said = (one.message, one.rejected_by, one.pending_on, one.gated_by)
    return (*said, one.state, one.attempts, one.first_attempt_s, one.queued_at_s)


class OverviewBuilder:
    """Makes overviews of one scheduler; remembers what hardly ever changes."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle
        self._roster = NodeRoster(handle.state)
        self._known: dict[str, _Remembered] = {}  # of the pods of the last overview, by key

    def build(self, status: SourceStatus) -> ClusterOverview:
        """Return the cluster as it is now."""
        rows, facts = self._roster.refresh()
        values = self._values(rows)
        return ClusterOverview(status, NodeColumns(facts, values), self._totals(rows), self._wait())

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

    # -- pods --------------------------------------------------------------------------------

    def _wait(self) -> Sequence[WaitingPod]:
        state, queue = self._handle.state, self._handle.queue
        waiting: list[tuple[Pod, QueuedPod | None]] = [
            (pod, queue.get(key))
            for key, (pod, _) in state.unbound.items()
            if key not in state.pods.by_key
        ]
        places = _places(queued for _, queued in waiting if queued is not None)
        known, self._known = self._known, {}
        told = [self._remembered(pod, queued, places, known) for pod, queued in waiting]
        found = _with_their_gangs(told)
        found.sort(key=lambda one: (one.since_s, one.position, one.key))
        return found

    def _remembered(
        self,
        pod: Pod,
        queued: QueuedPod | None,
        places: Mapping[str, int],
        known: Mapping[str, "_Remembered"],
    ) -> WaitingPod:
        """Return what is told of a pod, from before unless something of it is different now."""
        key, heard = pod.key, _heard(queued)
        before, place = known.get(key), places.get(key, 0)
        if before is None or before.pod is not pod or before.heard != heard:
            told = self._waiting_pod(pod, queued, place)
        elif before.told.position != place:
            told = replace(before.told, position=place)
        else:
            told = before.told
        self._known[key] = _Remembered(pod, heard, told)
        return told

    def _waiting_pod(self, pod: Pod, queued: QueuedPod | None, place: int) -> WaitingPod:
        message, plugin = self._why(pod, queued)
        meta = pod.metadata
        first_s = queued.first_attempt_s or queued.queued_at_s if queued is not None else 0.0
        return WaitingPod(
            meta.namespace,
            meta.name,
            waiting_cause(message) if message else UNTRIED,
            plugin,
            to_epoch_s(meta.creation_timestamp, first_s),
            place,
            str(queued.state or "") if queued is not None else "",
            pod.spec.priority or 0,
            queued.attempts if queued is not None else 0,
            gang_id(meta, pod.spec.workload_ref),
        )

    def _why(self, pod: Pod, queued: QueuedPod | None) -> tuple[str, str]:
        """Return the scheduler's words, or those of the one that decides on this cluster."""
        if queued is not None and queued.message:
            plugins = queued.rejectors or ((queued.gated_by,) if queued.gated_by else ())
            return queued.message, ", ".join(sorted(plugins))
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                return condition.message or condition.reason, ""
        if queued is None and pod.metadata.deletion_timestamp is not None:
            return "it is being deleted", ""
        if queued is None and pod.spec.scheduler_name not in self._handle.cycles:
            return f"no profile schedules it: its schedulerName is {pod.spec.scheduler_name}", ""
        return "", ""


def _with_their_gangs(waiting: list[WaitingPod]) -> list[WaitingPod]:
    """Let members that wait for the one that stands for all of them wait for what that waits for.

    What they were told when they came, such as that members are missing, may be long untrue.
    """
    tried = {one.gang: one for one in waiting if one.gang and one.attempts}
    return [
        replace(one, cause=tried[one.gang].cause, plugin=tried[one.gang].plugin)
        if one.gang in tried and not one.attempts
        else one
        for one in waiting
    ]


def _shares(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return thousandths, UNKNOWN where there is no whole; large amounts lose what none can see."""
    known = whole > 0
    ratio = np.divide(part, whole, out=np.zeros(len(whole)), where=known)
    return np.where(known, np.rint(np.clip(ratio, 0, 30) * _WHOLE), UNKNOWN).astype(np.int64)


def _places(queued: Iterator[QueuedPod]) -> dict[str, int]:
    """Return who would be tried when, if all of them were ready."""
    ranked = sorted(queued, key=lambda one: (-one.priority, one.queued_at_s, one.sequence))
    return {one.key: place for place, one in enumerate(ranked, 1)}
