"""Replay of a recording: external events occur as recorded, scheduling decisions are new.

External events are the creation and deletion of pods, changes of nodes and usage reports; a pod
that ended by itself keeps its recorded run time.  The replay makes its own binds, nominations,
preemptions, statuses of reservations, gangs and quotas, and volumes of pods with
WaitForFirstConsumer.  A pod that only the recorded scheduler preempted keeps running, as its end is
unknown.  A pod that only the replay preempts is not recreated.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Self

from msgspec.structs import replace

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.pod_groups import PodGroup
from koordinator.api.reservation import Reservation
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordinator.cluster.port import EventType
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.loop import Bound, Evicted, Outcome, SchedulerOptions
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.rules.volumes import SELECTED_NODE
from koordinator.simulator.embedded import Embedded
from koordinator.simulator.recording import (
    Comparison,
    PodOutcome,
    RecordedBatch,
    RecordedEvent,
    Recording,
    RecordingHeader,
    compare,
)
from koordinator.simulator.recording.batch import read_report

#: A pod whose bind differs by less keeps its recorded end: the difference is network latency.
JITTER_S = 1.0
_OWN_STATUS = (Reservation, PodGroup, ElasticQuota)
_PREEMPTED = "PreemptionByScheduler"


@dataclass(frozen=True, slots=True)
class ReplayOutcomes:
    """Outcomes of the scheduled pods, by ``namespace/name`` (``#2`` for the second of a name).

    ``recorded`` has the outcomes of the recorded scheduler, ``pod_outcomes`` of the replay.
    """

    recorded: dict[str, PodOutcome]
    pod_outcomes: dict[str, PodOutcome]
    events: int
    from_s: float
    to_s: float
    foreign: Mapping[str, int] = field(default_factory=dict)
    """Number of pods of schedulers without a profile, by scheduler name; bound as recorded."""

    def comparison(self) -> Comparison:
        """Return the differences from the recording."""
        return compare(self.recorded, self.pod_outcomes)


@dataclass(slots=True, eq=False)
class _ReplayedPod:
    """State of a pod in the recording and in the replay."""

    name: str
    arrived_s: float
    pod: Pod  # last recorded state
    # -- in the recording
    node: str = ""
    bound_s: float | None = None
    was_evicted: bool = False
    #: Annotations and labels that the recorded bind changed, with their values before it.
    bind_changes: dict[str, dict[str, str | None]] = field(default_factory=dict)
    ended_s: float | None = None  # end by itself
    # -- in the replay
    bound: Bound | None = None
    replay_bound_s: float | None = None
    is_evicted: bool = False
    why: str = ""
    existed: bool = False  # bound before the recording started

    @property
    def counts(self) -> bool:
        """Whether a scheduler decided about the pod."""
        return not self.existed or self.was_evicted or self.is_evicted

    def recorded(self) -> PodOutcome:
        return PodOutcome(self.arrived_s, self.node, self.bound_s, self.was_evicted)

    def pod_outcome(self) -> PodOutcome:
        node = self.bound.node if self.bound is not None else ""
        why = "" if node else self.why
        return PodOutcome(self.arrived_s, node, self.replay_bound_s, self.is_evicted, why)


def replay(
    recorded: Recording,
    configuration: KubeSchedulerConfiguration,
    *,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
    on_batch: Callable[[float], None] | None = None,
) -> ReplayOutcomes:
    """Replay a recording; ``on_batch`` receives the time of each replayed batch.

    Raises InputError for an unreadable recording or an invalid configuration.
    """
    run = ReplayRun.begin(
        recorded.header, configuration, out_of_tree=out_of_tree, source=source, gates=gates
    )
    for batch in recorded.batches:
        run.apply(batch)
        if on_batch is not None:
            on_batch(batch.at_s)
    run.finish()
    return ReplayOutcomes(
        {pod.name: pod.recorded() for pod in run.pods if pod.counts},
        {pod.name: pod.pod_outcome() for pod in run.pods if pod.counts},
        run.events,
        recorded.header.started_s,
        run.now_s,
        run.foreign,
    )


class ReplayRun:
    """Replay in progress; ``apply`` takes the batches in their recorded order."""

    def __init__(self, world: Embedded, audit: Audit | None = None) -> None:
        """``world`` is empty; ``audit`` is the audit trail of its scheduler."""
        self.audit = audit
        self._world, self._cluster, self._scheduler = world, world.cluster, world.scheduler
        self._names = frozenset(world.scheduler.cycles)
        self.pods: list[_ReplayedPod] = []
        self.events = 0
        self.evictions: list[tuple[float, str]] = []  # time and text
        self.foreign: Counter[str] = Counter()
        self._live: dict[str, _ReplayedPod] = {}  # by key, in the recording or in the replay
        self._times: dict[str, int] = {}  # number of pods so far, by key
        self._ends: list[tuple[float, int, _ReplayedPod]] = []  # heap; the number breaks ties
        self._planned = 0
        self._deferred: dict[str, RecordedEvent] = {}  # latest deferred usage report of each node
        self._deferred_s = 0.0  # time of the last deferred report
        self._is_first = True
        world.load([])  # starts the scheduler, which then ranks nodes in order of arrival
        #: Time of the next due work without further events, after the last scheduler step.
        self._due_s = self._next_due_s()

    @classmethod
    def begin(
        cls,
        header: RecordingHeader,
        configuration: KubeSchedulerConfiguration,
        *,
        out_of_tree: Iterable[PluginSpec[Any]] = (),
        source: str = "",
        gates: FeatureGates = NO_GATES,
        audit: Audit | None = None,
    ) -> Self:
        """Return a replay at the start of a recording.

        Raises InputError for an invalid configuration.
        """
        options = SchedulerOptions(
            initial_backoff_s=configuration.pod_initial_backoff_seconds,
            max_backoff_s=configuration.pod_max_backoff_seconds,
            report=False,
        )
        return cls(
            Embedded(
                configuration,
                now_s=header.started_s,
                options=options,
                admission=(),  # recorded objects have passed admission
                out_of_tree=out_of_tree,
                source=source,
                gates=gates,
                audit=audit,
            ),
            audit,
        )

    @property
    def handle(self) -> SchedulerHandle:
        """The scheduler of the replay."""
        return self._scheduler.handle

    @property
    def now_s(self) -> float:
        """Current time of the replay."""
        return self._world.clock.now_s()

    # -- time --------------------------------------------------------------------------------

    def advance_to(self, until_s: float) -> None:
        """Advance the time without recorded events."""
        if until_s > self.now_s:
            self._apply_deferred()
            self._advance(until_s)
            self._schedule()

    def apply(self, batch: RecordedBatch) -> None:
        """Advance the time to the batch, apply its events and run the scheduler.

        Usage reports are deferred while there are no pods to schedule, as a later report of the
        same node replaces them.
        """
        self.events += len(batch.events)
        if self._defers(batch):
            return
        self._apply_deferred()
        self._advance(batch.at_s)
        if self._is_first:
            self._begin(batch)
            self._is_first = False
        else:
            for kind, obj in batch.objects():
                self._apply(EventType(kind), obj)
        self._schedule()

    def finish(self) -> None:
        """Apply deferred usage reports."""
        self._apply_deferred()
        self._schedule()

    def _defers(self, batch: RecordedBatch) -> bool:
        """Defer a batch that has usage reports only, while there are no pods to schedule."""
        if self._is_first or batch.at_s > self._due_s or not self._scheduler.queue.is_empty:
            return False
        nodes = [event.reporting for event in batch.events]
        if not all(nodes):
            return False
        self._deferred.update(zip(nodes, batch.events, strict=True))
        self._deferred_s = batch.at_s
        return True

    def _apply_deferred(self) -> None:
        if self._deferred:
            self._world.clock.advance_to(self._deferred_s)
            for event in self._deferred.values():
                self._store(read_report(event.object))
            self._deferred.clear()

    def _next_due_s(self) -> float:
        """Return the time of the next due work without further events."""
        wakeup_s = self._scheduler.next_wakeup_s()
        end_s = self._ends[0][0] if self._ends else math.inf
        return min(math.inf if wakeup_s is None else wakeup_s, end_s)

    def _advance(self, until_s: float) -> None:
        while True:
            next_s = self._due_s
            if next_s >= until_s:  # work due at that moment is done together with the batch
                break
            self._world.clock.advance_to(next_s)
            while self._ends and self._ends[0][0] <= next_s:
                self._end(heapq.heappop(self._ends)[2])
            self._schedule()
        self._world.clock.advance_to(until_s)
        while self._ends and self._ends[0][0] <= until_s:
            self._end(heapq.heappop(self._ends)[2])

    def _schedule(self) -> None:
        while True:
            outcomes = self._scheduler.step()
            for outcome in outcomes:
                self._record(outcome)
            evicted = any(isinstance(outcome, Evicted) for outcome in outcomes)
            if not self._world.step_controllers() and not evicted:
                break
        self._due_s = self._next_due_s()

    def _record(self, outcome: Outcome) -> None:
        replayed = self._live.get(outcome.pod)
        if replayed is None:
            return
        if isinstance(outcome, Bound):
            replayed.bound, replayed.replay_bound_s = outcome, self._world.clock.now_s()
            self._overwrite(self._merged(replayed))
            if replayed.ended_s is not None:
                self._plan_end(replayed)
        elif isinstance(outcome, Evicted):
            replayed.is_evicted = True
            self.evictions.append((self.now_s, f"{outcome.pod} made room for {outcome.by}"))
        else:
            replayed.why = outcome.message

    # -- recorded events ---------------------------------------------------------------------

    def _begin(self, batch: RecordedBatch) -> None:
        """Load the initial objects in their last state; queue pending pods by creation time."""
        objects = _last_states(batch)
        waiting = [obj for obj in objects if isinstance(obj, Pod) and not obj.spec.node_name]
        waiting.sort(key=lambda pod: to_epoch_s(pod.metadata.creation_timestamp))
        others = [o for o in objects if not (isinstance(o, Pod) and not o.spec.node_name)]
        self._cluster.load(others)
        now_s = self._world.clock.now_s()
        for pod in others:
            if isinstance(pod, Pod) and pod.spec.scheduler_name in self._names:
                replayed = self._add(pod)
                replayed.existed, replayed.node, replayed.bound_s = True, pod.spec.node_name, now_s
                replayed.bound = Bound(pod.key, pod.spec.node_name)
                replayed.replay_bound_s = now_s
        self._scheduler.step(limit=0)
        for pod in waiting:
            self._apply(EventType.ADDED, pod)

    def _apply(self, kind: EventType, obj: KubeObject) -> None:
        if isinstance(obj, Pod):
            self._apply_pod(kind, obj)
        elif kind is EventType.DELETED:
            self._delete(obj)
        elif not self._is_own_volume(obj):
            self._store(obj)

    def _store(self, obj: KubeObject) -> None:
        """Store an object other than a pod, except for a status that the scheduler writes."""
        stored = self._find(obj)
        if isinstance(obj, _OWN_STATUS):
            status = type(obj.status)() if stored is None else stored.status  # type: ignore[attr-defined]
            obj = replace(obj, status=status)
        if stored is None:
            self._cluster.load([obj])
        else:
            self._replace(stored, obj)

    def _apply_pod(self, kind: EventType, pod: Pod) -> None:
        replayed = self._live.get(pod.key)
        if replayed is not None and replayed.pod.metadata.uid != pod.metadata.uid:
            self._remove(replayed)
            replayed = None
        if replayed is None:
            self._apply_untracked_pod(kind, pod)
        elif kind is EventType.DELETED:
            if not replayed.was_evicted and replayed.ended_s is None:
                self._remove(replayed)
        else:
            self._update(replayed, pod)

    def _apply_untracked_pod(self, kind: EventType, pod: Pod) -> None:
        """Apply an event of a pod that is new, or that another scheduler manages."""
        if kind is EventType.DELETED or is_terminal(pod):
            self._delete(pod)
        elif self._find(pod) is not None:
            self._overwrite(pod)
        else:
            if not pod.spec.node_name:
                if pod.spec.scheduler_name in self._names:
                    self._add(pod)
                else:
                    self.foreign[pod.spec.scheduler_name] += 1
            self._cluster.load([pod])

    def _add(self, pod: Pod) -> _ReplayedPod:
        times = self._times[pod.key] = self._times.get(pod.key, 0) + 1
        name = pod.key if times == 1 else f"{pod.key}#{times}"
        replayed = _ReplayedPod(name, self._world.clock.now_s(), pod)
        self._live[pod.key] = replayed
        self.pods.append(replayed)
        return replayed

    def _update(self, replayed: _ReplayedPod, pod: Pod) -> None:
        before = replayed.pod
        if not is_terminal(
            pod
        ):  # the end belongs to the recording; the replayed pod may start later
            replayed.pod = pod
        now_s = self._world.clock.now_s()
        if pod.spec.node_name and not before.spec.node_name:
            replayed.node, replayed.bound_s = pod.spec.node_name, now_s
            replayed.bind_changes = {
                name: _changed(getattr(before.metadata, name), getattr(pod.metadata, name))
                for name in ("annotations", "labels")
            }
        conditions = pod.status.conditions
        replayed.was_evicted |= any(it.reason == _PREEMPTED for it in conditions)
        if replayed.is_evicted or replayed.was_evicted:
            return
        if is_terminal(pod):
            if replayed.ended_s is None:
                replayed.ended_s = now_s
                if replayed.replay_bound_s is not None:
                    self._plan_end(replayed)
        elif replayed.ended_s is None:
            self._overwrite(self._merged(replayed))

    def _plan_end(self, replayed: _ReplayedPod) -> None:
        """Plan the end of a pod after its recorded run time."""
        if replayed.ended_s is None or replayed.replay_bound_s is None:
            return
        shift_s = 0.0 if replayed.bound_s is None else replayed.replay_bound_s - replayed.bound_s
        end_s = replayed.ended_s + (shift_s if abs(shift_s) > JITTER_S else 0.0)
        if end_s <= self._world.clock.now_s():
            self._end(replayed)
            return
        self._planned += 1
        heapq.heappush(self._ends, (end_s, self._planned, replayed))

    def _end(self, replayed: _ReplayedPod) -> None:
        if self._live.get(replayed.pod.key) is replayed:
            self._remove(replayed)

    def _remove(self, replayed: _ReplayedPod) -> None:
        del self._live[replayed.pod.key]
        if not replayed.is_evicted:
            self._delete(replayed.pod)

    # -- storage -----------------------------------------------------------------------------

    def _merged(self, replayed: _ReplayedPod) -> Pod:
        """Return the recorded pod with the decisions of the replay's scheduler."""
        pod, bound = replayed.pod, replayed.bound
        stored = self._find(pod)
        own = stored if isinstance(stored, Pod) else pod
        meta = pod.metadata
        for name in ("annotations", "labels"):
            texts = _reverted(getattr(meta, name), replayed.bind_changes.get(name, {}))
            if bound is not None:
                texts |= getattr(bound, name)
            meta = replace(meta, **{name: texts})
        status = own.status
        if bound is not None and replayed.node:
            kept = [it for it in pod.status.conditions if it.type != "PodScheduled"]
            scheduled = [it for it in own.status.conditions if it.type == "PodScheduled"]
            status = replace(pod.status, conditions=(*scheduled, *kept), nominated_node_name="")
        spec = replace(pod.spec, node_name=own.spec.node_name)
        return replace(pod, metadata=meta, spec=spec, status=status)

    def _is_own_volume(self, obj: KubeObject) -> bool:
        """Return whether the replay's own controllers manage a volume or claim."""
        if isinstance(obj, PersistentVolumeClaim):
            stored = self._find(obj)
            return stored is not None and self._waits(obj)
        if not isinstance(obj, PersistentVolume) or obj.spec.claim_ref is None:
            return False
        claim_ref = obj.spec.claim_ref
        try:
            claim = self._cluster.get(PersistentVolumeClaim, claim_ref.name, claim_ref.namespace)
        except NotFoundError:
            return False
        return self._waits(claim)

    def _waits(self, claim: PersistentVolumeClaim) -> bool:
        if SELECTED_NODE in claim.metadata.annotations:
            return True
        try:
            storage_class = self._cluster.get(StorageClass, claim.spec.storage_class_name or "")
        except NotFoundError:
            return False
        return storage_class.volume_binding_mode == "WaitForFirstConsumer"

    def _find(self, obj: KubeObject) -> KubeObject | None:
        try:
            return self._cluster.get(type(obj), obj.metadata.name, obj.metadata.namespace)
        except NotFoundError:
            return None

    def _overwrite(self, pod: Pod) -> None:
        """Store a changed pod unless it is deleted in the replay."""
        stored = self._find(pod)
        if stored is not None:
            self._replace(stored, pod)

    def _replace(self, stored: KubeObject, obj: KubeObject) -> None:
        version = stored.metadata.resource_version
        obj = replace(obj, metadata=replace(obj.metadata, resource_version=version))
        if obj != stored:
            self._cluster.overwrite(obj)

    def _delete(self, obj: KubeObject) -> None:
        if self._find(obj) is not None:
            self._cluster.force_delete(obj)


def _last_states(batch: RecordedBatch) -> list[KubeObject]:
    """Return the objects that exist after a batch, in order of arrival."""
    states: dict[tuple[type[KubeObject], str], KubeObject] = {}
    for kind, obj in batch.objects():
        key = type(obj), obj.key
        if EventType(kind) is EventType.DELETED or (isinstance(obj, Pod) and is_terminal(obj)):
            states.pop(key, None)
        else:
            states[key] = obj
    return list(states.values())


def _changed(before: dict[str, str], after: dict[str, str]) -> dict[str, str | None]:
    """Return the previous values of all changed keys."""
    keys = before.keys() | after.keys()
    return {key: before.get(key) for key in keys if before.get(key) != after.get(key)}


def _reverted(texts: dict[str, str], previous: dict[str, str | None]) -> dict[str, str]:
    """Return the texts with some keys reset to their previous values."""
    kept = {key: text for key, text in texts.items() if key not in previous}
    return kept | {key: text for key, text in previous.items() if text is not None}
