"""Descheduler on an in-memory cluster with a virtual clock, with or without a scheduler.

With a scheduler, evicted pods are replaced as by their workloads' controllers, and a bound pod is
ready immediately.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from msgspec import structs

from koordinator.api.codec import to_manifest
from koordinator.api.core import Namespace
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod, PodStatus, is_terminal
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.workload import DaemonSet, StatefulSet
from koordinator.cluster.memory.admission import default_storage_class
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import EventType
from koordinator.descheduler.app import Cycle, Descheduler
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.descheduler.evictor import MoveObserver
from koordinator.descheduler.migration.decisions import deadline_s
from koordinator.descheduler.migration.jobs import is_live
from koordinator.domain.placement_fork import replacement_of
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import FaultHandler, FaultLog, raise_fault
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.fork import follow_cluster
from koordinator.simulator.embedded import Embedded, keep_or_resolve_priority
from koordinator.simulator.once import ChangeRecorder, Changes
from koordinator.simulator.stages import RUNNING_CONDITIONS

#: Time for the arbitration and execution of jobs after the last cycle.
SETTLING_S = 3.0
BETWEEN_CYCLES_S = 60.0  # if several cycles are requested of a configuration without an interval

_KEPT_NAMES = (StatefulSet.KIND,)
_SUFFIX = 5  # characters


@dataclass(frozen=True, slots=True)
class CycleReport:
    """Written objects, and the result of each cycle."""

    changes: Changes
    cycles: Sequence[Cycle]

    def as_data(self) -> list[JsonObject]:
        """Return the final state of every written object, with the kind of change."""
        changes = self.changes
        return [
            {"change": change, "object": to_manifest(obj)}
            for change, objects in (
                ("created", changes.created),
                ("changed", changes.changed),
                ("deleted", changes.deleted),
            )
            for obj in objects
        ]


class Descheduled:
    """In-memory cluster with a descheduler, and with a scheduler if a configuration is given."""

    def __init__(
        self,
        configuration: DeschedulerConfiguration,
        *,
        now_s: float = 0.0,
        out_of_tree: Iterable[DeschedulerPluginSpec[Any]] = (),
        scheduler_plugins: Iterable[PluginSpec[Any]] = (),
        source: str = "",
        gates: frozenset[str] = frozenset(),
        on_fault: FaultHandler = raise_fault,
        scheduler: KubeSchedulerConfiguration | None = None,
        prover: KubeSchedulerConfiguration | None = None,
        on_move: MoveObserver | None = None,
        scheduler_gates: FeatureGates = NO_GATES,
    ) -> None:
        """``prover`` is the scheduler configuration that proves moves; None proves none."""
        self._embedded: Embedded | None = None
        if scheduler is None:
            self.clock = VirtualClock(now_s)
            self.cluster = MemoryCluster(
                self.clock, admission=(keep_or_resolve_priority, default_storage_class)
            )
        else:
            self._embedded = Embedded(
                scheduler,
                now_s=now_s,
                out_of_tree=scheduler_plugins,
                on_fault=on_fault,
                gates=scheduler_gates,
            )
            self.clock, self.cluster = self._embedded.clock, self._embedded.cluster
        self.descheduler = Descheduler(
            self.cluster,
            self.clock,
            configuration,
            out_of_tree=out_of_tree,
            source=source,
            gates=gates,
            on_fault=on_fault,
            fork=None
            if prover is None
            else follow_cluster(
                self.cluster,
                self.clock,
                prover,
                out_of_tree=scheduler_plugins,
                on_fault=on_fault,
                gates=scheduler_gates,
            ),
            on_move=on_move,
        )

    def load(self, objects: Iterable[KubeObject]) -> None:
        """Add the existing objects; schedule pending pods if there is a scheduler."""
        if self._embedded is None:
            self.cluster.load(objects)
            return
        self._embedded.load(objects)
        self._replacements = PodReplacements(self.cluster)
        self._schedule()

    def run_until_jobs_end(self) -> None:
        """Advance the time until every job with a deadline has ended, without further cycles."""
        self.descheduler.end_cycles()
        while True:
            ends_s = [
                at_s
                for job in self.cluster.list(PodMigrationJob).items
                if is_live(job) and not job.spec.paused and (at_s := deadline_s(job)) is not None
            ]
            if not ends_s:
                return
            self.run_until(min(ends_s))

    def run_until(self, then_s: float) -> list[Cycle]:
        """Run everything that is due up to a time; return the cycles."""
        cycles: list[Cycle] = []
        while True:
            before = self.descheduler.last_cycle
            done = self.descheduler.step()
            after = self.descheduler.last_cycle
            if after is not None and after is not before:
                cycles.append(after)
            if self._schedule() or done:
                continue
            wakeup_s = self._next_wakeup_s()
            if wakeup_s is None or wakeup_s > then_s:
                return cycles
            self.clock.advance_to(wakeup_s)

    def _schedule(self) -> bool:
        """Run the scheduler, controllers and kubelets once; return whether any of them wrote."""
        embedded, before = self._embedded, self._version()
        if embedded is None:
            return False
        embedded.scheduler.step()
        embedded.step_controllers()
        self._replacements.step()
        return self._version() != before

    def _version(self) -> str:
        # The resource version of a list counts the writes to all kinds.
        return self.cluster.list(Namespace).resource_version

    def _next_wakeup_s(self) -> float | None:
        times = [self.descheduler.next_wakeup_s()]
        if self._embedded is not None:
            times.append(self._embedded.scheduler.next_wakeup_s())
        return min((at_s for at_s in times if at_s is not None), default=None)


def deschedule_once(
    objects: Iterable[KubeObject],
    configuration: DeschedulerConfiguration,
    *,
    now_s: float,
    n_cycles: int = 1,
    out_of_tree: Iterable[DeschedulerPluginSpec[Any]] = (),
    scheduler_plugins: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: frozenset[str] = frozenset(),
    scheduler: KubeSchedulerConfiguration | None = None,
    prover: KubeSchedulerConfiguration | None = None,
    on_move: MoveObserver | None = None,
    scheduler_gates: FeatureGates = NO_GATES,
) -> CycleReport:
    """Run descheduling cycles until their jobs settle; return the written objects.

    ``prover`` is the scheduler configuration that proves moves; None proves none.  With a
    ``scheduler`` every job runs to its end.  Usage reports do not change between cycles.  A fault
    affects its plugin only and is listed in ``faults`` of the changes.
    Raises InputError for an invalid configuration.
    """
    faults = FaultLog()
    interval_s = configuration.descheduling_interval.total_seconds() or BETWEEN_CYCLES_S
    world = Descheduled(
        configuration,
        now_s=now_s,
        out_of_tree=out_of_tree,
        source=source,
        gates=gates,
        scheduler_plugins=scheduler_plugins,
        on_fault=faults,
        scheduler=scheduler,
        prover=prover,
        on_move=on_move,
        scheduler_gates=scheduler_gates,
    )
    world.load(objects)
    recorder = ChangeRecorder(world.cluster)
    world.descheduler.sync()
    cycles: list[Cycle] = []
    for number in range(n_cycles):
        if number:
            world.clock.advance_to(now_s + number * interval_s)
            world.descheduler.request_cycle()
        cycles += world.run_until(now_s + number * interval_s)
    settled_s = now_s + (n_cycles - 1) * interval_s + min(SETTLING_S, interval_s / 2)
    cycles += world.run_until(settled_s)
    if scheduler is not None:
        world.run_until_jobs_end()
    return CycleReport(replace(recorder.changes(), faults=faults), cycles)


class PodReplacements:
    """Controller that replaces deleted pods and marks bound pods as running."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._watch = cluster.watch((Pod,))
        self._watch.poll()  # skips the existing pods

    def step(self) -> None:
        """Process the events since the last call."""
        for event in self._watch.poll():
            pod = event.object
            if not isinstance(pod, Pod):
                continue
            if event.type is EventType.DELETED:
                self._replace(pod)
            elif pod.spec.node_name and pod.status.phase == "Pending":
                status = PodStatus(phase="Running", conditions=RUNNING_CONDITIONS)
                self._cluster.overwrite(structs.replace(pod, status=status))

    def _replace(self, deleted: Pod) -> None:
        owner, meta = deleted.metadata.controller, deleted.metadata
        if owner is None or owner.kind == DaemonSet.KIND or is_terminal(deleted):
            return
        name = meta.name
        if owner.kind not in _KEPT_NAMES:
            digest = sha256(f"{meta.name} {meta.uid}".encode()).hexdigest()
            name = f"{owner.name}-{digest[:_SUFFIX]}"
        self._cluster.create(replacement_of(deleted, name))
