"""Forks of a scheduler, which place pods in dry runs and bind nothing.

A fork follows the cluster as a standby does.  A dry run changes its state and changes it back, with
the cycles, plugins and features of the real scheduler; nothing is written.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.api.schedule_explanation import ScheduleExplanation
from koordinator.cluster.port import Cluster
from koordinator.domain.placement_fork import Landing
from koordinator.domain.transforms import as_scheduled, reserve_pod_as_scheduled
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import FaultHandler, InputError, raise_fault
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.contract import AllocationResult, PluginSpec
from koordinator.scheduler.cycle import NodeChoice, ReserveRefusal, SchedulingCycle
from koordinator.scheduler.features.explanations import ExplanationFeature
from koordinator.scheduler.features.gangs import GangFeature
from koordinator.scheduler.features.nodes import NodePagesFeature
from koordinator.scheduler.loop import Scheduler, SchedulerOptions
from koordinator.scheduler.profile import WATCHED, build_profiles, watched_kinds
from koordinator.scheduler.rules.reservations import lifecycle
from koordinator.scheduler.rules.reservations.offer import offer_of
from koordinator.scheduler.snapshot import ClusterState, PlacedPod, PodAllocation, PodClass
from koordinator.scheduler.transaction import Transaction

#: Kinds that a fork reads besides nodes, pods and namespaces, with all gates on.
FOLLOWED: Final[tuple[type[KubeObject], ...]] = tuple(
    kind for kind in WATCHED if kind is not ScheduleExplanation
)


class SchedulerFork:
    """Fulfils ``domain.placement_fork.PlacementFork``."""

    def __init__(self, scheduler: Scheduler) -> None:
        """``scheduler`` follows the cluster for this fork alone."""
        self._scheduler = scheduler

    @property
    def is_ready(self) -> bool:
        """Whether everything that exists has been taken in."""
        return self._scheduler.is_synced

    @property
    def scheduler_names(self) -> AbstractSet[str]:
        """Names of the schedulers whose pods can be tried."""
        return self._scheduler.cycles.keys()

    def follow(self) -> None:
        """Apply the events of the cluster.  Raises ClusterError if it can't be read."""
        self._scheduler.step(limit=0)

    def refresh(self) -> None:
        """Apply all events up to now; ``is_ready`` turns True when that is done."""
        self._scheduler.sync()

    @contextmanager
    def world(self) -> Iterator["ForkedState"]:
        """Yield a world like the cluster, and undo everything that was done in it."""
        with Transaction(self._scheduler.state) as transaction:
            yield ForkedState(self._scheduler, transaction)


class ForkedState:
    """Fulfils ``domain.placement_fork.ForkedWorld``, on the state itself."""

    def __init__(self, scheduler: Scheduler, transaction: Transaction) -> None:
        self._handle, self._state = scheduler.handle, scheduler.state
        self._gangs = scheduler.feature(GangFeature)
        self._transaction = transaction
        self._removed: dict[str, PlacedPod] = {}

    @contextmanager
    def attempt(self) -> Iterator["ForkAttempt"]:
        """Undo the changes within the context, the last first, unless they are kept."""
        attempt, mark = ForkAttempt(), self._transaction.mark()
        try:
            yield attempt
        finally:
            if not attempt.kept:
                self._transaction.rollback(mark)

    def schedules(self, pod: Pod) -> bool:
        """Return whether some profile is for such pods."""
        return as_scheduled(pod).spec.scheduler_name in self._handle.cycles

    def node_of(self, key: str) -> str:
        """Return the node of a pod; empty if it has none."""
        placed = self._state.pods.by_key.get(key)
        return "" if placed is None else self._state.nodes.names[placed.row]

    def gang_of(self, pod: Pod) -> Sequence[str]:
        """Return the keys of all that have nodes and start with the pod, itself among them."""
        for cache in self._gangs.caches if self._gangs is not None else ():
            if cache.gang_of(pod) is not None:
                return sorted(cache.with_places(pod))
        return ()

    def cordon(self, node: str) -> None:
        """Cordon a node."""
        row = self._state.nodes.rows.get(node)
        before = None if row is None else self._state.nodes.objects[row]
        if before is not None and not before.spec.unschedulable:
            closed = replace(before, spec=replace(before.spec, unschedulable=True))
            self._state.put_node(closed)
            self._undo(lambda: self._state.put_node(before))

    def remove(self, key: str) -> bool:
        """Take a pod off its node; return whether there was one of that key."""
        placed = self._state.pods.by_key.get(key)
        if placed is None:
            return False
        self._transaction.displace(placed)
        self._removed[key] = placed
        self._undo(lambda: self._removed.pop(key, None))
        self._notify_gangs(placed.pod, deleted=True)
        return True

    def put_back(self, key: str) -> None:
        """Put a pod that was removed where it was, since it is still there."""
        placed = self._removed.pop(key, None)
        if placed is None or key in self._state.pods.by_key:
            return
        self._state.put_back(placed)
        self._notify_gangs(placed.pod, deleted=False)

        def undo() -> None:
            self._state.displace(key)
            self._removed[key] = placed
            self._update_gangs(placed.pod, deleted=True)

        self._undo(undo)

    # -- places ------------------------------------------------------------------------------

    def land(self, pod: Pod) -> Landing:
        """Place a new pod, and all that it takes, where the scheduler would."""
        if self.gang_of(pod):
            return self.land_together([pod])[0]
        cycle, pod = self._prepared(as_scheduled(pod))
        pod_class = self._wait(pod)
        return self._place(cycle, pod, pod_class)

    def land_together(self, pods: Sequence[Pod]) -> Sequence[Landing]:
        """Place the members of a gang as it would be decided at once: all of them, or none."""
        prepared = [self._prepared(as_scheduled(pod)) for pod in pods]
        classes = [self._wait(pod) for _, pod in prepared]
        for _, pod in prepared:
            self._notify_gangs(pod, deleted=False)
        if self._gangs is not None and pods:
            members = [(pod, kind) for (_, pod), kind in zip(prepared, classes, strict=True)]
            planned = self._gangs.try_together(prepared[0][0], members)
            if planned is not None:
                return self._place_planned(members, planned)
        with self.attempt() as attempt:
            landings = []
            for (cycle, pod), pod_class in zip(prepared, classes, strict=True):
                landings.append(self._place(cycle, pod, pod_class))
                if not landings[-1].node:
                    return _all_but(pods, landings[-1])
            attempt.keep()
        return landings

    def reserve(self, reservation: Reservation) -> Landing:
        """Place a reservation; its owners, landing later, may use it."""
        cycle, pod = self._prepared(reserve_pod_as_scheduled(reservation))
        pod_class = self._state.classes.of(pod)
        choice = self._choose(cycle, pod, pod_class)
        if not isinstance(choice, NodeChoice):
            return choice
        try:
            status = lifecycle.available(reservation, choice.node, to_datetime(self._state.now_s))
            available = replace(reservation, status=status)
            offer = offer_of(available)
        except InputError as error:
            return Landing(pod.key, why=str(error))
        offered = AllocationResult(pod_allocation=PodAllocation(offer=offer))
        self._transaction.put_object(available)
        holder = reserve_pod_as_scheduled(available)
        self._transaction.assume(
            holder.key,
            holder,
            self._state.classes.of(holder),
            choice.row,
            choice.allocation.joined(offered),
        )
        return Landing(pod.key, choice.node)

    # -- parts -------------------------------------------------------------------------------

    def _prepared(self, pod: Pod) -> tuple[SchedulingCycle, Pod]:
        """Return the pod as its scheduler sees it.  Raises InputError if it has none here."""
        cycle = self._handle.cycles.get(pod.spec.scheduler_name)
        if cycle is None:
            accepted = ", ".join(sorted(self._handle.cycles))
            problem = f"must be one of {accepted}, got {pod.spec.scheduler_name!r}"
            raise InputError(problem, source=pod.key, path="spec.schedulerName")
        for active in cycle.profile.transform:
            pod = active.plugin.transform(pod)
        return cycle, pod

    def _wait(self, pod: Pod) -> PodClass:
        """Add a pending pod: quotas count it."""
        pod_class, before = self._state.classes.of(pod), self._state.unbound.get(pod.key)
        self._state.put_unbound(pod.key, pod, pod_class)

        def undo() -> None:
            self._state.drop_unbound(pod.key)
            if before is not None:
                self._state.put_unbound(pod.key, *before)

        self._undo(undo)
        return pod_class

    def _place(self, cycle: SchedulingCycle, pod: Pod, pod_class: PodClass) -> Landing:
        choice = self._choose(cycle, pod, pod_class)
        if not isinstance(choice, NodeChoice):
            return choice
        self._put(pod, pod_class, choice)
        return Landing(pod.key, choice.node)

    def _put(self, pod: Pod, pod_class: PodClass, choice: NodeChoice) -> None:
        self._transaction.assume(pod.key, pod, pod_class, choice.row, choice.allocation)

    def _choose(
        self, cycle: SchedulingCycle, pod: Pod, pod_class: PodClass
    ) -> NodeChoice | Landing:
        """Return the node for a pod, or why there is none; room of nominated pods is theirs."""
        nominated = self._handle.nominations.by_node()
        choice = cycle.choose(pod, pod_class, nominated, first_attempt=False)
        if isinstance(choice, NodeChoice):
            return choice
        if isinstance(choice, ReserveRefusal):
            return Landing(pod.key, plugin=choice.plugin, why=choice.reason)
        diagnosis = self._handle.diagnoses.diagnose(cycle, pod, pod_class)
        plugin, _ = diagnosis.main
        return Landing(pod.key, plugin=plugin, why=diagnosis.message())

    def _place_planned(
        self,
        members: Sequence[tuple[Pod, PodClass]],
        planned: Sequence[NodeChoice] | ReserveRefusal,
    ) -> Sequence[Landing]:
        """Place members as planned, or return the reasons against it."""
        if isinstance(planned, ReserveRefusal):
            first, plugin, why = members[0][0].key, planned.plugin, planned.reason
            return _all_but([pod for pod, _ in members], Landing(first, plugin=plugin, why=why))
        for (pod, pod_class), choice in zip(members, planned, strict=True):
            self._put(pod, pod_class, choice)
        return [
            Landing(pod.key, choice.node) for (pod, _), choice in zip(members, planned, strict=True)
        ]

    def _notify_gangs(self, pod: Pod, *, deleted: bool) -> None:
        self._update_gangs(pod, deleted=deleted)
        self._undo(lambda: self._update_gangs(pod, deleted=not deleted))

    def _update_gangs(self, pod: Pod, *, deleted: bool) -> None:
        for cache in self._gangs.caches if self._gangs is not None else ():
            (cache.drop_pod if deleted else cache.put_pod)(pod)

    def _undo(self, undo: Callable[[], object]) -> None:
        self._transaction.note(undo)


class ForkAttempt:
    """Fulfils ``domain.placement_fork.ForkedAttempt``."""

    kept = False

    def keep(self) -> None:
        """Keep the changes since the attempt began, for now."""
        self.kept = True


def follow_cluster(
    cluster: Cluster,
    clock: Clock,
    configuration: KubeSchedulerConfiguration,
    *,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
    on_fault: FaultHandler = raise_fault,
) -> SchedulerFork:
    """Return a fork of a scheduler of that configuration; nothing is taken in before ``follow``.

    Raises InputError for a configuration that can't work, naming the path in ``source``.
    """
    state = ClusterState()
    built = build_profiles(
        configuration, state.axis, out_of_tree=out_of_tree, source=source, gates=gates
    )
    options = SchedulerOptions(report=False, writes_network=False).with_gates(gates)
    scheduler = build_scheduler(
        cluster,
        clock,
        built.profiles,
        state,
        tuple(kind for kind in watched_kinds(gates) if kind in FOLLOWED),
        field_selectors=built.selectors,
        options=options,
        on_fault=on_fault,
        without=(ExplanationFeature, NodePagesFeature),
    )
    return SchedulerFork(scheduler)


def _all_but(pods: Sequence[Pod], failed: Landing) -> Sequence[Landing]:
    """Return what becomes of all when one fails."""
    why = f"no place for {failed.pod}, which starts with it: {failed.why}"
    return [
        failed if pod.key == failed.pod else Landing(pod.key, plugin=failed.plugin, why=why)
        for pod in pods
    ]
