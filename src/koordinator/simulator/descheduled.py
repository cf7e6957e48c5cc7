"""A descheduler in its own small world: in-memory cluster, virtual clock, no scheduler."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from koordinator.api.codec import to_manifest
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cluster.memory.admission import default_storage_class
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.descheduler.app import Cycle, Descheduler
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.faults import FaultHandler, FaultLog, raise_fault
from koordinator.simulator.embedded import keep_or_resolve_priority
from koordinator.simulator.once import ChangeRecorder, Changes

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
    """A cluster and a descheduler in one process."""

    def __init__(
        self,
        configuration: DeschedulerConfiguration,
        *,
        now_s: float = 0.0,
        out_of_tree: Iterable[DeschedulerPluginSpec[Any]] = (),
        source: str = "",
        gates: frozenset[str] = frozenset(),
        on_fault: FaultHandler = raise_fault,
    ) -> None:
        self.clock = VirtualClock(now_s)
        self.cluster = MemoryCluster(
            self.clock, admission=(keep_or_resolve_priority, default_storage_class)
        )
        self.descheduler = Descheduler(
            self.cluster,
            self.clock,
            configuration,
            out_of_tree=out_of_tree,
            source=source,
            gates=gates,
            on_fault=on_fault,
        )

    def run_until(self, then_s: float) -> list[Cycle]:
        """Do all that is due by then, time passing in between; return the cycles."""
        cycles: list[Cycle] = []
        while True:
            before = self.descheduler.last_cycle
            done = self.descheduler.step()
            after = self.descheduler.last_cycle
            if after is not None and after is not before:
                cycles.append(after)
            if done:
                continue
            wakeup_s = self.descheduler.next_wakeup_s()
            if wakeup_s is None or wakeup_s > then_s:
                return cycles
            self.clock.advance_to(wakeup_s)


def deschedule_once(
    objects: Iterable[KubeObject],
    configuration: DeschedulerConfiguration,
    *,
    now_s: float,
    n_cycles: int = 1,
    out_of_tree: Iterable[DeschedulerPluginSpec[Any]] = (),
    source: str = "",
    gates: frozenset[str] = frozenset(),
) -> CycleReport:
    """Run cycles over what exists and let jobs settle; return what was written.

    Reports of usage stay as they are, however many cycles there are.  A fault concerns its plugin
    alone; ``faults`` of the changes tells.
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
        on_fault=faults,
    )
    world.cluster.load(objects)
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
    return CycleReport(replace(recorder.changes(), faults=faults), cycles)
