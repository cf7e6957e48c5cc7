"""CPU suppression and evictions of the node agents, vectorised over nodes.

The suppression is elementwise equal to ``koordlet.qos.cpu_suppress``: ``CpuDemand.headroom_milli``,
``wanted_quota_us`` and the number of ``wanted_cpus`` on a node without exclusive CPUs.  A test
compares both.

Evictions are decided by the agent's own strategies.  A vectorised check selects the few nodes above
a threshold; ``koordlet.qos.node_pressure`` runs for these nodes only.  With YARN containers, the
NodeManager's pod is a candidate, and its containers are ended in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from koordinator.api.labels import COMPONENT, NODE_MANAGER, POD_QOS_CLASS
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_slo import NodeSloSpec, ResourceThresholdStrategy
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.qos import SHIPPED_PRIORITY_CLASSES, PriorityBand, QosClass
from koordinator.domain.cgroups.files import CFS_PERIOD_US, UNLIMITED, CgroupFile, CgroupVersion
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.intents import EndContainers, EvictPod
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.cpu_suppress import (
    MAX_GROWTH,
    MIN_CHANGE,
    MIN_CPUS,
    MIN_QUOTA_US,
)
from koordinator.koordlet.qos.eviction import StrategyInputs, choose_with_copilot
from koordinator.koordlet.qos.node_pressure import (
    BE_CPU_EVICT,
    BE_MEMORY_EVICT,
    cpu_tasks,
    memory_tasks,
)
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.node_view import CFS_QUOTA_POLICY, NodeView
from koordinator.koordlet.view.pods import PodView, pod_view
from koordinator.simulator.colocation.fleet import Fleet, Loads

NOT_STATED = -1

_MILLI = 1000
_PERCENT = 100
_MAX_ROUNDS = 10  # a round adds at most a tenth of the CPUs

_LAYOUT = CgroupLayout(CgroupDriver.CGROUPFS)
_FEATURES = (BE_CPU_EVICT, BE_MEMORY_EVICT)  # the gates that the chart switches on
_MIN_RETENTION_S = 600.0


@dataclass(slots=True)
class NodeThresholds:
    """Thresholds with an entry per node; unset percentages are ``NOT_STATED``."""

    is_enabled: BoolArray
    by_quota: BoolArray  # CPU suppress by cfs quota, not by CPU set
    suppress_percent: IntArray
    suppress_least_percent: IntArray
    satisfaction_percent: IntArray  # lower bound, below which best effort is evicted
    memory_percent: IntArray  # memory usage from which best effort is evicted

    @classmethod
    def none(cls, n_nodes: int) -> "NodeThresholds":
        """Return the thresholds of nodes without a NodeSLO."""
        off, unstated = np.zeros(n_nodes, bool), np.full(n_nodes, NOT_STATED, np.int64)
        return cls(off, off.copy(), *(unstated.copy() for _ in range(4)))

    @property
    def suppresses(self) -> BoolArray:
        """Mask of the nodes with CPU suppression."""
        return self.is_enabled & (self.suppress_percent >= 0)

    def put(self, row: int, slo: NodeSloSpec) -> None:
        """Set the thresholds of a node's NodeSLO, which has its defaults applied."""
        strategy = slo.resource_used_threshold_with_be or ResourceThresholdStrategy()
        self.is_enabled[row] = bool(strategy.enable)
        self.by_quota[row] = strategy.cpu_suppress_policy == CFS_QUOTA_POLICY
        for percents, stated in (
            (self.suppress_percent, strategy.cpu_suppress_threshold_percent),
            (self.suppress_least_percent, strategy.cpu_suppress_min_percent),
            (self.satisfaction_percent, strategy.cpu_evict_be_satisfaction_lower_percent),
            (self.memory_percent, strategy.memory_evict_threshold_percent),
        ):
            percents[row] = NOT_STATED if stated is None else stated


def headroom_milli(
    thresholds: NodeThresholds, capacity: IntArray, services: IntArray, system: IntArray
) -> IntArray:
    """Return the milli-CPU left for best effort on each node; may be negative."""
    headroom = capacity * thresholds.suppress_percent // _PERCENT - services - system
    least = capacity * thresholds.suppress_least_percent // _PERCENT
    return np.where(thresholds.suppress_least_percent >= 0, np.maximum(headroom, least), headroom)


def next_quota_us(capacity: IntArray, headroom: IntArray, current: IntArray) -> IntArray:
    """Return the quotas after one round."""
    wanted = np.maximum(headroom * CFS_PERIOD_US // _MILLI, MIN_QUOTA_US)
    whole = -(-capacity // _MILLI) * CFS_PERIOD_US
    stays = (np.abs(wanted - current) < whole * MIN_CHANGE) & (wanted != MIN_QUOTA_US)
    grown = np.minimum(wanted, current + (whole * MAX_GROWTH).astype(np.int64))
    after: IntArray = np.where(current == UNLIMITED, wanted, np.where(stays, current, grown))
    return after


def next_cpus(cpus: IntArray, headroom: IntArray, current: IntArray) -> IntArray:
    """Return the numbers of CPUs after one round; a number above ``cpus`` leaves it unchanged."""
    growth = np.ceil(cpus * MAX_GROWTH).astype(np.int64)
    wanted = np.minimum(np.maximum(-(-headroom // _MILLI), MIN_CPUS), current + growth)
    after: IntArray = np.where(wanted > cpus, current, wanted)
    return after


class Suppressor:
    """State of the best-effort CPU limit on each node, in milli-CPU."""

    def __init__(self, capacity: IntArray, thresholds: NodeThresholds) -> None:
        self._capacity = capacity
        self._cpus = -(-capacity // _MILLI)
        self._thresholds = thresholds
        self._quota = np.full(len(capacity), UNLIMITED, np.int64)
        self._count = self._cpus.copy()

    @property
    def limit(self) -> FloatArray:
        """CPU limit of best effort, ``(n_nodes,)``."""
        by_quota = np.where(
            self._quota == UNLIMITED, self._capacity, self._quota * (_MILLI / CFS_PERIOD_US)
        )
        least: FloatArray = np.minimum(by_quota, self._count * float(_MILLI))
        return least

    def converge(self, services: IntArray, system: IntArray) -> None:
        """Run the rounds of ten seconds of constant load."""
        thresholds = self._thresholds
        headroom = headroom_milli(thresholds, self._capacity, services, system)
        by_quota = thresholds.suppresses & thresholds.by_quota
        by_cpus = thresholds.suppresses & ~thresholds.by_quota
        for _ in range(_MAX_ROUNDS):
            quota = next_quota_us(self._capacity, headroom, self._quota)
            quota = np.where(by_quota, quota, UNLIMITED)
            count = np.where(by_cpus, next_cpus(self._cpus, headroom, self._count), self._cpus)
            if np.array_equal(quota, self._quota) and np.array_equal(count, self._count):
                return
            self._quota, self._count = quota, count


class _NoCgroups:
    """Cgroup reader without data; the eviction strategies read none."""

    version = CgroupVersion.V2

    def number(self, file: CgroupFile, folder: str) -> int | None: ...

    def cpus(self, folder: str) -> int | None: ...

    def lines(self, file: CgroupFile, folder: str) -> Sequence[str]:  # noqa: ARG002 -- the protocol's
        return ()

    def below(self, folder: str) -> Sequence[str]:  # noqa: ARG002 -- the protocol's
        return ()


@dataclass(frozen=True, slots=True)
class FleetState:
    """State of all nodes at one time; milli-CPU by node except ``shares``."""

    now_s: float
    loads: Loads
    shares: FloatArray  # used share of the CPU requests, by kind
    limit: FloatArray  # CPU limit of best effort
    granted: FloatArray  # CPU used by best effort


@dataclass(frozen=True, slots=True)
class Evictions:
    """Pods to evict, and amounts that YARN containers must release, by node."""

    pods: list[EvictPod] = field(default_factory=list)
    containers: dict[str, EndContainers] = field(default_factory=dict)


class Evictors:
    """Eviction part of the node agents."""

    def __init__(
        self, fleet: Fleet, nodes: Sequence[Node], thresholds: NodeThresholds, step_s: float
    ) -> None:
        self._fleet = fleet
        self._thresholds = thresholds
        self._nodes = nodes
        self._step_s = step_s
        self._stores: dict[int, MetricStore] = {}  # of the nodes above a threshold, by row

    def victims(self, slos: Mapping[int, NodeSloSpec], moment: FleetState) -> Evictions:
        """Return the current evictions of the node agents; ``slos`` are by row."""
        evictions = Evictions()
        rows = np.flatnonzero(self._over_threshold(moment)).tolist()
        for row in self._stores.keys() - set(rows):
            del self._stores[row]
        for row in rows:
            victims, containers = self._evaluate(row, slos[row], moment)
            evictions.pods.extend(victims)
            if containers is not None and containers.amounts:
                evictions.containers[self._fleet.names[row]] = containers
        return evictions

    def _over_threshold(self, moment: FleetState) -> BoolArray:
        """Return a superset of the nodes where a strategy evicts."""
        thresholds, fleet = self._thresholds, self._fleet
        requested, loads = fleet.best_effort_requested, moment.loads
        used = (loads.services_memory + loads.best_effort_memory) * _PERCENT
        hungry = moment.limit * _PERCENT <= requested * thresholds.satisfaction_percent
        full = (thresholds.memory_percent >= 0) & (used >= thresholds.memory_percent * fleet.memory)
        has_some = (requested > 0) | (loads.yarn_memory > 0)
        over: BoolArray = thresholds.is_enabled & has_some & (hungry | full)
        return over

    def _evaluate(
        self, row: int, slo: NodeSloSpec, moment: FleetState
    ) -> tuple[list[EvictPod], EndContainers | None]:
        fleet, now_s, loads = self._fleet, moment.now_s, moment.loads
        granted = float(moment.granted[row])
        threshold = slo.resource_used_threshold_with_be
        window_s = float(threshold.cpu_evict_time_window_seconds or 0) if threshold else 0.0
        store = self._stores.get(row)
        if store is None:
            retention_s = max(window_s, _MIN_RETENTION_S) + self._step_s
            store = self._stores[row] = MetricStore(retention_s, self._step_s)
        wanted = max(float(loads.best_effort_cpu[row]), 1.0)
        speed = granted / wanted
        used_memory = float(loads.services_memory[row] + loads.best_effort_memory[row])
        store.add(Metric.NODE_MEMORY, "", now_s, used_memory)
        store.add(Metric.BE_CPU, "", now_s, granted / _MILLI)
        store.add(Metric.BE_CPU_LIMIT, "", now_s, float(moment.limit[row]))
        store.add(Metric.BE_CPU_REQUEST, "", now_s, float(fleet.best_effort_requested[row]))
        pods = []
        for resident in fleet.residents[row].values():
            uid, kind = resident.pod.metadata.uid, fleet.kinds.kinds[resident.column]
            factor = speed if resident.is_best_effort else float(fleet.noise[row])
            cores = resident.cpu_milli * float(moment.shares[resident.column]) * factor / _MILLI
            store.add(Metric.POD_CPU, uid, now_s, cores)
            store.add(Metric.POD_MEMORY, uid, now_s, resident.memory_bytes * kind.memory)
            pods.append(pod_view(resident.pod, _LAYOUT))
        runtimes: tuple[str, ...] = ()
        if loads.yarn_memory[row] > 0:
            runtimes = (_NODE_MANAGER.uid,)
            pods.append(_NODE_MANAGER)  # without usage: its containers have separate cgroups
            store.add(Metric.POD_CPU, _NODE_MANAGER.uid, now_s, 0.0)
            store.add(Metric.POD_MEMORY, _NODE_MANAGER.uid, now_s, 0.0)
        machine = Machine(self._nodes[row], ())
        view = NodeView(now_s, machine, slo, tuple(pods), _LAYOUT, _NoCgroups())
        inputs = StrategyInputs(view, store, self._step_s)
        tasks = cpu_tasks(inputs, _FEATURES) + memory_tasks(inputs, _FEATURES)
        return choose_with_copilot(tasks, (), runtimes)


def _node_manager() -> PodView:
    """Return the pod of a NodeManager with the labels of docs/how-to/run-yarn.md."""
    own = {COMPONENT: NODE_MANAGER, POD_QOS_CLASS: QosClass.BE}
    meta = ObjectMeta(name="node-manager", namespace="hadoop-yarn", uid="node-manager", labels=own)
    spec = PodSpec(containers=(), priority=SHIPPED_PRIORITY_CLASSES[PriorityBand.BATCH])
    return pod_view(Pod(metadata=meta, spec=spec), _LAYOUT)


_NODE_MANAGER = _node_manager()
