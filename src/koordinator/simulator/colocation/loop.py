"""Colocation loop: usage, suppression, eviction, reports and publication of batch resources.

The node agents are simulated by their strategies, vectorised over nodes; the manager is the real
one on the in-memory cluster.  Without a manager (``is_on`` false) usage is counted only, without
batch resources and suppression.

The load is constant between two steps.  For one interval of the node agent after a change, best
effort keeps its previous limit under the new load.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from koordinator.api.node import Node
from koordinator.api.node_slo import NodeSlo, NodeSloSpec
from koordinator.api.pod import Pod
from koordinator.api.resource_names import BATCH_CPU, MID_CPU
from koordinator.cluster.port import EventType
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout
from koordinator.foundation.arrays import FloatArray
from koordinator.koordlet.view.slo import effective_slo
from koordinator.manager.app import Manager, ManagerOptions
from koordinator.manager.mirror import Controller
from koordinator.simulator.colocation.fleet import DONE_S, Fleet, Loads
from koordinator.simulator.colocation.reporters import Reporters
from koordinator.simulator.colocation.suppression import (
    Evictors,
    FleetState,
    NodeThresholds,
    Suppressor,
)
from koordinator.simulator.colocation_report import ColocationCounters, ColocationReport, Sums
from koordinator.simulator.stages import PodStage
from koordinator.simulator.usage import Spike, UsageKinds
from koordinator.simulator.workload import ColocationSettings, YarnSettings
from koordinator.simulator.world import EventOrder, SimulatedPod, World

if TYPE_CHECKING:  # YARN is an optional part
    from koordinator.hadoop.port import ResourceManager
    from koordinator.simulator.colocation.yarn import ColocatedYarn
    from koordinator.simulator.yarn import SimulatedApplication

#: Interval of the node agent's CPU suppression.
REACTION_S = 1.0
_MILLI = 1000
_PERCENT = 100
_LAYOUT = CgroupLayout(CgroupDriver.CGROUPFS)


class ColocationLoop:
    """SimulatedNodes of a world with loaded nodes; ``on_event`` receives evictions."""

    def __init__(
        self,
        world: World,
        config: ColocationSettings,
        rng: np.random.Generator,
        *,
        is_on: bool = True,
        on_event: Callable[[float, str], None] = lambda _time_s, _text: None,
        yarn: YarnSettings | None = None,
        applications: "Sequence[SimulatedApplication]" = (),
        node_managers: Sequence[str] = (),
    ) -> None:
        """``applications`` arrive at the queues of ``yarn`` and run on ``node_managers``."""
        self._world = world
        self._config = config
        self._rng = rng
        self._on_event = on_event
        self._step_s = config.step.total_seconds()
        nodes = world.cluster.list(Node).items
        self._fleet = Fleet(nodes, UsageKinds(_spikes(config)))
        n_nodes = len(nodes)
        self._thresholds = NodeThresholds.none(n_nodes)
        self._suppressor = Suppressor(self._fleet.cpu, self._thresholds)
        self._reporters = Reporters(self._fleet, world.cluster)
        self._evictors = Evictors(self._fleet, nodes, self._thresholds, self._step_s)
        self._slos: dict[int, NodeSloSpec] = {}
        self._sums = Sums()  # per second since the last step
        self._first_sums = Sums()  # per second before the reaction of the node agents
        self._counted_s = 0.0
        self._step_began_s = 0.0
        self._manager: Manager | None = None
        self._tally = ColocationCounters(
            float(self._fleet.cpu.sum()) / _MILLI, config.safe_percent, is_on
        )
        if is_on:
            controllers = frozenset(Controller) - {Controller.QUOTA_PROFILE}
            options = ManagerOptions(controllers=controllers)
            self._manager = Manager(world.cluster, world.embedded.clock, options)
            self._watch = world.cluster.watch((NodeSlo,))
        self._yarn: ColocatedYarn | None = None
        if yarn is not None:
            from koordinator.simulator.colocation import yarn as optional  # noqa: PLC0415

            running = node_managers if is_on else ()  # without a manager YARN gets no resources
            self._yarn = optional.ColocatedYarn(world, self._fleet, yarn, applications, running)
        world.attach_nodes(self)
        world.at(world.now_s, self._step, EventOrder.HOSTS)

    @property
    def yarn(self) -> "ResourceManager | None":
        """The ResourceManager as its clients see it; None without YARN."""
        return self._yarn.manager if self._yarn is not None else None

    # -- SimulatedNodes ---------------------------------------------------------------------------

    def started(self, run: SimulatedPod) -> None:
        """See ``world.SimulatedNodes``."""
        meta = run.pod.metadata
        pod = self._world.cluster.get(Pod, meta.name, meta.namespace)
        self._fleet.add(run, pod, self._world.now_s)

    def stopped(self, run: SimulatedPod) -> None:
        """See ``world.SimulatedNodes``."""
        now_s = self._world.now_s
        worked_s = self._fleet.worked_s(run, now_s)
        resident = self._fleet.remove(run)
        if resident is None or not resident.is_best_effort:
            return
        if worked_s + DONE_S >= run.submission.life.work_s:
            self._tally.finished += 1
        else:
            usage = run.submission.usage
            cores = resident.cpu_milli * usage.high / _MILLI
            self._tally.lost_core_s += worked_s * cores

    def work_left_s(self, run: SimulatedPod) -> float:
        """See ``world.SimulatedNodes``."""
        now_s, fleet = self._world.now_s, self._fleet
        left_s = run.submission.life.work_s - fleet.worked_s(run, now_s)
        return fleet.may_end_in_s(left_s, fleet.speed_of(run), now_s)

    def node_failed(self, node: str) -> None:
        """See ``world.SimulatedNodes``."""
        if self._yarn is not None:
            self._yarn.node_failed(node)

    def node_back(self, node: str) -> None:
        """See ``world.SimulatedNodes``."""
        if self._yarn is not None:
            self._yarn.node_back(node)

    # -- one step ----------------------------------------------------------------------------

    def _step(self) -> None:
        now_s = self._world.now_s
        self.count(now_s)
        fleet = self._fleet
        noise = self._config.noise_percent / _PERCENT
        fleet.noise = np.clip(self._rng.normal(1.0, noise, len(fleet.names)), 0.0, 2.0)
        if self._manager is not None:
            self._update_slos()
        loads = fleet.loads(now_s)
        granted = self._suppress(loads, now_s)
        if self._manager is not None:
            shares = fleet.kinds.cpu_shares(now_s)
            self._evict(FleetState(now_s, loads, shares, self._suppressor.limit, granted))
            speed = granted / np.maximum(loads.best_effort_cpu, 1.0)
            self._reporters.report(now_s, shares, speed, loads, self._up())
            self._reconcile(self._manager)
        self._world.at(now_s + self._step_s, self._step, EventOrder.HOSTS)

    def _reconcile(self, manager: Manager) -> None:
        """Run the manager and YARN's operator until neither has work."""
        busy = True
        while busy:
            busy = bool(manager.step())
            if self._yarn is not None:
                busy |= self._yarn.step()

    def _suppress(self, loads: Loads, now_s: float) -> FloatArray:
        """Return the milli-CPU granted to best effort on each node until the next step."""
        headroom = self._fleet.cpu - loads.services_cpu
        before = np.minimum(np.minimum(loads.best_effort_cpu, self._suppressor.limit), headroom)
        system = np.zeros(len(headroom), np.int64)
        self._suppressor.converge(loads.services_cpu.astype(np.int64), system)
        granted = np.minimum(np.minimum(loads.best_effort_cpu, self._suppressor.limit), headroom)
        wants = loads.best_effort_cpu > 0
        speed = np.divide(granted, loads.best_effort_cpu, out=np.ones_like(headroom), where=wants)
        self._fleet.set_speed(speed, now_s, now_s + self._step_s)
        self._first_sums = self._sums_of(loads, before)
        self._sums = self._sums_of(loads, granted)
        self._step_began_s = now_s
        return granted

    def _evict(self, moment: FleetState) -> None:
        evictions = self._evictors.victims(self._slos, moment)
        for victim in evictions.pods:
            key = f"{victim.namespace}/{victim.name}"
            if self._world.pods[key].stage is PodStage.RUNNING:
                self._tally.evicted += 1
                text = f"{key} was evicted by the node agent: {victim.reason}"
                self._on_event(moment.now_s, text)
                self._world.evict(key)
        for node, request in evictions.containers.items():
            if self._yarn is not None and (ended := self._yarn.release(node, request.amounts)):
                text = f"{ended} containers on {node} were ended: {request.reason}"
                self._on_event(moment.now_s, text)

    def _update_slos(self) -> None:
        for event in self._watch.poll():
            slo = event.object
            if event.type is EventType.BOOKMARK or not isinstance(slo, NodeSlo):
                continue
            row = self._fleet.rows[slo.metadata.name]
            spec = effective_slo(slo.spec, _LAYOUT)
            self._slos[row] = spec
            self._thresholds.put(row, spec)

    def _up(self) -> FloatArray:
        up = np.ones(len(self._fleet.names))
        for name in self._world.nodes_down():
            up[self._fleet.rows[name]] = 0
        return up

    # -- counting ----------------------------------------------------------------------------

    def count(self, now_s: float) -> None:
        """Add the time since the last call to the sums."""
        early_until_s = min(now_s, self._step_began_s + REACTION_S)
        early_s = max(early_until_s - self._counted_s, 0.0)
        late_s = now_s - self._counted_s - early_s
        for span_s, sums in ((early_s, self._first_sums), (late_s, self._sums)):
            if span_s > 0:
                self._tally.add(_over(sums, span_s))
                if self._yarn is not None:
                    self._yarn.count(sums.yarn, span_s)
        self._counted_s = now_s

    def sample(self) -> None:
        """End a row of the report's columns."""
        self.count(self._world.now_s)
        state = self._world.embedded.state
        batch, mid = (
            float(state.nodes.allocatable[state.axis.index(name)].sum()) / _MILLI
            if name in state.axis.names
            else 0.0
            for name in (BATCH_CPU, MID_CPU)
        )
        self._tally.sample(batch, mid)
        if self._yarn is not None:
            self._yarn.sample()

    def report(self) -> ColocationReport:
        """Return the report of the run so far."""
        return self._tally.report(self._yarn.report() if self._yarn is not None else None)

    def _sums_of(self, loads: Loads, granted: FloatArray) -> Sums:
        serving = loads.services_cpu > 0
        safe = self._fleet.cpu * (self._config.safe_percent / _PERCENT)
        at_risk = serving & (loads.services_cpu + granted > safe)
        return Sums(
            span_s=1.0,
            services=float(loads.services_cpu.sum()) / _MILLI,
            best_effort=float(granted.sum()) / _MILLI,
            yarn=yarn_cores(loads, granted),
            wanted=float(loads.best_effort_cpu.sum()) / _MILLI,
            serving=float(np.count_nonzero(serving)),
            at_risk=float(np.count_nonzero(at_risk)),
        )


def yarn_cores(loads: Loads, granted: FloatArray) -> float:
    """Return the cores that containers use of the milli-CPU granted to best effort."""
    wanted = np.maximum(loads.best_effort_cpu, 1e-9)
    return float((granted * loads.yarn_cpu / wanted).sum()) / _MILLI


def _over(sums: Sums, span_s: float) -> Sums:
    return Sums(
        span_s=span_s,
        services=sums.services * span_s,
        best_effort=sums.best_effort * span_s,
        yarn=sums.yarn * span_s,
        wanted=sums.wanted * span_s,
        serving=sums.serving * span_s,
        at_risk=sums.at_risk * span_s,
    )


def _spikes(config: ColocationSettings) -> Sequence[Spike]:
    return [
        Spike(spike.stream, spike.at.total_seconds(), spike.lasts.total_seconds(), spike.factor)
        for spike in config.spikes
    ]
