"""A virtual cluster in virtual time: pods come, run and end; nodes fail and are repaired.

Plays everybody whom the scheduler meets: the owners that submit pods, the kubelets that run them,
the control plane that notices dead nodes and takes their pods away.  How they behave is data
(``stages.py``).  The scheduler is the real one and sees only the API of the in-memory cluster.

Rules: time never goes back.  Events are ordered by time, rank and the order in which they were
planned, so a run repeats exactly.  After the events of one moment the scheduler works until it has
nothing left to do; what it decides is a reply to what has happened by then, and what follows from
it lies at or after that moment.  The wall clock is read only to measure how long the scheduler
takes.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
from koordinator.api.pod_group import PodGroup
from koordinator.cluster.memory.admission import Admission
from koordinator.foundation.clock import Clock, SystemClock, to_datetime
from koordinator.foundation.errors import BugError
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.loop import Bound, Evicted, Outcome, SchedulerOptions
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.embedded import DEFAULT_ADMISSION, STOCK, Embedded
from koordinator.simulator.ephemeral_claims import create_ephemeral_claims
from koordinator.simulator.evictions import Eviction
from koordinator.simulator.recorder import Recorder
from koordinator.simulator.stages import (
    ENDLESS,
    GRACE_PERIOD_S,
    RUNNING_CONDITIONS,
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
from koordinator.simulator.usage import WHOLE, UsageProfile

if TYPE_CHECKING:
    from koordinator.scheduler.features.metrics import SchedulerMetrics


class Rank(IntEnum):
    """What goes first at one moment."""

    END = 0  # pods that are done free their places
    NODE = 1  # a node that is back in time keeps its pods
    DELETE = 2
    SUBMIT = 3
    HOSTS = 4  # what runs by then is measured


class RunObserver(Protocol):
    """Is told what happens; ``simulator.run_report.RunRecorder`` is one."""

    def submitted(self, kind: str) -> None: ...
    def resubmitted(self, kind: str) -> None: ...
    def scheduled(self, kind: str, waited_s: float) -> None: ...
    def finished(self, kind: str) -> None: ...
    def failed(self, kind: str) -> None: ...
    def event(self, time_s: float, text: str) -> None: ...
    def node_failed(self, time_s: float, text: str) -> None: ...


class Hosts(Protocol):
    """Is told which pods run where; says how far their work has come."""

    def started(self, run: "SimulatedPod") -> None:
        """Take in a pod that begins its work, or begins it anew."""

    def stopped(self, run: "SimulatedPod") -> None:
        """Forget a pod that works no more: it is done, gone, or its node has failed."""

    def work_left_s(self, run: "SimulatedPod") -> float:
        """Return after how long its work may be done; 0 if it is."""

    def node_failed(self, node: str) -> None:
        """Take note that nothing runs on a node any more; its pods are stopped one by one."""

    def node_back(self, node: str) -> None:
        """Take note that a node works again; its pods are started one by one."""


class Mover(Protocol):
    """Works beside the scheduler, and evicts."""

    def step(self) -> bool:
        """Do what is due, telling the world of evictions; return whether there was anything."""

    def next_wakeup_s(self) -> float | None:
        """Return when something is due although nothing happens; None if never."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A pod that its owner wants to run from some moment on."""

    at_s: float
    pod: Pod
    kind: str = ""  # of workload, for reports
    life: PodLife = ENDLESS
    group: PodGroup | None = None  # of which the pod is a member; it goes with the last of them
    usage: UsageProfile = WHOLE


@dataclass(slots=True, eq=False)
class SimulatedPod:
    """One pod object and what became of it.  Only the world writes to it; others read."""

    submission: Submission
    pod: Pod  # as created
    times: int  # how often it was submitted again before this one
    submitted_s: float
    stage: PodStage = PodStage.PENDING
    node: str = ""
    bound_s: float | None = None
    ended_s: float | None = None
    why: str = ""  # it is still pending, as of the last attempt: the pod's condition
    moves: int = 0  # of ``times``: evicted to be moved, which its owner does not count
    left: Eviction | None = None  # of the pod whose place it takes, if that was to be moved

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.pod.key


@dataclass(slots=True, eq=False)
class _NodeRun:
    stage: NodeStage
    pods: dict[str, SimulatedPod]
    outage: int = 0  # number of the current or last one


_Event = tuple[float, int, int, Callable[[], None]]  # the sequence is unique: actions don't compare


class World:
    """See the module.

    ``stopwatch``       times the scheduler
    ``grace_period_s``  from a node's failure until the control plane notices
    ``keep_finished``   pods that are done stay as objects, marked Succeeded; else they are deleted
    ``source``          names the configuration in errors
    ``admission``       what becomes of objects before they are stored
    ``audit``           remembers what the scheduler decides
    ``times_plugins``   and what plugins take
    ``reports``         the scheduler writes conditions of pods and events, as in a cluster

    Raises InputError for a configuration that names what isn't there.
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
        )
        self.cluster = self.embedded.cluster
        self.scheduler = self.embedded.scheduler
        self.scheduling_s = 0.0  # so far, on the stopwatch
        self.pods: dict[str, SimulatedPod] = {}  # those that have not ended, by namespace/name
        self.history: list[SimulatedPod] = []  # all, in the order of submission
        self.counts: Counter[PodStage] = Counter()  # pods of the history by stage
        self._journal: RunObserver = _Nobody()
        self._hosts: Hosts | None = None
        self._mover: Mover | None = None
        self.arrivals = 0  # pods that came so far, without those that take another one's place
        self._recorder: Recorder | None = None
        self._looks: Callable[[ClusterState, float], None] = lambda *_: None
        self._stopwatch = stopwatch or SystemClock()
        self._grace_period_s = grace_period_s
        self._keep_finished = keep_finished
        self._nodes: dict[str, _NodeRun] = {}
        self._members: Counter[str] = Counter()  # by PodGroup: those that are not done for good
        self._events: list[_Event] = []
        self._sequence = count()
        self._wakeup_s = math.inf
        self._next_sample_s = 0.0
        self._sampled_s = -math.inf

    @property
    def now_s(self) -> float:
        """Virtual time; starts at 0."""
        return self.embedded.clock.now_s()

    def tell(self, journal: RunObserver) -> None:
        """Tell this journal, and no other any more, what happens from now on."""
        self._journal = journal

    def watch(self, look: Callable[[ClusterState, float], None]) -> None:
        """Let somebody look at the scheduler's state whenever it has decided, and at what time."""
        self._looks = look

    def house(self, hosts: Hosts) -> None:
        """Let the hosts decide how fast pods work; without any all work at full speed."""
        self._hosts = hosts

    def employ(self, mover: Mover) -> None:
        """Let somebody evict pods that shall run elsewhere; from now on running pods are ready."""
        self._mover = mover

    def record(self, write: Callable[[bytes], object], configuration: JsonObject) -> None:
        """Write what exists, and from now on what reaches the scheduler, as lines of a recording.

        To be called when everything is loaded: nodes are in it as the scheduler ranks them.
        """
        clock = self.embedded.clock
        self._recorder = Recorder(self.cluster, clock, write, configuration=configuration)
        self._recorder.step()

    # -- what will happen --------------------------------------------------------------------

    def load(self, objects: Iterable[KubeObject]) -> None:
        """Add what exists from the beginning: nodes and whatever scheduling reads, but no pods."""
        objects = [with_defaults(obj) for obj in objects]
        for obj in objects:
            if isinstance(obj, Pod):
                raise BugError(f"pod {obj.key} must be submitted, not loaded")
            if isinstance(obj, Node):
                self._nodes[obj.metadata.name] = _NodeRun(NodeStage.READY, {})
        self.embedded.load(objects)

    def submit(self, submissions: Iterable[Submission]) -> None:
        """Plan that pods are submitted; those of one moment in the given order."""
        for submission in submissions:
            self._submit_later(submission.at_s, submission)

    def fail_node(self, at_s: float, node: str, repaired_after_s: float = math.inf) -> None:
        """Plan that a node fails; if it is down at that time, nothing happens."""
        if node not in self._nodes:
            raise BugError(f"there is no node {node!r} that could fail")
        self.at(at_s, partial(self._fail, node, repaired_after_s), Rank.NODE)

    def at(self, time_s: float, action: Callable[[], None], rank: Rank = Rank.SUBMIT) -> None:
        """Plan anything else.  Raises BugError for a time before now: it would change the past."""
        if time_s < self.now_s:
            raise BugError(f"an event must not lie before {self.now_s}. Got {time_s}.")
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
        """Let time pass up to and including ``until_s``; may be called again to go on.

        ``on_sample`` is called at 0, then at every multiple of the interval, and at the end: always
        after all that happens at that moment.
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
        """Let the scheduler reply to the events, and to its own evictions."""
        while True:
            self._write_down()
            began_s = self._stopwatch.now_s()
            outcomes = self.scheduler.step()
            self.scheduling_s += self._stopwatch.now_s() - began_s
            self._write_down()
            self._looks(self.scheduler.state, self.now_s)
            evicted = {outcome.pod for outcome in outcomes if isinstance(outcome, Evicted)}
            for outcome in outcomes:
                if not (isinstance(outcome, Bound) and outcome.pod in evicted):
                    self._take_in(outcome)  # what has gone again by now has never run
            busy = self.embedded.step_controllers() or bool(evicted)
            busy |= self._mover is not None and self._mover.step()
            if not busy:
                break
        wakeups_s = [self.scheduler.next_wakeup_s()]
        if self._mover is not None:
            wakeups_s.append(self._mover.next_wakeup_s())
        self._wakeup_s = min((at_s for at_s in wakeups_s if at_s is not None), default=math.inf)

    def _write_down(self) -> None:
        if self._recorder is not None:
            self._recorder.step()

    def _take_in(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Evicted) and outcome.reservation:
            return  # the pod only stands for it
        run = self.pods[outcome.pod]
        if isinstance(outcome, Bound):
            self._start(run, outcome.node)
        elif isinstance(outcome, Evicted):
            self._journal.event(self.now_s, f"{outcome.pod} made room for {outcome.by}")
            self._lose(run)
        else:
            run.why = outcome.message

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
        self.pods[run.key] = run
        self.history.append(run)
        self.counts[run.stage] += 1
        told = self._journal.resubmitted if times else self._journal.submitted
        self.arrivals += not times
        told(submission.kind)
        return run

    def _start(self, run: SimulatedPod, node: str) -> None:
        host = self._nodes[node]
        host.pods[run.key] = run
        run.node, run.bound_s, run.why = node, self.now_s, ""
        self._journal.scheduled(run.submission.kind, self.now_s - run.submitted_s)
        if host.stage is NodeStage.READY:
            self._move(run, PodEvent.BOUND)
            self._work(run)
        else:
            self._move(run, PodEvent.BOUND_TO_FAILED_NODE)

    def _work(self, run: SimulatedPod) -> None:
        """Report the pod as running and plan its end, which the node's next failure cancels."""
        self._set_phase(run, "Running")
        if self._hosts is not None:
            self._hosts.started(run)
        host = self._nodes[run.node]
        self.at(
            self.now_s + run.submission.life.work_s,
            partial(self._finish, run, host.outage),
            Rank.END,
        )

    def _finish(self, run: SimulatedPod, outage: int) -> None:
        if run.stage is not PodStage.RUNNING or self._nodes[run.node].outage != outage:
            return
        left_s = self._hosts.work_left_s(run) if self._hosts is not None else 0.0
        if left_s > 0:
            self.at(self.now_s + left_s, partial(self._finish, run, outage), Rank.END)
            return
        self._end(run, PodEvent.DONE)
        if self._keep_finished or self._recorder is not None:
            # In a replay a pod runs as long as it did if it ended, not if somebody deleted it.
            self._set_phase(run, "Succeeded")
        if not self._keep_finished:
            self._delete(run)
        self._leave(run.submission)
        self._journal.finished(run.submission.kind)

    def _lose(self, run: SimulatedPod) -> None:
        """End a pod whose object is gone; its owner submits it again unless it has given up."""
        self._end(run, PodEvent.DELETED)
        submission, times = run.submission, run.times + 1
        self._journal.failed(submission.kind)
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

        self.at(at_s, submit, Rank.SUBMIT)

    def moved(self, key: str) -> None:
        """Take in that somebody has evicted a pod to have it elsewhere.

        Its owner makes another one at once, which begins the work anew.
        """
        run = self.pods[key]
        ran_s = 0.0 if run.bound_s is None else self.now_s - run.bound_s
        left = Eviction(run.node, self.now_s, ran_s)
        self._end(run, PodEvent.DELETED)
        self._journal.failed(run.submission.kind)
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
        if self._hosts is not None and run.stage is PodStage.RUNNING:
            self._hosts.stopped(run)

    def _move(self, run: SimulatedPod, event: PodEvent) -> None:
        self.counts[run.stage] -= 1
        run.stage = next_pod_stage(run.stage, event, run.key)
        self.counts[run.stage] += 1

    def _set_phase(self, run: SimulatedPod, phase: str) -> None:
        meta = run.pod.metadata
        pod = self.cluster.get(Pod, meta.name, meta.namespace)
        start_time = pod.status.start_time or to_datetime(self.now_s)
        status = replace(pod.status, phase=phase, start_time=start_time)
        if self._mover is not None and phase == "Running":
            status = replace(status, conditions=RUNNING_CONDITIONS)
        self.cluster.update_status(replace(pod, status=status))

    def _delete(self, run: SimulatedPod) -> None:
        meta = run.pod.metadata
        self.cluster.delete(Pod, meta.name, meta.namespace, grace_period_s=0)

    def evict(self, key: str) -> None:
        """Take a pod (``namespace/name``) away from its node; its owner submits it again."""
        run = self.pods[key]
        self._delete(run)
        self._lose(run)

    # -- nodes -------------------------------------------------------------------------------

    def _fail(self, name: str, repaired_after_s: float) -> None:
        host = self._nodes[name]
        if not self._move_node(host, NodeEvent.FAILED):
            return
        host.outage += 1
        self._journal.node_failed(self.now_s, f"{name} failed with {len(host.pods)} pods")
        for run in host.pods.values():
            self._stop(run)
            self._move(run, PodEvent.NODE_FAILED)
        if self._hosts is not None:
            self._hosts.node_failed(name)
        noticed = partial(self._notice, name, host.outage)
        self.at(self.now_s + self._grace_period_s, noticed, Rank.NODE)
        self.at(self.now_s + repaired_after_s, partial(self._repair, name), Rank.NODE)

    def _notice(self, name: str, outage: int) -> None:
        host = self._nodes[name]
        if host.outage != outage or not self._move_node(host, NodeEvent.NOTICED):
            return
        self._write_node(unreachable(self.cluster.get(Node, name), self.now_s))
        for run in host.pods.values():
            leave_s = self.now_s + seconds_tolerated(run.pod.spec.tolerations)
            self.at(leave_s, partial(self._take_away, run, outage), Rank.DELETE)

    def _take_away(self, run: SimulatedPod, outage: int) -> None:
        if run.stage is PodStage.INTERRUPTED and self._nodes[run.node].outage == outage:
            self._delete(run)
            self._lose(run)

    def _repair(self, name: str) -> None:
        host = self._nodes[name]
        was_unreachable = host.stage is NodeStage.UNREACHABLE
        if not self._move_node(host, NodeEvent.REPAIRED):
            return
        if was_unreachable:
            self._write_node(reachable(self.cluster.get(Node, name), self.now_s))
        self._journal.event(self.now_s, f"{name} is back")
        if self._hosts is not None:
            self._hosts.node_back(name)
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

    # -- looking -----------------------------------------------------------------------------

    def nodes_down(self) -> Sequence[str]:
        """Return the names of the nodes that have failed and are not repaired, noticed or not."""
        return [name for name, host in self._nodes.items() if host.stage is not NodeStage.READY]


def _metrics() -> "SchedulerMetrics":
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 -- what measures is not loaded

    from koordinator.scheduler.features.metrics import SchedulerMetrics  # noqa: PLC0415 -- … where nobody asks

    return SchedulerMetrics(CollectorRegistry())


class _Nobody:
    """A journal for those who look at the history afterwards."""

    def submitted(self, kind: str) -> None: ...
    def resubmitted(self, kind: str) -> None: ...
    def scheduled(self, kind: str, waited_s: float) -> None: ...
    def finished(self, kind: str) -> None: ...
    def failed(self, kind: str) -> None: ...
    def event(self, time_s: float, text: str) -> None: ...
    def node_failed(self, time_s: float, text: str) -> None: ...
