"""Descheduler loop: events of the cluster, periodic cycles, and controllers of plugins.

One ``step`` processes all events, runs a cycle if one is due, and then steps the controllers of
plugins once each.  Nothing runs between steps, so the embedding program controls the time.
Source: koordinator pkg/descheduler/descheduler.go.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from koordinator.api.codec import subject_of
from koordinator.api.core import Namespace
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.cluster.port import Cluster, EventType, WatchEvent
from koordinator.cluster.reconcile import SyncedWatch
from koordinator.descheduler.candidates import selected_nodes
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.contract import (
    DeferringEvictPlugin,
    DeschedulerPluginSpec,
    Handle,
    PluginController,
)
from koordinator.descheduler.evictor import (
    EvictionLimits,
    MoveObserver,
    MoveVerdict,
    ProfileEvictor,
)
from koordinator.descheduler.metrics import DeschedulerMetrics
from koordinator.descheduler.mirror import ClusterMirror
from koordinator.descheduler.move_reports import SkippedMoveEvents
from koordinator.descheduler.node_fit import is_ready
from koordinator.descheduler.profile import (
    ChosenProfile,
    RunningProfile,
    build_profile,
    choose_profiles,
)
from koordinator.descheduler.proof import MoveMemory, MoveProver, cycle_of
from koordinator.domain.placement_fork import PlacementFork
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import (
    ClusterError,
    FaultHandler,
    InputError,
    fault_of,
    raise_fault,
)
from koordinator.foundation.lazy_dataclass import dataclass

FEWEST_NODES = 2
TOO_SMALL = "the cluster size is 0 or 1 meaning eviction causes service disruption or degradation"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cycle:
    """Result of a cycle; ``problems`` are the errors that ended it early."""

    evicted: int
    problems: Sequence[str] = ()


class Descheduler:
    """Descheduler: runs the plugins of its profiles in periodic cycles."""

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
        fork: PlacementFork | None = None,
        on_move: MoveObserver | None = None,
        most_moves: Callable[[], int] | None = None,
    ) -> None:
        """Build all plugins.

        ``clock`` measures deadlines; ``wall_clock``, by default the same, is compared with times of
        API objects.  ``on_fault`` receives unexpected exceptions; by default they are raised.
        ``fork`` proves moves by dry runs; without it moves are not proven.  ``on_move`` receives
        the verdict on each eviction that a plugin requested.  ``most_moves`` returns an additional
        limit of evictions before each cycle; the cycle is skipped if it is 0.

        Raises InputError with the path in ``source`` for an invalid configuration.
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
        self._skipped_move_events = SkippedMoveEvents(
            cluster, clock, configuration.move_memory.total_seconds()
        )
        self._on_move, self._most_moves = on_move, most_moves
        chosen = choose_profiles(configuration, out_of_tree, source)
        self._prover: MoveProver | None = None
        if fork is not None and any(
            _proves(configuration, profile, each.spec)
            for profile in chosen
            for each in profile.plugins.values()
        ):
            self._prover = MoveProver(fork, self._memory, clock)
        self.view = ClusterMirror(kind for profile in chosen for kind in profile.watches)
        self._evictors: dict[tuple[str, str], ProfileEvictor] = {}  # by profile and plugin
        self.profiles = tuple(self._build(profile, chosen) for profile in chosen)
        self._controllers: tuple[PluginController, ...] = tuple(
            each for profile in self.profiles for each in profile.controllers
        )
        self._watch = SyncedWatch(lambda: cluster.watch(self.view.kinds))
        self._was_synced = False
        self._next_cycle_s: float | None = 0.0  # None: no further cycle

    @property
    def is_synced(self) -> bool:
        """Whether the objects of the last listing have been processed."""
        return self._watch.is_synced

    def sync(self) -> None:
        """List and watch the cluster.

        A repeated call guarantees that earlier changes are processed before the next decision.
        ``is_synced`` is true when that is done.
        """
        self._watch.list_or_resync()
        if self._prover is not None:
            self._prover.refresh()
        self._process_events()

    def step(self, *, leads: bool = True) -> int:
        """Process all events and due items; return the number of processed items.

        A process that does not lead (``leads``) only processes events.
        """
        self._process_events()
        if not (leads and self.is_synced):
            return 0
        done = 0
        is_due = self._next_cycle_s is not None and self._next_cycle_s <= self._clock.now_s()
        if is_due and (self._prover is None or self._prover.is_ready):
            self.run_cycle()
            done += 1
        for controller in self._controllers:
            done += self._step_controller(controller)
        return done

    def request_cycle(self) -> None:
        """Run a cycle in the next step, regardless of the interval."""
        self._next_cycle_s = 0.0

    def end_cycles(self) -> None:
        """Run no more cycles unless one is requested; existing jobs continue."""
        self._next_cycle_s = None

    def next_wakeup_s(self) -> float | None:
        """Return when a step is due without events; None if never."""
        wakeups = [controller.next_wakeup_s() for controller in self._controllers]
        return min(
            (at_s for at_s in (self._next_cycle_s, *wakeups) if at_s is not None), default=None
        )

    # -- events --------------------------------------------------------------------------------

    def _process_events(self) -> None:
        if not self._watch.is_open:
            self.sync()
            return
        if self._prover is not None:
            self._prover.follow()
        for event in self._watch.events():
            self._handle(event)
        if self.is_synced and not self._was_synced:
            self._was_synced = True
            if self._metrics is not None:
                self._metrics.retain(self.view.objects(Node), self.view.objects(Namespace))

    def _handle(self, event: WatchEvent) -> None:
        """Process an event; an object that can't be processed is treated as absent."""
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
            self._announce(obj, deleted=deleted)
        except Exception as error:  # noqa: BLE001 -- reported
            fault = fault_of("news", error, obj.KIND, subject_of(obj))
            with suppress(Exception):
                self.view.drop(obj)
            self._on_fault(fault)
            del fault  # the traceback of its error refers to this frame

    def _announce(self, obj: KubeObject, *, deleted: bool = False) -> None:
        for controller in self._controllers:
            controller.observe(obj, deleted=deleted)

    # -- work --------------------------------------------------------------------------------

    def run_cycle(self) -> None:
        """Run a cycle on the objects processed so far."""
        began_s = self._clock.now_s()
        self._next_cycle_s = began_s + self._interval_s if self._interval_s else None
        self._limits.reset()
        allowed = None if self._most_moves is None else self._most_moves()
        if allowed == 0:
            self.last_cycle = Cycle(0)
            return
        configured = self.configuration.max_no_of_pods_to_evict_total
        self._limits.in_total = min(
            (n for n in (configured, allowed) if n is not None), default=None
        )
        with cycle_of(self._prover):
            self._resume_pending_moves()
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

    def _resume_pending_moves(self) -> None:
        """Apply the pending moves of earlier cycles to the state of the prover."""
        for profile in self.profiles if self._prover is not None else ():
            if self._prover is not None and isinstance(profile.evict, DeferringEvictPlugin):
                self._prover.apply_pending(profile.evict.moves_under_way())

    def _cycle(self) -> Sequence[str]:
        nodes = self._ready_nodes()
        if len(nodes) < FEWEST_NODES:
            return (TOO_SMALL,)
        for profile in self.profiles:
            selected = selected_nodes(nodes, profile.node_selector)
            work = {name: plugin.deschedule for name, plugin in profile.deschedule}
            if problems := self._run_plugins(profile, "deschedule", work, selected):
                return problems
        for profile in self.profiles:
            selected = selected_nodes(nodes, profile.node_selector)
            work = {name: plugin.balance for name, plugin in profile.balance}
            if problems := self._run_plugins(profile, "balance", work, selected):
                return problems
        return ()

    def _run_plugins(
        self,
        profile: RunningProfile,
        point: str,
        work: Mapping[str, Callable[[Sequence[Node]], None]],
        nodes: Sequence[Node],
    ) -> Sequence[str]:
        """Run all plugins of a profile at an extension point; return their errors."""
        problems = []
        for name, run in work.items():
            try:
                run(nodes)
                self._evictors[profile.name, name].retry()
            except (InputError, ClusterError) as error:
                problems.append(f"{name}: {error}")
            except Exception as error:  # noqa: BLE001 -- reported
                fault = fault_of(point, error, name)
                self._on_fault(fault)
                problems.append(fault.problem)
                del fault  # the traceback of its error refers to this frame
        return problems

    def _step_controller(self, controller: PluginController) -> int:
        try:
            return controller.step()
        except ClusterError as error:
            log.warning("work of a plugin failed", extra={"error": str(error)})
        except Exception as error:  # noqa: BLE001 -- reported
            self._on_fault(fault_of("reconcile", error, type(controller).__name__))
        return 0

    def _ready_nodes(self) -> Sequence[Node]:
        known = self.view.objects(Node)
        nodes = [known[name] for name in sorted(known) if is_ready(known[name])]
        return selected_nodes(nodes, self.configuration.node_selector)

    # -- parts -------------------------------------------------------------------------------

    def _build(self, chosen: ChosenProfile, profiles: Sequence[ChosenProfile]) -> RunningProfile:
        evictors: list[ProfileEvictor] = []

        def handle_for(profile: ChosenProfile, plugin: str) -> Handle:
            proves = _proves(self.configuration, profile, profile.plugins[plugin].spec)
            evictor = ProfileEvictor(
                plugin,
                profile.name,
                self._limits,
                self.configuration.dry_run,
                self._count,
                self._report_move,
                self.view,
                self._prover if proves else None,
            )
            self._evictors[profile.name, plugin] = evictor
            evictors.append(evictor)
            return Handle(
                profile=profile.name,
                plugin=plugin,
                profiles=tuple(each.name for each in profiles if plugin in each.plugins),
                view=self.view,
                evictor=evictor,
                writer=self._cluster,
                clock=self._clock,
                wall_clock=self._wall_clock,
                count=self._count,
                announce=self._announce,
                gates=self._gates,
                is_dry_run=self.configuration.dry_run,
                interval_s=self._interval_s,
                node_selector=profile.node_selector,
            )

        running = build_profile(chosen, handle_for)
        for evictor in evictors:
            evictor.running = running
        return running

    def _report_move(self, verdict: MoveVerdict) -> None:
        if not self.configuration.dry_run:
            self._skipped_move_events.observe(verdict)
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
    """Return whether the moves of a plugin are proven before they are made."""
    for setting in (profile.prove_moves, configuration.prove_moves):
        if setting is not None:
            return setting
    return spec.proves_moves
