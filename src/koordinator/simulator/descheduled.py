"""A descheduler in its own small world: in-memory cluster, virtual clock, and a scheduler if asked.

With a scheduler what is evicted comes back: pods are replaced as their workloads would do it, and
what gets a node is ready there at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from koordinator.api.codec import to_manifest
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.namespace import Namespace
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.cluster.memory.admission import default_storage_class
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.descheduler.app import Cycle, Descheduler
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.descheduler.evictor import MoveObserver
from koordinator.descheduler.migration.decisions import deadline_s
from koordinator.descheduler.migration.jobs import is_live
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.faults import FaultHandler, FaultLog, raise_fault
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.trial import follow_cluster
from koordinator.simulator.embedded import Embedded, keep_or_resolve_priority
from koordinator.simulator.once import ChangeRecorder, Changes
from koordinator.simulator.pod_replacements import PodReplacements

#: After the last cycle jobs are arbitrated and carried out for so long.
SETTLING_S = 3.0
BETWEEN_CYCLES_S = 60.0  # where the configuration has one cycle and several are asked for


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What was written, and what became of each cycle."""

    changes: Changes
    cycles: Sequence[Cycle]

    def as_data(self) -> list[JsonObject]:
        """Return every object that was written as it was left, and how it came to be so."""
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
    """A cluster and a descheduler in one process, with the scheduler of a configuration or none."""

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
        """Put the parts together; moves are proven by the ``prover``, without one none is."""
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
            trial=None
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
        """Add what exists; pending pods are scheduled if there is a scheduler."""
        if self._embedded is None:
            self.cluster.load(objects)
            return
        self._embedded.load(objects)
        self._replacements = PodReplacements(self.cluster)
        self._schedule()

    def run_until_jobs_end(self) -> None:
        """Let time pass until every job with an end has come to it; without further cycles."""
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
        """Do all that is due by then, time passing in between; return the cycles."""
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
        """Have the scheduler work, and workloads and nodes follow; return whether any wrote."""
        embedded, before = self._embedded, self._version()
        if embedded is None:
            return False
        embedded.scheduler.step()
        embedded.step_controllers()
        self._replacements.step()
        return self._version() != before

    def _version(self) -> str:
        return self.cluster.list(Namespace).resource_version  # of the last write of any kind

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
) -> CycleReport:
    """Run cycles over what exists and let jobs settle; return what was written.

    Moves are proven by the ``prover``; without one, none is.  With a ``scheduler`` every job is
    seen through to its end.  Reports of usage stay as they are,
    however many cycles there are.  A fault concerns its plugin alone; ``faults`` of the changes
    tells.
    Raises InputError for a configuration that can't work.
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
