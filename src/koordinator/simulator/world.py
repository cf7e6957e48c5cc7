"""Discrete-event simulation of a cluster: pods arrive, run and end; nodes fail and are repaired.

Simulates the owners that submit pods, the kubelets that run them, and the control plane that
notices failed nodes and evicts their pods.  Their behaviour is data (``stages.py``).  The scheduler
is the real one and uses only the API of the in-memory cluster.

Invariants: time never goes back.  Events are ordered by time, rank and sequence number, so a run
is deterministic.  After the events of one moment the scheduler runs until it has no work; its
decisions only cause events at that moment or later.  The wall clock is read only to measure the
scheduler's time.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from koordinator.api.defaults import with_defaults
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.cluster.memory.admission import Admission
from koordinator.foundation.clock import Clock, SystemClock, to_datetime
from koordinator.foundation.errors import BugError, FaultHandler, NotFoundError, raise_fault
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.loop import Bound, Evicted, Outcome, SchedulerOptions
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.embedded import DEFAULT_ADMISSION, STOCK, Embedded
from koordinator.simulator.recorder import Recorder
from koordinator.simulator.stages import (
    ENDLESS,
    GRACE_PERIOD_S,
    RUNNING_CONDITIONS,
    Eviction,
    NodeEvent,
    NodeStage,
    PodEvent,
    PodLife,
    PodStage,
    next_node_stage,
    next_pod_stage,
    reachable,
    resubmitted_name,
    seconds_tolerated,
    unreachable,
)
from koordinator.simulator.usage import WHOLE, UsageCurve
from koordinator.simulator.volume_controller import create_ephemeral_claims

if TYPE_CHECKING:
    from koordinator.scheduler.features.metrics import SchedulerMetrics


class EventOrder(IntEnum):
    """Order of the events of one moment."""

    END = 0  # finished pods free their resources
    NODE = 1  # before DELETE: a node that is repaired in time keeps its pods
    DELETE = 2
    SUBMIT = 3
    HOSTS = 4  # measures the pods that run after the other events


class RunObserver(Protocol):
    """Observer of the events of a run, such as a RunRecorder."""

    def submitted(self, kind: str) -> None: ...
    def resubmitted(self, kind: str) -> None: ...
    def scheduled(self, kind: str, waited_s: float) -> None: ...
    def finished(self, kind: str) -> None: ...
    def failed(self, kind: str) -> None: ...
    def event(self, time_s: float, text: str) -> None: ...
    def node_failed(self, time_s: float, text: str) -> None: ...


class SimulatedNodes(Protocol):
    """Model of the nodes, which determines the progress of the pods' work.

    Rule R7: ``colocation``, which implements it, imports this module.
    """

    def started(self, run: "SimulatedPod") -> None:
        """Add a pod that starts or restarts its work."""

    def stopped(self, run: "SimulatedPod") -> None:
        """Remove a pod that is finished or deleted, or whose node has failed."""

    def work_left_s(self, run: "SimulatedPod") -> float:
        """Return the least time until the pod's work is done; 0 if it is."""

    def node_failed(self, node: str) -> None:
        """Record a node failure; ``stopped`` is called for each of its pods."""

    def node_back(self, node: str) -> None:
        """Record the repair of a node; ``started`` is called for each of its pods."""


class EvictingController(Protocol):
    """Controller that runs beside the scheduler and evicts pods."""

    def step(self) -> bool:
        """Do the due work and report evictions to the world; return whether there was work."""

    def next_wakeup_s(self) -> float | None:
        """Return the time of the next due work without further events; None if there is none."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Submission of a pod by its owner at a time."""

    at_s: float
    pod: Pod
    kind: str = ""  # workload kind for reports
    life: PodLife = ENDLESS
    group: PodGroup | None = None  # gang of the pod; deleted with its last member
    usage: UsageCurve = WHOLE


@dataclass(slots=True, eq=False)
class SimulatedPod:
    """State of one pod object, written by the world only."""

    submission: Submission
    pod: Pod  # as created
    times: int  # number of resubmissions before this pod
    submitted_s: float
    stage: PodStage = PodStage.PENDING
    node: str = ""
    bound_s: float | None = None
    ended_s: float | None = None
    why: str = ""  # condition message of the last failed attempt
    reason: str = ""  # reason of that attempt, equal for similar pods
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the bind, such as devices
    moves: int = 0  # resubmissions after moves, which the owner's limit does not count
    left: Eviction | None = None  # eviction of the pod that this one replaces after a move

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.pod.key


@dataclass(slots=True, eq=False)
class _NodeRun:
    stage: NodeStage
    pods: dict[str, SimulatedPod]
    outage: int = 0  # number of the current or last outage; identifies events of older outages


#: Time, rank, sequence number, action; the sequence number is unique, so actions never compare.
_Event = tuple[float, int, int, Callable[[], None]]


class World:
    """Simulated cluster; see the module docstring.

    ``stopwatch``       clock that measures the scheduler's time
    ``grace_period_s``  time from a node's failure to its unreachable taint
    ``keep_finished``   keep finished pods as objects with phase Succeeded; otherwise delete them
    ``source``          name of the configuration in errors
    ``admission``       admission steps before objects are stored
    ``audit``           audit trail of the scheduler's decisions
    ``times_plugins``   record plugin times in the audit trail
    ``reports``         write pod conditions and events, as in a cluster
    ``on_fault``        handler of unexpected exceptions; by default they are raised

    Raises InputError for an unknown name in the configuration.
    """

    def __init__(
        self,
        configuration: KubeSchedulerConfiguration = STOCK,
        *,
        stopwatch: Clock | None = None,
        grace_period_s: float = GRACE_PERIOD_S,
        keep_finished: bool = False,
        out_of_tree: Iterable[PluginSpec[Any]] = (),
        source: str = "",
        admission: Sequence[Admission] = DEFAULT_ADMISSION,
        audit: Audit | None = None,
        times_plugins: bool = True,
        reports: bool = False,
        gates: FeatureGates = NO_GATES,
        on_fault: FaultHandler = raise_fault,
    ) -> None:
        options = SchedulerOptions(
            initial_backoff_s=configuration.pod_initial_backoff_seconds,
            max_backoff_s=configuration.pod_max_backoff_seconds,
            report=reports,
        )
        self.embedded = Embedded(
            configuration,
            options=options,
            admission=admission,
            out_of_tree=out_of_tree,
            source=source,
            metrics=_metrics() if audit is not None and times_plugins else None,
            audit=audit,
            gates=gates,
            on_fault=on_fault,
        )
        self.cluster = self.embedded.cluster
        self.scheduler = self.embedded.scheduler
        #: Time of the scheduler so far, by the stopwatch.
        self.scheduling_s = 0.0
        #: Pods that have not ended, by namespace/name.
        self.pods: dict[str, SimulatedPod] = {}
        #: All pods in order of submission.
        self.history: list[SimulatedPod] = []
        #: Number of pods in ``history`` by stage.
        self.counts: Counter[PodStage] = Counter()
        self._observer: RunObserver = _NullObserver()
        self._node_model: SimulatedNodes | None = None
        self._descheduler: EvictingController | None = None
        self.arrivals = 0  # submitted pods, without resubmissions
        self._recorder: Recorder | None = None
        self._decision_callback: Callable[[ClusterState, float], None] = lambda *_: None
        self._stopwatch = stopwatch or SystemClock()
        self._grace_period_s = grace_period_s
        self._keep_finished = keep_finished
        self._nodes: dict[str, _NodeRun] = {}
        self._members: Counter[str] = Counter()  # members that may still run, by PodGroup
        self._events: list[_Event] = []
        self._sequence = count()
        self._wakeup_s = math.inf
        self._next_sample_s = 0.0
        self._sampled_s = -math.inf

    @property
    def now_s(self) -> float:
        """Virtual time; starts at 0."""
        return self.embedded.clock.now_s()

    def set_observer(self, observer: RunObserver) -> None:
        """Set the observer of further events."""
        self._observer = observer

    def on_decisions(self, callback: Callable[[ClusterState, float], None]) -> None:
        """Set the callback for the scheduler's state and the time after each of its steps."""
        self._decision_callback = callback

    def attach_nodes(self, model: SimulatedNodes) -> None:
        """Set the model that determines the speed of pods; without one all run at full speed."""
        self._node_model = model

    def attach_descheduler(self, descheduler: EvictingController) -> None:
        """Set a controller that evicts pods; further running pods get the condition Ready."""
        self._descheduler = descheduler

    def record(self, write: Callable[[bytes], object], configuration: JsonObject) -> None:
        """Start writing the objects, and further events of the scheduler, as a recording.

        Call it after ``load``, so that nodes have the order of the scheduler's ranking.
        """
        clock = self.embedded.clock
        self._recorder = Recorder(self.cluster, clock, write, configuration=configuration)
        self._recorder.step()

    # -- planned events ----------------------------------------------------------------------

    def load(self, objects: Iterable[KubeObject]) -> None:
        """Add the initial objects: nodes and everything that scheduling reads except pods."""
        objects = [with_defaults(obj) for obj in objects]
        for obj in objects:
            if isinstance(obj, Pod):
                raise BugError(f"pod {obj.key} must be submitted, not loaded")
            if isinstance(obj, Node):
                self._nodes[obj.metadata.name] = _NodeRun(NodeStage.READY, {})
        self.embedded.load(objects)

    def rank_nodes(self, ranks: Mapping[str, int]) -> None:
        """Set which of equally good nodes wins: the one with the lowest rank."""
        self.scheduler.step()  # takes in the nodes
        self.embedded.state.set_ranks(dict(ranks))

    def submit(self, submissions: Iterable[Submission]) -> None:
        """Plan submissions; submissions of one moment keep the given order."""
        for submission in submissions:
            self._submit_later(submission.at_s, submission)

    def fail_node(self, at_s: float, node: str, repaired_after_s: float = math.inf) -> None:
        """Plan a node failure, which has no effect if the node is down at that time."""
        if node not in self._nodes:
            raise BugError(f"there is no node {node!r} that could fail")
        self.at(at_s, partial(self._fail, node, repaired_after_s), EventOrder.NODE)

    def change(self, at_s: float, obj: KubeObject, *, is_deleted: bool) -> None:
        """Plan the creation, change or deletion of an object other than a pod."""
        self.at(at_s, partial(self._change, obj, is_deleted), EventOrder.NODE)

    def _change(self, obj: KubeObject, is_deleted: bool) -> None:
        meta = obj.metadata
        try:
            stored = self.cluster.get(type(obj), meta.name, meta.namespace)
        except NotFoundError:
            if not is_deleted:
                if isinstance(obj, Node):
                    self._nodes[meta.name] = _NodeRun(NodeStage.READY, {})
                self.cluster.load([obj])
            return
        if is_deleted:
            self.cluster.force_delete(stored)
            if isinstance(obj, Node):
                for run in list(self._nodes[meta.name].pods.values()):
                    self._delete(run)
                    self._end_deleted(run)
            return
        version = stored.metadata.resource_version
        changed = replace(obj, metadata=replace(meta, resource_version=version))
        if changed != stored:
            self.cluster.overwrite(changed)

    def at(
        self, time_s: float, action: Callable[[], None], rank: EventOrder = EventOrder.SUBMIT
    ) -> None:
        """Plan an event.  Raises BugError for a time in the past."""
        if time_s < self.now_s:
            raise BugError(f"an event must not be before {self.now_s}, got {time_s}")
        if time_s < math.inf:
            heapq.heappush(self._events, (time_s, rank, next(self._sequence), action))

    # -- time --------------------------------------------------------------------------------

    def run(
        self,
        until_s: float,
        *,
        sample_every_s: float = math.inf,
        on_sample: Callable[["World"], None] | None = None,
    ) -> None:
        """Run all events up to and including ``until_s``; a further call continues from there.

        ``on_sample`` is called at 0, at every multiple of the interval, and at the end, after all
        other events of that moment.
        """
        while (time_s := self._next_s()) <= until_s:
            self.embedded.clock.advance_to(time_s)
            if self._is_due() or self._wakeup_s <= time_s:
                while self._is_due():
                    heapq.heappop(self._events)[3]()
                self._schedule()
            else:
                self._next_sample_s += sample_every_s
                self._sample(on_sample)
        self.embedded.clock.advance_to(until_s)
        if self._sampled_s < until_s:
            self._sample(on_sample)

    def _next_s(self) -> float:
        event_s = self._events[0][0] if self._events else math.inf
        return min(event_s, self._wakeup_s, self._next_sample_s)

    def _is_due(self) -> bool:
        return bool(self._events) and self._events[0][0] <= self.now_s

    def _sample(self, on_sample: Callable[["World"], None] | None) -> None:
        self._sampled_s = self.now_s
        if on_sample is not None:
            on_sample(self)

    def _schedule(self) -> None:
        """Run the scheduler, controllers and descheduler until none of them has work."""
        while True:
            self._step_recorder()
            began_s = self._stopwatch.now_s()
            outcomes = self.scheduler.step()
            self.scheduling_s += self._stopwatch.now_s() - began_s
            self._step_recorder()
            self._decision_callback(self.scheduler.state, self.now_s)
            evicted = {outcome.pod for outcome in outcomes if isinstance(outcome, Evicted)}
            for outcome in outcomes:
                # A pod that was bound and evicted in the same step has never run.
                if not (isinstance(outcome, Bound) and outcome.pod in evicted):
                    self._apply(outcome)
            busy = self.embedded.step_controllers() or bool(evicted)
            busy |= self._descheduler is not None and self._descheduler.step()
            if not busy:
                break
        wakeups_s = [self.scheduler.next_wakeup_s()]
        if self._descheduler is not None:
            wakeups_s.append(self._descheduler.next_wakeup_s())
        self._wakeup_s = min((at_s for at_s in wakeups_s if at_s is not None), default=math.inf)

    def _step_recorder(self) -> None:
        if self._recorder is not None:
            self._recorder.step()

    def _apply(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Evicted) and outcome.reservation:
            return  # the reserve pod of a reservation is not simulated
        run = self.pods[outcome.pod]
        if isinstance(outcome, Bound):
            run.annotations = outcome.annotations
            self._start(run, outcome.node)
        elif isinstance(outcome, Evicted):
            self._observer.event(self.now_s, f"{outcome.pod} made room for {outcome.by}")
            self._end_deleted(run)
        else:
            run.why, run.reason = outcome.message, outcome.reason
            if run.submission.life.gives_up:
                self._give_up(run)

    # -- pods --------------------------------------------------------------------------------

    def _submit(self, submission: Submission, times: int, moves: int = 0) -> SimulatedPod:
        self._join(submission, times)
        pod = with_defaults(submission.pod)
        if times:
            name = resubmitted_name(pod.metadata.name, times)
            pod = replace(pod, metadata=replace(pod.metadata, name=name))
        run = SimulatedPod(submission, self.cluster.create(pod), times, self.now_s)
        run.moves = moves
        create_ephemeral_claims(self.cluster, run.pod)
        run.annotations = run.pod.metadata.annotations
        self.pods[run.key] = run
        self.history.append(run)
        self.counts[run.stage] += 1
        notify = self._observer.resubmitted if times else self._observer.submitted
        self.arrivals += not times
        notify(submission.kind)
        if run.pod.spec.node_name in self._nodes:  # it was placed before the run
            self._start(run, run.pod.spec.node_name)
        return run

    def _give_up(self, run: SimulatedPod) -> None:
        """Delete a pod that found no node, and that its owner would not keep pending."""
        self._delete(run)
        self._end(run, PodEvent.DELETED)
        self._observer.failed(run.submission.kind)
        self._leave(run.submission)

    def _start(self, run: SimulatedPod, node: str) -> None:
        host = self._nodes[node]
        host.pods[run.key] = run
        run.node, run.bound_s, run.why = node, self.now_s, ""
        self._observer.scheduled(run.submission.kind, self.now_s - run.submitted_s)
        if host.stage is NodeStage.READY:
            self._move(run, PodEvent.BOUND)
            self._work(run)
        else:
            self._move(run, PodEvent.BOUND_TO_FAILED_NODE)

    def _work(self, run: SimulatedPod) -> None:
        """Mark the pod as running and plan its end, which a failure of the node cancels."""
        if not run.submission.life.gives_up or self._descheduler is not None:
            self._set_phase(run, "Running")
        if self._node_model is not None:
            self._node_model.started(run)
        host = self._nodes[run.node]
        self.at(
            self.now_s + run.submission.life.work_s,
            partial(self._finish, run, host.outage),
            EventOrder.END,
        )

    def _finish(self, run: SimulatedPod, outage: int) -> None:
        if run.stage is not PodStage.RUNNING or self._nodes[run.node].outage != outage:
            return
        left_s = self._node_model.work_left_s(run) if self._node_model is not None else 0.0
        if left_s > 0:
            self.at(self.now_s + left_s, partial(self._finish, run, outage), EventOrder.END)
            return
        self._end(run, PodEvent.DONE)
        if self._keep_finished or self._recorder is not None:
            # A replay reproduces the run time of a pod that ended, not of one that was deleted.
            self._set_phase(run, "Succeeded")
        if not self._keep_finished:
            self._delete(run)
        self._leave(run.submission)
        self._observer.finished(run.submission.kind)

    def _end_deleted(self, run: SimulatedPod) -> None:
        """End a deleted pod; its owner resubmits it within its limit."""
        self._end(run, PodEvent.DELETED)
        submission, times = run.submission, run.times + 1
        self._observer.failed(submission.kind)
        if times - run.moves <= submission.life.resubmissions:
            again_s = self.now_s + submission.life.resubmit_after_s
            self._submit_later(again_s, submission, times, run.moves)
        else:
            self._leave(submission)

    def _submit_later(
        self, at_s: float, submission: Submission, times: int = 0, moves: int = 0
    ) -> None:
        def submit() -> None:
            self._submit(submission, times, moves)

        self.at(at_s, submit, EventOrder.SUBMIT)

    def moved(self, key: str) -> None:
        """End a pod that the descheduler has evicted; its owner resubmits it immediately."""
        run = self.pods[key]
        ran_s = 0.0 if run.bound_s is None else self.now_s - run.bound_s
        left = Eviction(run.node, self.now_s, ran_s)
        self._end(run, PodEvent.DELETED)
        self._observer.failed(run.submission.kind)
        self._submit(run.submission, run.times + 1, run.moves + 1).left = left

    def _join(self, submission: Submission, times: int) -> None:
        """Create the PodGroup before its first member."""
        group = submission.group
        if group is None or times:
            return
        if group.key not in self._members:
            self.cluster.create(group)
        self._members[group.key] += 1

    def _leave(self, submission: Submission) -> None:
        """Delete the PodGroup after its last member."""
        group = submission.group
        if group is None:
            return
        self._members[group.key] -= 1
        if not self._members[group.key]:
            del self._members[group.key]
            self.cluster.delete(PodGroup, group.metadata.name, group.metadata.namespace)

    def _end(self, run: SimulatedPod, event: PodEvent) -> None:
        self._stop(run)
        self._move(run, event)
        run.ended_s = self.now_s
        del self.pods[run.key]
        if run.node:
            del self._nodes[run.node].pods[run.key]

    def _stop(self, run: SimulatedPod) -> None:
        if self._node_model is not None and run.stage is PodStage.RUNNING:
            self._node_model.stopped(run)

    def _move(self, run: SimulatedPod, event: PodEvent) -> None:
        self.counts[run.stage] -= 1
        run.stage = next_pod_stage(run.stage, event, run.key)
        self.counts[run.stage] += 1

    def _set_phase(self, run: SimulatedPod, phase: str) -> None:
        meta = run.pod.metadata
        pod = self.cluster.get(Pod, meta.name, meta.namespace)
        start_time = pod.status.start_time or to_datetime(self.now_s)
        status = replace(pod.status, phase=phase, start_time=start_time)
        if self._descheduler is not None and phase == "Running":
            status = replace(status, conditions=RUNNING_CONDITIONS)
        self.cluster.update_status(replace(pod, status=status))

    def _delete(self, run: SimulatedPod) -> None:
        meta = run.pod.metadata
        self.cluster.delete(Pod, meta.name, meta.namespace, grace_period_s=0)

    def evict(self, key: str) -> None:
        """Evict a pod (``namespace/name``); its owner resubmits it within its limit."""
        run = self.pods[key]
        self._delete(run)
        self._end_deleted(run)

    # -- nodes -------------------------------------------------------------------------------

    def _fail(self, name: str, repaired_after_s: float) -> None:
        host = self._nodes[name]
        if not self._move_node(host, NodeEvent.FAILED):
            return
        host.outage += 1
        self._observer.node_failed(self.now_s, f"{name} failed with {len(host.pods)} pods")
        for run in host.pods.values():
            self._stop(run)
            self._move(run, PodEvent.NODE_FAILED)
        if self._node_model is not None:
            self._node_model.node_failed(name)
        noticed = partial(self._notice, name, host.outage)
        self.at(self.now_s + self._grace_period_s, noticed, EventOrder.NODE)
        self.at(self.now_s + repaired_after_s, partial(self._repair, name), EventOrder.NODE)

    def _notice(self, name: str, outage: int) -> None:
        host = self._nodes[name]
        if host.outage != outage or not self._move_node(host, NodeEvent.NOTICED):
            return
        self._write_node(unreachable(self.cluster.get(Node, name), self.now_s))
        for run in host.pods.values():
            leave_s = self.now_s + seconds_tolerated(run.pod.spec.tolerations)
            self.at(leave_s, partial(self._evict_from_failed, run, outage), EventOrder.DELETE)

    def _evict_from_failed(self, run: SimulatedPod, outage: int) -> None:
        if run.stage is PodStage.INTERRUPTED and self._nodes[run.node].outage == outage:
            self._delete(run)
            self._end_deleted(run)

    def _repair(self, name: str) -> None:
        host = self._nodes[name]
        was_unreachable = host.stage is NodeStage.UNREACHABLE
        if not self._move_node(host, NodeEvent.REPAIRED):
            return
        if was_unreachable:
            self._write_node(reachable(self.cluster.get(Node, name), self.now_s))
        self._observer.event(self.now_s, f"{name} is back")
        if self._node_model is not None:
            self._node_model.node_back(name)
        for run in host.pods.values():
            self._move(run, PodEvent.NODE_BACK)
            self._work(run)

    @staticmethod
    def _move_node(host: _NodeRun, event: NodeEvent) -> bool:
        stage = next_node_stage(host.stage, event)
        if stage is None:
            return False
        host.stage = stage
        return True

    def _write_node(self, node: Node) -> None:
        stored = self.cluster.update(node)
        self.cluster.update_status(replace(stored, status=node.status))

    # -- queries -----------------------------------------------------------------------------

    def nodes_down(self) -> Sequence[str]:
        """Return the names of the failed nodes, noticed or not."""
        return [name for name, host in self._nodes.items() if host.stage is not NodeStage.READY]


def _metrics() -> "SchedulerMetrics":
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 -- only for runs with metrics

    from koordinator.scheduler.features.metrics import SchedulerMetrics  # noqa: PLC0415 -- as above

    return SchedulerMetrics(CollectorRegistry())


class _NullObserver:
    """Observer that ignores all events."""

    def submitted(self, kind: str) -> None: ...
    def resubmitted(self, kind: str) -> None: ...
    def scheduled(self, kind: str, waited_s: float) -> None: ...
    def finished(self, kind: str) -> None: ...
    def failed(self, kind: str) -> None: ...
    def event(self, time_s: float, text: str) -> None: ...
    def node_failed(self, time_s: float, text: str) -> None: ...
