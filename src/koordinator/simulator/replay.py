"""A recording run again: what others did happens as it did, what the scheduler did is decided anew.

Others create and delete pods, change nodes, report usage; a pod that ended by itself runs as long
as it did.  Binds, nominations, preemptions, statuses of reservations, gangs and quotas, and the
volumes of pods that wait for their node are the replay's own.  A pod that only the recorded
scheduler preempted stays: when it would have ended is not known.  One that only the replay
preempts is not created again: whether it would have been is not known either.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from msgspec.structs import replace

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.api.reservation import Reservation
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordinator.cluster.port import EventType
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.ingest import is_over
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
from koordinator.simulator.recording.reports import read_report

#: A pod that is bound later or earlier by less ends when it did: that much a network takes.
JITTER_S = 1.0
_OWN_STATUS = (Reservation, PodGroup, ElasticQuota)
_PREEMPTED = "PreemptionByScheduler"


@dataclass(frozen=True, slots=True)
class ReplayOutcomes:
    """What became of pods that came to be decided on, by ``namespace/name`` (``#2`` the second).

    ``recorded`` says so of the recorded scheduler, ``pod_outcomes`` of this run.
    """

    recorded: dict[str, PodOutcome]
    pod_outcomes: dict[str, PodOutcome]
    events: int
    from_s: float
    to_s: float
    foreign: Mapping[str, int] = field(default_factory=dict)
    """Pods that came for schedulers that no profile is, by name: they went where they went."""

    def comparison(self) -> Comparison:
        """Return what is different from what was recorded."""
        return compare(self.recorded, self.pod_outcomes)


@dataclass(slots=True, eq=False)
class _Story:
    """A pod of both worlds."""

    name: str
    came_s: float
    pod: Pod  # as recorded last
    node: str = ""  # recorded
    bound_s: float | None = None
    was_evicted: bool = False
    wrote: dict[str, dict[str, str | None]] = field(default_factory=dict)
    """By field: what the recorded bind changed there, with the values before."""
    ended_s: float | None = None  # by itself
    bound: Bound | None = None  # here, and since when
    here_s: float | None = None
    is_evicted: bool = False
    why: str = ""
    existed: bool = False  # with its node, when the recording began

    @property
    def counts(self) -> bool:
        """Whether something was decided about it."""
        return not self.existed or self.was_evicted or self.is_evicted

    def recorded(self) -> PodOutcome:
        return PodOutcome(self.came_s, self.node, self.bound_s, self.was_evicted)

    def pod_outcome(self) -> PodOutcome:
        node = self.bound.node if self.bound is not None else ""
        why = "" if node else self.why
        return PodOutcome(self.came_s, node, self.here_s, self.is_evicted, why)


def replay(
    recorded: Recording,
    configuration: KubeSchedulerConfiguration,
    *,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
    on_batch: Callable[[float], None] | None = None,
) -> ReplayOutcomes:
    """Run a recording again; ``on_batch`` is told the time of each batch that is done.

    Raises InputError for a recording or a configuration that can't be read.
    """
    run = ReplayRun.begin(
        recorded.header, configuration, out_of_tree=out_of_tree, source=source, gates=gates
    )
    for batch in recorded.batches:
        run.take_in(batch)
        if on_batch is not None:
            on_batch(batch.at_s)
    run.finish()
    return ReplayOutcomes(
        {story.name: story.recorded() for story in run.stories if story.counts},
        {story.name: story.pod_outcome() for story in run.stories if story.counts},
        run.events,
        recorded.header.started_s,
        run.now_s,
        run.foreign,
    )


class ReplayRun:
    """A replay under way: batches are taken in one after the other, as the recording has them."""

    def __init__(self, world: Embedded, audit: Audit | None = None) -> None:
        """``world`` is one in which nothing is yet; ``audit`` is told what is decided there."""
        self.audit = audit
        self._world, self._cluster, self._scheduler = world, world.cluster, world.scheduler
        self._names = frozenset(world.scheduler.cycles)
        self.stories: list[_Story] = []
        self.events = 0
        self.evictions: list[tuple[float, str]] = []  # when, and who made room for whom
        self.foreign: Counter[str] = Counter()
        self._live: dict[str, _Story] = {}  # by key, those that exist in the recording or here
        self._times: dict[str, int] = {}  # pods of a name so far
        self._ends: list[tuple[float, int, _Story]] = []  # planned; the number orders equal times
        self._planned = 0
        self._put_off: dict[str, RecordedEvent] = {}  # the latest report of each node …
        self._put_off_s = 0.0  # … when the last one came
        self._is_first = True
        world.load([])  # the scheduler follows from here on, and ranks nodes as they come
        #: when something happens even without events, as of the last reply of the scheduler
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
        """Return a replay of a recording of which nothing has happened yet.

        Raises InputError for a configuration that can't be meant.
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
                admission=(),  # everything has been admitted where it was recorded
                out_of_tree=out_of_tree,
                source=source,
                gates=gates,
                audit=audit,
            ),
            audit,
        )

    @property
    def handle(self) -> SchedulerHandle:
        """The scheduler that decides here."""
        return self._scheduler.handle

    @property
    def now_s(self) -> float:
        """How far the replay has come."""
        return self._world.clock.now_s()

    # -- time --------------------------------------------------------------------------------

    def pass_to(self, until_s: float) -> None:
        """Let time pass in which nothing was recorded."""
        if until_s > self.now_s:
            self._catch_up()
            self._pass(until_s)
            self._settle()

    def take_in(self, batch: RecordedBatch) -> None:
        """Let time pass until the batch, then let it happen and the scheduler reply.

        Reports of usage wait while there is nothing to decide: of a node that has reported twice by
        then, nobody has looked at the first.
        """
        self.events += len(batch.events)
        if self._puts_off(batch):
            return
        self._catch_up()
        self._pass(batch.at_s)
        if self._is_first:
            self._begin(batch)
            self._is_first = False
        else:
            for kind, obj in batch.objects():
                self._apply(EventType(kind), obj)
        self._settle()

    def finish(self) -> None:
        """Take in what has been put off."""
        self._catch_up()
        self._settle()

    def _puts_off(self, batch: RecordedBatch) -> bool:
        """Note a batch for later if it reports usage only, and nothing is to be decided yet."""
        if self._is_first or batch.at_s > self._due_s or not self._scheduler.queue.is_empty:
            return False
        nodes = [event.reporting for event in batch.events]
        if not all(nodes):
            return False
        self._put_off.update(zip(nodes, batch.events, strict=True))
        self._put_off_s = batch.at_s
        return True

    def _catch_up(self) -> None:
        if self._put_off:
            self._world.clock.advance_to(self._put_off_s)
            for event in self._put_off.values():
                self._store(read_report(event.object))
            self._put_off.clear()

    def _next_due_s(self) -> float:
        """Return when something happens even without events."""
        wakeup_s = self._scheduler.next_wakeup_s()
        end_s = self._ends[0][0] if self._ends else math.inf
        return min(math.inf if wakeup_s is None else wakeup_s, end_s)

    def _pass(self, until_s: float) -> None:
        while True:
            next_s = self._due_s
            if next_s >= until_s:  # what is due at that moment is decided with the batch
                break
            self._world.clock.advance_to(next_s)
            while self._ends and self._ends[0][0] <= next_s:
                self._end(heapq.heappop(self._ends)[2])
            self._settle()
        self._world.clock.advance_to(until_s)
        while self._ends and self._ends[0][0] <= until_s:
            self._end(heapq.heappop(self._ends)[2])

    def _settle(self) -> None:
        while True:
            outcomes = self._scheduler.step()
            for outcome in outcomes:
                self._note(outcome)
            evicted = any(isinstance(outcome, Evicted) for outcome in outcomes)
            if not self._world.step_controllers() and not evicted:
                break
        self._due_s = self._next_due_s()

    def _note(self, outcome: Outcome) -> None:
        story = self._live.get(outcome.pod)
        if story is None:
            return
        if isinstance(outcome, Bound):
            story.bound, story.here_s = outcome, self._world.clock.now_s()
            self._overwrite(self._laid_over(story))
            if story.ended_s is not None:
                self._plan_end(story)
        elif isinstance(outcome, Evicted):
            story.is_evicted = True
            self.evictions.append((self.now_s, f"{outcome.pod} made room for {outcome.by}"))
        else:
            story.why = outcome.message

    # -- what happened -----------------------------------------------------------------------

    def _begin(self, batch: RecordedBatch) -> None:
        """Take in what existed; pods that wait come in the order in which they were created.

        What changed while a recorder read it exists as it was in the end.
        """
        objects = _last_states(batch)
        waiting = [obj for obj in objects if isinstance(obj, Pod) and not obj.spec.node_name]
        waiting.sort(key=lambda pod: to_epoch_s(pod.metadata.creation_timestamp))
        others = [o for o in objects if not (isinstance(o, Pod) and not o.spec.node_name)]
        self._cluster.load(others)
        now_s = self._world.clock.now_s()
        for pod in others:
            if isinstance(pod, Pod) and pod.spec.scheduler_name in self._names:
                story = self._tell(pod)
                story.existed, story.node, story.bound_s = True, pod.spec.node_name, now_s
                story.bound, story.here_s = Bound(pod.key, pod.spec.node_name), now_s
        self._scheduler.step(limit=0)
        for pod in waiting:
            self._apply(EventType.ADDED, pod)

    def _apply(self, kind: EventType, obj: KubeObject) -> None:
        if isinstance(obj, Pod):
            self._apply_pod(kind, obj)
        elif kind is EventType.DELETED:
            self._lose(obj)
        elif not self._is_own_volume(obj):
            self._store(obj)

    def _store(self, obj: KubeObject) -> None:
        """Store what is no pod as it is, but for a status that is the scheduler's own."""
        stored = self._find(obj)
        if isinstance(obj, _OWN_STATUS):
            status = type(obj.status)() if stored is None else stored.status  # type: ignore[attr-defined]
            obj = replace(obj, status=status)
        if stored is None:
            self._cluster.load([obj])
        else:
            self._replace(stored, obj)

    def _apply_pod(self, kind: EventType, pod: Pod) -> None:
        story = self._live.get(pod.key)
        if story is not None and story.pod.metadata.uid != pod.metadata.uid:
            self._forget(story)
            story = None
        if story is None:
            self._apply_other_pod(kind, pod)
        elif kind is EventType.DELETED:
            if not story.was_evicted and story.ended_s is None:
                self._forget(story)
        else:
            self._learn(story, pod)

    def _apply_other_pod(self, kind: EventType, pod: Pod) -> None:
        """Take in a pod that nobody here decides on, or that comes to be decided on."""
        if kind is EventType.DELETED:
            self._lose(pod)
            return
        if is_over(pod):
            self._lose(pod)
        elif self._find(pod) is not None:
            self._overwrite(pod)
        else:
            if not pod.spec.node_name:
                if pod.spec.scheduler_name in self._names:
                    self._tell(pod)
                else:
                    self.foreign[pod.spec.scheduler_name] += 1
            self._cluster.load([pod])

    def _tell(self, pod: Pod) -> _Story:
        times = self._times[pod.key] = self._times.get(pod.key, 0) + 1
        name = pod.key if times == 1 else f"{pod.key}#{times}"
        story = _Story(name, self._world.clock.now_s(), pod)
        self._live[pod.key] = story
        self.stories.append(story)
        return story

    def _learn(self, story: _Story, pod: Pod) -> None:
        before = story.pod
        if not is_over(pod):  # that is the recorded one's end: here the pod may begin later
            story.pod = pod
        now_s = self._world.clock.now_s()
        if pod.spec.node_name and not before.spec.node_name:
            story.node, story.bound_s = pod.spec.node_name, now_s
            story.wrote = {
                name: _changed(getattr(before.metadata, name), getattr(pod.metadata, name))
                for name in ("annotations", "labels")
            }
        conditions = pod.status.conditions
        story.was_evicted |= any(it.reason == _PREEMPTED for it in conditions)
        if story.is_evicted or story.was_evicted:
            return
        if is_over(pod):
            if story.ended_s is None:
                story.ended_s = now_s
                if story.here_s is not None:
                    self._plan_end(story)
        elif story.ended_s is None:
            self._overwrite(self._laid_over(story))

    def _plan_end(self, story: _Story) -> None:
        """Let a pod that ended by itself run as long as it did."""
        if story.ended_s is None or story.here_s is None:
            return
        shift_s = 0.0 if story.bound_s is None else story.here_s - story.bound_s
        end_s = story.ended_s + (shift_s if abs(shift_s) > JITTER_S else 0.0)
        if end_s <= self._world.clock.now_s():
            self._end(story)
            return
        self._planned += 1
        heapq.heappush(self._ends, (end_s, self._planned, story))

    def _end(self, story: _Story) -> None:
        if self._live.get(story.pod.key) is story:
            self._forget(story)

    def _forget(self, story: _Story) -> None:
        del self._live[story.pod.key]
        if not story.is_evicted:
            self._lose(story.pod)

    # -- what is stored ----------------------------------------------------------------------

    def _laid_over(self, story: _Story) -> Pod:
        """Return the pod as others made it, with what the scheduler decided here."""
        pod, bound = story.pod, story.bound
        stored = self._find(pod)
        own = stored if isinstance(stored, Pod) else pod
        meta = pod.metadata
        for name in ("annotations", "labels"):
            texts = _without(getattr(meta, name), story.wrote.get(name, {}))
            if bound is not None:
                texts |= getattr(bound, name)
            meta = replace(meta, **{name: texts})
        status = own.status
        if bound is not None and story.node:
            kept = [it for it in pod.status.conditions if it.type != "PodScheduled"]
            scheduled = [it for it in own.status.conditions if it.type == "PodScheduled"]
            status = replace(pod.status, conditions=(*scheduled, *kept), nominated_node_name="")
        spec = replace(pod.spec, node_name=own.spec.node_name)
        return replace(pod, metadata=meta, spec=spec, status=status)

    def _is_own_volume(self, obj: KubeObject) -> bool:
        """Return whether a volume or a change of one follows from where its pod went."""
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
            found = self._cluster.get(StorageClass, claim.spec.storage_class_name or "")
        except NotFoundError:
            return False
        return found.volume_binding_mode == "WaitForFirstConsumer"

    def _find(self, obj: KubeObject) -> KubeObject | None:
        try:
            return self._cluster.get(type(obj), obj.metadata.name, obj.metadata.namespace)
        except NotFoundError:
            return None

    def _overwrite(self, pod: Pod) -> None:
        """Store what has changed; a pod that is gone here stays so."""
        stored = self._find(pod)
        if stored is not None:
            self._replace(stored, pod)

    def _replace(self, stored: KubeObject, obj: KubeObject) -> None:
        version = stored.metadata.resource_version
        obj = replace(obj, metadata=replace(obj.metadata, resource_version=version))
        if obj != stored:
            self._cluster.overwrite(obj)

    def _lose(self, obj: KubeObject) -> None:
        if self._find(obj) is not None:
            self._cluster.lose(obj)


def _last_states(batch: RecordedBatch) -> list[KubeObject]:
    """Return what is left after a batch, in the order in which it came."""
    left: dict[tuple[type[KubeObject], str], KubeObject] = {}
    for kind, obj in batch.objects():
        key = type(obj), obj.key
        if EventType(kind) is EventType.DELETED or (isinstance(obj, Pod) and is_over(obj)):
            left.pop(key, None)
        else:
            left[key] = obj
    return list(left.values())


def _changed(before: dict[str, str], after: dict[str, str]) -> dict[str, str | None]:
    """Return the values before of all keys that are not as they were."""
    keys = before.keys() | after.keys()
    return {key: before.get(key) for key in keys if before.get(key) != after.get(key)}


def _without(texts: dict[str, str], wrote: dict[str, str | None]) -> dict[str, str]:
    """Return the texts with what was there before somebody wrote."""
    kept = {key: text for key, text in texts.items() if key not in wrote}
    return kept | {key: text for key, text in wrote.items() if text is not None}
