"""The loop: events of the cluster, cycles at their time, and work of plugins between them.

One ``step`` takes in all events, runs a cycle if one is due, and then has controllers of plugins
work until nothing is due.  Between steps nothing happens, so whoever embeds the descheduler decides
when time passes.
Source: koordinator pkg/descheduler/descheduler.go.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from koordinator.api.codec import subject_of
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.cluster.port import Cluster, EventType, WatchEvent
from koordinator.cluster.synced_watch import SyncedWatch
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.contract import (
    DeschedulerPluginSpec,
    Handle,
    LastingEvictPlugin,
    PluginController,
)
from koordinator.descheduler.eviction_limits import EvictionLimits
from koordinator.descheduler.evictor import MoveObserver, MoveVerdict, ProfileEvictor
from koordinator.descheduler.metrics import DeschedulerMetrics
from koordinator.descheduler.mirror import ClusterMirror
from koordinator.descheduler.node_fit import is_ready
from koordinator.descheduler.pod_filters import selected_nodes
from koordinator.descheduler.profile import (
    ChosenProfile,
    RunningProfile,
    build_profile,
    choose_profiles,
)
from koordinator.descheduler.proof import MoveMemory, MoveProver
from koordinator.descheduler.proof.prover import cycle_of
from koordinator.descheduler.stay_events import StayEvents
from koordinator.domain.placement_trial import PlacementTrial
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.faults import FaultHandler, fault_of, raise_fault

FEWEST_NODES = 2
TOO_SMALL = "the cluster size is 0 or 1 meaning eviction causes service disruption or degradation"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cycle:
    """What became of one cycle; ``problems`` ended it early."""

    evicted: int
    problems: Sequence[str] = ()


class Descheduler:
    """Looks for pods that should go, at regular times."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        configuration: DeschedulerConfiguration,
        *,
        wall_clock: Clock | None = None,
        out_of_tree: Iterable[DeschedulerPluginSpec[Any]] = (),
        source: str = "",
        gates: frozenset[str] = frozenset(),
        metrics: DeschedulerMetrics | None = None,
        on_fault: FaultHandler = raise_fault,
        trial: PlacementTrial | None = None,
        on_move: MoveObserver | None = None,
        most_moves: Callable[[], int] | None = None,
    ) -> None:
        """Build all plugins; ``on_fault`` is told what broke, by default it is raised.

        Deadlines are counted with ``clock``, times of objects compared with ``wall_clock``, if any.

        Moves are proven by the ``trial``; without one, none is.  ``on_move`` hears what became of
        each pod that a plugin wanted to go.  ``most_moves`` is asked before each cycle how many
        pods may go in it, whatever more the configuration allows; if none, it is left out.

        Raises InputError for a configuration that can't work, naming the path in ``source``.
        """
        self.configuration, self._gates = configuration, gates
        self.last_cycle: Cycle | None = None
        self._cluster, self._clock, self._wall_clock = cluster, clock, wall_clock
        self._metrics, self._on_fault = metrics, on_fault
        self._interval_s = configuration.descheduling_interval.total_seconds()
        self._limits = EvictionLimits(
            configuration.max_no_of_pods_to_evict_per_node,
            configuration.max_no_of_pods_to_evict_per_namespace,
            configuration.max_no_of_pods_to_evict_total,
        )
        self._memory = MoveMemory(configuration.move_memory.total_seconds())
        self._stay_events = StayEvents(cluster, clock, configuration.move_memory.total_seconds())
        self._on_move, self._most_moves = on_move, most_moves
        chosen = choose_profiles(configuration, out_of_tree, source)
        self._prover: MoveProver | None = None
        if trial is not None and any(
            _proves(configuration, profile, each.spec)
            for profile in chosen
            for each in profile.plugins.values()
        ):
            self._prover = MoveProver(trial, self._memory, clock)
        self.view = ClusterMirror(kind for profile in chosen for kind in profile.watches)
        self._evictors: dict[tuple[str, str], ProfileEvictor] = {}  # by profile and plugin
        self.profiles = tuple(map(self._build, chosen))
        self._controllers: tuple[PluginController, ...] = tuple(
            each for profile in self.profiles for each in profile.controllers
        )
        self._watch = SyncedWatch(lambda: cluster.watch(self.view.kinds))
        self._next_cycle_s: float | None = 0.0  # None: there is none any more

    @property
    def is_synced(self) -> bool:
        """Whether everything that existed when last asked has been taken in."""
        return self._watch.is_synced

    def sync(self) -> None:
        """Take in the whole cluster and watch it from there.

        Called again, it makes sure that nothing that happened before is missed.  ``is_synced``
        tells when that is so; until then nothing is decided.
        """
        self._watch.ask()
        if self._prover is not None:
            self._prover.refresh()
        self._take_in()

    def step(self, *, leads: bool = True) -> int:
        """Take in all events and do what is due; return how many things were done.

        Who does not lead only follows.
        """
        self._take_in()
        if not (leads and self.is_synced):
            return 0
        done = 0
        is_due = self._next_cycle_s is not None and self._next_cycle_s <= self._clock.now_s()
        if is_due and (self._prover is None or self._prover.is_ready):
            self.run_cycle()
            done += 1
        for controller in self._controllers:
            done += self._work(controller)
        return done

    def request_cycle(self) -> None:
        """Have a cycle run in the next step, whenever the last one was."""
        self._next_cycle_s = 0.0

    def end_cycles(self) -> None:
        """Run no more cycles unless one is requested; jobs that are under way go on."""
        self._next_cycle_s = None

    def next_wakeup_s(self) -> float | None:
        """Return when something is due although nothing happens; None if never."""
        wakeups = [controller.next_wakeup_s() for controller in self._controllers]
        return min(
            (at_s for at_s in (self._next_cycle_s, *wakeups) if at_s is not None), default=None
        )

    # -- events --------------------------------------------------------------------------------

    def _take_in(self) -> None:
        if not self._watch.is_open:
            self.sync()
            return
        if self._prover is not None:
            self._prover.follow()
        for event in self._watch.events():
            self._handle(event)

    def _handle(self, event: WatchEvent) -> None:
        """Take in events; an object that can't be taken in is as if it weren't there."""
        obj, deleted = event.object, event.type is EventType.DELETED
        try:
            if deleted:
                self.view.drop(obj)
                if self._metrics is not None and isinstance(obj, Node | Namespace):
                    self._metrics.forget(obj)
            else:
                self.view.put(obj)
            if isinstance(obj, PodMigrationJob) and not deleted:
                self._memory.observe(obj)
            for controller in self._controllers:
                controller.observe(obj, deleted=deleted)
        except Exception as error:  # noqa: BLE001 -- told
            fault = fault_of("news", error, obj.KIND, subject_of(obj))
            with suppress(Exception):
                self.view.drop(obj)
            self._on_fault(fault)

    # -- work --------------------------------------------------------------------------------

    def run_cycle(self) -> None:
        """Run a cycle now, over what has been taken in."""
        began_s = self._clock.now_s()
        self._next_cycle_s = began_s + self._interval_s if self._interval_s else None
        self._limits.reset()
        allowed = None if self._most_moves is None else self._most_moves()
        if allowed == 0:
            self.last_cycle = Cycle(0)
            return
        self._limits.in_total = self._most_in_total(allowed)
        with cycle_of(self._prover):
            self._carry_out_what_was_begun()
            problems = self._cycle()
        took_s = self._clock.now_s() - began_s
        self.last_cycle = Cycle(self._limits.total, problems)
        if self._metrics is not None:
            self._metrics.finished_cycle(took_s, succeeded=not problems)
        extra = {"evicted": self._limits.total, "took_s": round(took_s, 3)}
        if problems:
            log.warning("cycle ended early", extra={**extra, "error": "; ".join(problems)})
        else:
            log.info("cycle finished", extra=extra)

    def _most_in_total(self, allowed: int | None) -> int | None:
        configured = self.configuration.max_no_of_pods_to_evict_total
        return min((n for n in (configured, allowed) if n is not None), default=None)

    def _carry_out_what_was_begun(self) -> None:
        """Let the prover know of pods that go, but have not gone."""
        for profile in self.profiles if self._prover is not None else ():
            if self._prover is not None and isinstance(profile.evict, LastingEvictPlugin):
                self._prover.carry_out(profile.evict.moves_under_way())

    def _cycle(self) -> Sequence[str]:
        nodes = self._ready_nodes()
        if len(nodes) < FEWEST_NODES:
            return (TOO_SMALL,)
        for profile in self.profiles:
            chosen = selected_nodes(nodes, profile.node_selector)
            work = {name: plugin.deschedule for name, plugin in profile.deschedule}
            if problems := self._run_plugins(profile, "deschedule", work, chosen):
                return problems
        for profile in self.profiles:
            chosen = selected_nodes(nodes, profile.node_selector)
            work = {name: plugin.balance for name, plugin in profile.balance}
            if problems := self._run_plugins(profile, "balance", work, chosen):
                return problems
        return ()

    def _run_plugins(
        self,
        profile: RunningProfile,
        point: str,
        work: Mapping[str, Callable[[Sequence[Node]], None]],
        nodes: Sequence[Node],
    ) -> Sequence[str]:
        """Run all plugins of a profile at a point, whatever becomes of the others."""
        problems = []
        for name, run in work.items():
            try:
                run(nodes)
                self._evictors[profile.name, name].retry()
            except (InputError, ClusterError) as error:
                problems.append(f"{name}: {error}")
            except Exception as error:  # noqa: BLE001 -- told
                fault = fault_of(point, error, name)
                self._on_fault(fault)
                problems.append(fault.problem)
        return problems

    def _work(self, controller: PluginController) -> int:
        try:
            return controller.step()
        except ClusterError as error:
            log.warning("work of a plugin failed", extra={"error": str(error)})
        except Exception as error:  # noqa: BLE001 -- told
            self._on_fault(fault_of("reconcile", error, type(controller).__name__))
        return 0

    def _ready_nodes(self) -> Sequence[Node]:
        known = self.view.objects(Node)
        nodes = [known[name] for name in sorted(known) if is_ready(known[name])]
        return selected_nodes(nodes, self.configuration.node_selector)

    # -- parts -------------------------------------------------------------------------------

    def _build(self, chosen: ChosenProfile) -> RunningProfile:
        evictors: list[ProfileEvictor] = []

        def handle_for(profile: ChosenProfile, plugin: str) -> Handle:
            proves = _proves(self.configuration, profile, profile.plugins[plugin].spec)
            evictor = ProfileEvictor(
                plugin,
                profile.name,
                self._limits,
                self.configuration.dry_run,
                self._count,
                self._moved,
                self.view,
                self._prover if proves else None,
            )
            self._evictors[profile.name, plugin] = evictor
            evictors.append(evictor)
            return Handle(
                profile=profile.name,
                plugin=plugin,
                profiles=tuple(each.name for each in self.configuration.profiles),
                view=self.view,
                evictor=evictor,
                writer=self._cluster,
                clock=self._clock,
                wall_clock=self._wall_clock,
                count=self._count,
                gates=self._gates,
                is_dry_run=self.configuration.dry_run,
                interval_s=self._interval_s,
                node_selector=profile.node_selector,
            )

        running = build_profile(chosen, handle_for)
        for evictor in evictors:
            evictor.running = running
        return running

    def _moved(self, verdict: MoveVerdict) -> None:
        if not self.configuration.dry_run:
            self._stay_events.observe(verdict)
        if self._on_move is not None:
            self._on_move(verdict)

    def _count(self, plugin: str, pod: Pod, result: str) -> None:
        if self._metrics is not None:
            self._metrics.evicted(plugin, pod, result)


def _proves(
    configuration: DeschedulerConfiguration,
    profile: ChosenProfile,
    spec: DeschedulerPluginSpec[Any],
) -> bool:
    """Return whether moves that a plugin wants are proven before they are made."""
    for said in (profile.prove_moves, configuration.prove_moves):
        if said is not None:
            return said
    return spec.proves_moves
