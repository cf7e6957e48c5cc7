"""Handle of a scheduler for its features: the parts below the loop, and how they are built."""

from collections.abc import Iterable, Mapping

from koordinator.api.kubescheduler.gates import (
    GENERIC_WORKLOAD,
)
from koordinator.cluster.port import Cluster
from koordinator.cluster.reconcile import SyncedWatch
from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Binder, Bindings
from koordinator.scheduler.contract import Action, EventHint
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.diagnosis import NODE_COUNT
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.loop.attempts import Attempts
from koordinator.scheduler.loop.diagnoses import Diagnoses
from koordinator.scheduler.loop.evictions import PreemptionExecutor
from koordinator.scheduler.loop.gates import Gates
from koordinator.scheduler.loop.hooks import Hooks
from koordinator.scheduler.loop.intake import PodIntake
from koordinator.scheduler.loop.kubelet_rejections import KubeletRejections
from koordinator.scheduler.loop.nominations import Nominations
from koordinator.scheduler.loop.options import SchedulerOptions
from koordinator.scheduler.loop.reporter import Reporter
from koordinator.scheduler.queue import Nominator, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState


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
