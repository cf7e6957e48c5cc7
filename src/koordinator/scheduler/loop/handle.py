"""Handle of a scheduler for its features, its options, and PreEnqueue gates."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from koordinator.api.codec import subject_of
from koordinator.api.kube_version import V1_37
from koordinator.api.kubescheduler import NO_GATES, FeatureGates
from koordinator.api.kubescheduler.gates import (
    CROSS_SCHEDULER_NOMINATION,
    DRA_NODE_ALLOCATABLE,
    GENERIC_WORKLOAD,
    POD_LEVEL_RESIZE,
    PRIORITY_TRANSFORMER,
    REPLACE_RESOURCES_TRANSFORMER,
)
from koordinator.api.pod import Pod
from koordinator.cluster.port import Cluster
from koordinator.cluster.reconcile import SyncedWatch
from koordinator.domain.resized_pods import DEFAULT_RULES, ResizeRules
from koordinator.domain.transforms import replaced_resources, with_priority
from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.binding import Binder, Bindings
from koordinator.scheduler.contract import Action, ActivePlugin, EventHint, QueueGate
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.diagnosis import NODE_COUNT
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.loop.attempts import Attempts
from koordinator.scheduler.loop.diagnoses import Diagnoses
from koordinator.scheduler.loop.evictions import PreemptionExecutor
from koordinator.scheduler.loop.hooks import Hooks
from koordinator.scheduler.loop.intake import PodIntake
from koordinator.scheduler.loop.kubelet_rejections import KubeletRejections
from koordinator.scheduler.loop.nominations import Nominations
from koordinator.scheduler.loop.reporter import Reporter
from koordinator.scheduler.queue import Nominator, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState, PodClass


class Gates:
    """Gates of one scheduler.  A gate that fails is closed, and called again after a delay."""

    def __init__(
        self,
        clock: Clock,
        isolation: PluginIsolation,
        reporter: Reporter,
        cycles: Mapping[str, SchedulingCycle],
        hooks: Hooks,
        *,
        state: ClusterState,
        again_after_s: float,
    ) -> None:
        self._clock, self._isolation, self._reporter = clock, isolation, reporter
        self._cycles, self._hooks = cycles, hooks
        self._state = state
        self._plugins: Memo[tuple[ActivePlugin, ...]] = Memo()  # per pod class, which has a profile
        self._again_after_s = again_after_s
        self.retry_at_s: dict[str, float] = {}  # time of the next gate check, by key of the pod

    def check(self, pod: Pod) -> QueueGate | None:
        """Return what keeps a pod out of the queue; None: nothing does."""
        name, gate = "PreEnqueue", None
        try:
            plugins = self._cycles[pod.spec.scheduler_name].profile.pre_enqueue
            known = self._state.unbound.get(pod.key)
            if known is not None and known[0] is pod:
                plugins = self._plugins.of(known[1], _applicable, plugins, known[1])
            for active in plugins:
                name = active.name
                refusal = active.plugin.pre_enqueue(pod, self._state.objects)
                if refusal is not None:
                    gate = QueueGate(name, refusal.reason)
                    break
            for on_gate_result in self._hooks.on_gate_result:
                on_gate_result(pod, gate)
            for name, pre_enqueue in self._hooks.pre_enqueue if gate is None else ():
                refusal = pre_enqueue(pod)
                if refusal is not None:
                    return QueueGate(name, refusal.reason)
        except Exception as error:  # noqa: BLE001 -- reported
            fault = self._isolation.note("pre_enqueue", error, subject_of(pod))
            self.retry_at_s[pod.key] = self._clock.now_s() + self._again_after_s
            with self._isolation.barrier("report", pod):
                self._reporter.report_unschedulable(pod, fault.problem, "SchedulerError")
            return QueueGate(name, fault.problem)
        return gate

    def take_due(self) -> list[str]:
        """Return the pods whose failed gates are due to be checked again."""
        if not self.retry_at_s:
            return []
        now_s = self._clock.now_s()
        due = [key for key, due_s in self.retry_at_s.items() if due_s <= now_s]
        for key in due:
            del self.retry_at_s[key]
        return due

    def next_wakeup_s(self) -> float | None:
        """Return when the next failed gate is checked again."""
        return min(self.retry_at_s.values(), default=None)


def _applicable(plugins: Sequence[ActivePlugin], pod: PodClass) -> tuple[ActivePlugin, ...]:
    return tuple(active for active in plugins if active.applies(pod))


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options of a scheduler; the defaults are kube-scheduler's."""

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 10.0
    max_unschedulable_s: float = 300.0
    report: bool = True  # write events and conditions; conditions of victims are always written
    explain: bool = False  # keep the scorecard of every decision; much slower
    merge_runs: bool = True  # decide runs of identical pods at once; the outcome is the same
    run_limit: int = 4096
    in_flight: int = (
        1024  # binds in flight above which decisions wait until half of them have ended
    )
    #: write the domains to ClusterNetworkTopology; None: if a profile gathers gangs
    writes_network: bool | None = None
    answers_explanations: bool = False  # keeps ScheduleExplanation objects answered
    transforms: tuple[Callable[[Pod], Pod], ...] = ()  # applied to every pod before it is used
    tracks_other_schedulers: bool = False  # counts pods that they have nominated to nodes
    resize: ResizeRules = DEFAULT_RULES
    gates: FeatureGates = NO_GATES
    wall_clock: Clock | None = None  # that times of API objects are compared with; None: the clock

    def with_gates(self, gates: FeatureGates) -> "SchedulerOptions":
        """Return the options as the feature gates that are on change them."""
        transforms = {
            REPLACE_RESOURCES_TRANSFORMER: replaced_resources,
            PRIORITY_TRANSFORMER: with_priority,
        }
        return replace(
            self,
            tracks_other_schedulers=CROSS_SCHEDULER_NOMINATION in gates,
            transforms=tuple(it for gate, it in transforms.items() if gate in gates),
            gates=gates,
            resize=ResizeRules(
                sums_per_pod=gates.level >= V1_37,
                pod_level=POD_LEVEL_RESIZE in gates,
                claims=DRA_NODE_ALLOCATABLE in gates,
            ),
        )

    @property
    def merges(self) -> bool:
        """Whether runs are decided at once: not if each decision is to be explained."""
        return self.merge_runs and not self.explain


@dataclass(frozen=True, slots=True)
class SchedulerHandle:
    """The parts of one scheduler below its loop.

    Features use them and never the loop.  Source of the name: kubernetes
    pkg/scheduler/framework/interface.go ``SchedulerHandle``.
    """

    cluster: Cluster
    watch: SyncedWatch  # of every kind that the scheduler watches
    clock: Clock
    state: ClusterState
    options: SchedulerOptions
    isolation: PluginIsolation
    cycles: Mapping[str, SchedulingCycle]  # by scheduler name
    hooks: Hooks  # hooks of the features, called by the loop and by these parts
    queue: SchedulingQueue
    gates: Gates
    nominator: Nominator
    nominations: Nominations
    reporter: Reporter
    diagnoses: Diagnoses
    kubelet_rejections: KubeletRejections
    binder: Binder
    attempts: Attempts
    bindings: Bindings
    evictions: PreemptionExecutor
    ingest: Ingest
    intake: PodIntake

    @classmethod
    def build(
        cls,
        cluster: Cluster,
        clock: Clock,
        state: ClusterState,
        cycles: Mapping[str, SchedulingCycle],
        isolation: PluginIsolation,
        *,
        watch: SyncedWatch,
        options: SchedulerOptions,
        gates: Mapping[str, Iterable[EventHint]],
        stopwatch: Clock | None = None,
    ) -> "SchedulerHandle":
        """Build the parts; ``gates`` are the gates of features, with the events that open them."""
        hooks = Hooks()
        reporter = Reporter(cluster, clock, enabled=options.report)
        wait_s = options.max_backoff_s
        gate = Gates(clock, isolation, reporter, cycles, hooks, state=state, again_after_s=wait_s)
        hints = {name: ev for cycle in cycles.values() for name, ev in cycle.profile.events.items()}
        hints[NODE_COUNT] = (EventHint("Node", Action.ADD),)
        queue = SchedulingQueue(
            hints | {name: tuple(events) for name, events in gates.items()},
            gate.check,
            initial_backoff_s=options.initial_backoff_s,
            max_backoff_s=options.max_backoff_s,
            max_unschedulable_s=options.max_unschedulable_s,
            has_groups=GENERIC_WORKLOAD in options.gates,
        )
        nominator = Nominator()
        nominations = Nominations(
            clock,
            state,
            queue,
            nominator,
            reporter=reporter,
            hooks=hooks,
            schedulers=frozenset(cycles),
        )
        diagnoses = Diagnoses(state, nominations, explain=options.explain)
        binder = Binder(cluster, state, clock)
        attempts = Attempts(
            clock,
            queue,
            binder,
            reporter=reporter,
            nominations=nominations,
            hooks=hooks,
            isolation=isolation,
            stopwatch=stopwatch,
        )
        bindings = Bindings(
            clock,
            state,
            binder,
            queue=queue,
            cycles=cycles,
            isolation=isolation,
            observer=attempts,
        )
        evictions = PreemptionExecutor(
            cluster,
            clock,
            state,
            reporter,
            queue=queue,
            nominations=nominations,
            bindings=bindings,
            attempts=attempts,
            level=options.gates.level,
        )
        kubelet_rejections = KubeletRejections(clock, state)
        ingest = Ingest(state)
        intake = PodIntake(
            watch,
            clock,
            state,
            queue,
            ingest,
            cycles=cycles,
            isolation=isolation,
            hooks=hooks,
            nominations=nominations,
            bindings=bindings,
            kubelet_rejections=kubelet_rejections,
            tracks_foreign_pods=options.tracks_other_schedulers,
            transforms=options.transforms,
        )
        return cls(
            cluster,
            watch,
            clock,
            state,
            options,
            isolation,
            cycles,
            hooks,
            queue,
            gate,
            nominator,
            nominations,
            reporter,
            diagnoses,
            kubelet_rejections,
            binder,
            attempts,
            bindings,
            evictions,
            ingest,
            intake,
        )
