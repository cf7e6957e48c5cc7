"""Evictions of best-effort pods by the node agent's own strategies.

A vectorised check selects the few nodes above a threshold; ``koordlet.qos.cpu_evict`` and
``memory_evict`` run for these nodes only.  With YARN containers, the NodeManager's pod is a
candidate, and its containers are ended in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from koordinator.api.labels import COMPONENT, NODE_MANAGER, POD_QOS_CLASS
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_slo import NodeSloSpec
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.qos import SHIPPED_PRIORITY_CLASSES, PriorityBand, QosClass
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout
from koordinator.foundation.arrays import BoolArray, FloatArray
from koordinator.koordlet.intents import EndContainers, EvictPod
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.evict import BEST_EFFORT, SATISFACTION, cpu_tasks, memory_tasks
from koordinator.koordlet.qos.eviction import StrategyInputs, choose_with_copilot
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView, pod_view
from koordinator.simulator.colocation.fleet import Fleet, Loads
from koordinator.simulator.colocation.suppression import NodeThresholds

_LAYOUT = CgroupLayout(CgroupDriver.CGROUPFS)
_FEATURES = (SATISFACTION, BEST_EFFORT)  # the gates that the chart switches on
_MIN_RETENTION_S = 600.0
_MILLI = 1000
_PERCENT = 100


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
class Moment:
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

    def victims(self, slos: Mapping[int, NodeSloSpec], moment: Moment) -> Evictions:
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

    def _over_threshold(self, moment: Moment) -> BoolArray:
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
        self, row: int, slo: NodeSloSpec, moment: Moment
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
