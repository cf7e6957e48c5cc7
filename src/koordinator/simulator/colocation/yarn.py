"""YARN beside pods: containers on the nodes of the fleet, with the real YARN operator.

The operator runs at each step together with the manager, until neither has work; the
ResourceManager starts containers at any time.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock
from koordinator.hadoop.amounts import BatchAmounts
from koordinator.hadoop.configuration import DEFAULT_CLUSTER
from koordinator.hadoop.port import choose_containers
from koordinator.simulator.colocation.fleet import DONE_S, Demand, Fleet, Tenant
from koordinator.simulator.colocation_report import YarnColumns, YarnReport
from koordinator.simulator.workload import YarnSettings
from koordinator.simulator.world import EventOrder, World
from koordinator.simulator.yarn import (
    ContainerEnd,
    SimulatedApplication,
    SimulatedContainer,
    SimulatedResourceManager,
    YarnQueue,
    node_manager_id,
    queue_of,
)
from koordinator.yarn.account import YarnPolicy, parse_grace_s
from koordinator.yarn.app import YarnOperator, YarnOptions
from koordinator.yarn.follower import YarnFollower

_MILLI = 1000
_HOUR_S = 3600.0


class ColocatedYarn:
    """YARN queues, the operator, and NodeManagers on ``nodes``."""

    def __init__(
        self,
        world: World,
        fleet: Fleet,
        settings: YarnSettings,
        applications: Sequence[SimulatedApplication],
        nodes: Sequence[str],
    ) -> None:
        self._world, self._fleet = world, fleet
        clock, policy = world.embedded.clock, YarnPolicy(headroom_percent=settings.headroom_percent)
        self._node_of = {node_manager_id(node): node for node in nodes}
        self._demands = {
            queue.name: self._demand(queue) for queue in map(queue_of, settings.queues)
        }
        self.manager = SimulatedResourceManager(
            [queue_of(each) for each in settings.queues],
            tuple(self._node_of),
            registered=policy.registered,
            clock=clock,
            at=lambda time_s, action: world.at(time_s, action, EventOrder.END),
            hosts=self,
        )
        self._operator, self._follower = _operator(
            world.cluster, clock, self.manager, settings, policy
        )
        self._running: dict[
            SimulatedContainer, tuple[str, float]
        ] = {}  # attempt, progress at start
        self._core_s = self._lost_core_s = 0.0
        self._limit_s = self._used_s = 0.0  # vcores and cores, times seconds
        self._counted_s = 0.0
        self._samples: list[tuple[int, float, int]] = []  # limit, usage since the last, pending
        self._used_before_s = self._sampled_s = 0.0
        for each in applications:
            world.at(each.at_s, partial(self.manager.submit, each), EventOrder.SUBMIT)

    def step(self) -> bool:
        """Run the operator and its follower once; return whether there was work."""
        self._follower.round()
        return bool(self._operator.step())

    def release(self, node: str, amounts: Mapping[str, float]) -> int:
        """End containers of a node as the copilot does; return their number."""
        containers = self.manager.containers_of(node_manager_id(node))
        chosen = choose_containers(
            containers,
            BatchAmounts(int(amounts.get(BATCH_CPU, 0)), int(amounts.get(BATCH_MEMORY, 0))),
            id_of=lambda each: each.container_id,
            amounts_of=lambda each: each.queue.resource.batch(),
        )
        self.manager.end(chosen, ContainerEnd.EVICTED)
        return len(chosen)

    def node_failed(self, node: str) -> None:
        """Stop the containers of a node; YARN notices the failure later."""
        node_id = node_manager_id(node)
        if node_id in self._node_of:
            for container in self.manager.containers_of(node_id):
                self.container_ended(container)
            self.manager.lose_heartbeat(node_id)

    def node_back(self, node: str) -> None:
        """Register the restarted NodeManager of a node."""
        node_id = node_manager_id(node)
        if node_id in self._node_of:
            self.manager.register(node_id)

    # -- ContainerHosts ----------------------------------------------------------------------

    def container_started(self, container: SimulatedContainer) -> None:
        """See ``resource_manager.ContainerHosts``."""
        now_s, row = self._world.now_s, self._row(container)
        self._fleet.count(row, self._demands[container.queue.name], 1)
        self._running[container] = container.container_id, self._fleet.progress(row, now_s)
        self._check_later(container, container.work_s)

    def container_ended(self, container: SimulatedContainer) -> None:
        """See ``resource_manager.ContainerHosts``."""
        if container not in self._running:
            return  # stopped before by a node failure
        left_s = self._left_s(container)
        del self._running[container]
        row, demand = self._row(container), self._demands[container.queue.name]
        self._fleet.count(row, demand, -1)
        if left_s > DONE_S:
            cores = demand.cpu_milli * container.queue.usage.high / _MILLI
            self._lost_core_s += (container.work_s - left_s) * cores

    def _check_later(self, container: SimulatedContainer, left_s: float) -> None:
        now_s = self._world.now_s
        speed = self._fleet.best_effort_speed(self._row(container))
        in_s = self._fleet.may_end_in_s(left_s, speed, now_s)
        check = partial(self._check, container, container.container_id)
        self._world.at(now_s + in_s, check, EventOrder.END)

    def _check(self, container: SimulatedContainer, container_id: str) -> None:
        if self._running.get(container, ("", 0.0))[0] != container_id:
            return  # the attempt has ended
        left_s = self._left_s(container)
        if left_s <= DONE_S:
            self.manager.finish(container)
        else:
            self._check_later(container, left_s)

    def _left_s(self, container: SimulatedContainer) -> float:
        _, began = self._running[container]
        done_s = self._fleet.progress(self._row(container), self._world.now_s) - began
        return max(container.work_s - done_s, 0.0)

    def _row(self, container: SimulatedContainer) -> int:
        return self._fleet.rows[self._node_of[container.node_id]]

    def _demand(self, queue: YarnQueue) -> Demand:
        amounts = queue.resource.batch()
        column = self._fleet.kinds.column(queue.usage)
        return Demand(Tenant.YARN, column, amounts.cpu_milli, amounts.memory_bytes)

    # -- counting ----------------------------------------------------------------------------

    def count(self, used_cores: float, span_s: float) -> None:
        """Add a time span with a usage of containers in cores."""
        self._used_s += used_cores * span_s
        self._limit_s += self.manager.limit_vcores * span_s
        self._counted_s += span_s

    def sample(self) -> None:
        """End a row of the report's columns."""
        span_s = self._counted_s - self._sampled_s
        used = (self._used_s - self._used_before_s) / span_s if span_s else 0.0
        self._samples.append((self.manager.limit_vcores, used, self.manager.waiting))
        self._used_before_s, self._sampled_s = self._used_s, self._counted_s

    def report(self) -> YarnReport:
        """Return the report of the run so far."""
        cores = float(self._fleet.cpu.sum()) / _MILLI
        mean = 1 / (cores * self._counted_s) if self._counted_s else 0.0
        samples = YarnColumns(
            limit_cpu=tuple(limit / cores for limit, _, _ in self._samples),
            used_cpu=tuple(float(used) / cores for _, used, _ in self._samples),
            waiting=tuple(waiting for _, _, waiting in self._samples),
        )
        return YarnReport(
            samples=samples,
            queues=self.manager.totals(),
            limit_cpu=self._limit_s * mean,
            used_cpu=float(self._used_s) * mean,
            core_hours=float(self._used_s) / _HOUR_S,
            lost_core_hours=self._lost_core_s / _HOUR_S,
        )


def _operator(
    cluster: Cluster,
    clock: Clock,
    manager: SimulatedResourceManager,
    settings: YarnSettings,
    policy: YarnPolicy,
) -> tuple[YarnOperator, YarnFollower]:
    follower = YarnFollower(DEFAULT_CLUSTER, lambda: manager, clock)
    options = YarnOptions(policy=policy, shrink_grace_s=parse_grace_s(settings.shrink_grace_period))
    return YarnOperator(cluster, clock, {DEFAULT_CLUSTER: follower}, options), follower
