"""The node agent's evictions of best-effort pods: the real strategies, where something is amiss.

Most nodes are well at most times, which a look at all of them at once tells; only the others are
put before ``koordlet.qos.cpu_evict`` and ``memory_evict``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.api.node import Node
from koordinator.api.node_slo import NodeSloSpec
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout
from koordinator.koordlet.intents import EvictPod
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.cpu_evict import SATISFACTION, cpu_tasks
from koordinator.koordlet.qos.eviction import choose_victims
from koordinator.koordlet.qos.inputs import StrategyInputs
from koordinator.koordlet.qos.memory_evict import BEST_EFFORT, memory_tasks
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import pod_view
from koordinator.scheduler.snapshot.axis import BoolArray
from koordinator.simulator.axes import FloatArray
from koordinator.simulator.colocation.fleet import Fleet, Loads
from koordinator.simulator.colocation.thresholds import NodeThresholds

_LAYOUT = CgroupLayout(CgroupDriver.CGROUPFS)
_FEATURES = (SATISFACTION, BEST_EFFORT)  # the gates that the chart switches on
_LEAST_RETENTION_S = 600.0
_MILLI = 1000
_PERCENT = 100


class _NoCgroups:
    """Evictions read none."""

    def number(self, file: CgroupFile, folder: str) -> int | None: ...

    def cpus(self, folder: str) -> int | None: ...

    def lines(self, file: CgroupFile, folder: str) -> Sequence[str]:  # noqa: ARG002 -- the protocol's
        return ()

    def below(self, folder: str) -> Sequence[str]:  # noqa: ARG002 -- the protocol's
        return ()


@dataclass(frozen=True, slots=True)
class Moment:
    """What is known of all nodes; milli-CPU by node but for ``shares``."""

    now_s: float
    loads: Loads
    shares: FloatArray  # of the CPU requests in use, by kind
    limit: FloatArray  # what best effort may use
    granted: FloatArray  # what it does


class Evictors:
    """The evicting part of the node agents."""

    def __init__(
        self, fleet: Fleet, nodes: Sequence[Node], thresholds: NodeThresholds, step_s: float
    ) -> None:
        self._fleet = fleet
        self._thresholds = thresholds
        self._nodes = nodes
        self._step_s = step_s
        self._stores: dict[int, MetricStore] = {}  # of the nodes where something is amiss

    def victims(self, slos: Mapping[int, NodeSloSpec], moment: Moment) -> list[EvictPod]:
        """Return whom the node agents evict now; ``slos`` are by row."""
        found: list[EvictPod] = []
        rows = np.flatnonzero(self._amiss(moment)).tolist()
        for row in self._stores.keys() - set(rows):
            del self._stores[row]
        for row in rows:
            found += self._look_at(row, slos[row], moment)
        return found

    def _amiss(self, moment: Moment) -> BoolArray:
        """Return the nodes where a strategy may find something to do, and some more."""
        thresholds, fleet = self._thresholds, self._fleet
        requested, loads = fleet.best_effort_requested, moment.loads
        used = (loads.services_memory + loads.best_effort_memory) * _PERCENT
        hungry = moment.limit * _PERCENT <= requested * thresholds.satisfaction_percent
        full = (thresholds.memory_percent >= 0) & (used >= thresholds.memory_percent * fleet.memory)
        amiss: BoolArray = thresholds.is_enabled & (requested > 0) & (hungry | full)
        return amiss

    def _look_at(self, row: int, slo: NodeSloSpec, moment: Moment) -> list[EvictPod]:
        fleet, now_s, loads = self._fleet, moment.now_s, moment.loads
        granted = float(moment.granted[row])
        threshold = slo.resource_used_threshold_with_be
        window_s = float(threshold.cpu_evict_time_window_seconds or 0) if threshold else 0.0
        store = self._stores.get(row)
        if store is None:
            retention_s = max(window_s, _LEAST_RETENTION_S) + self._step_s
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
        machine = Machine(self._nodes[row], ())
        view = NodeView(now_s, machine, slo, tuple(pods), _LAYOUT, _NoCgroups())
        inputs = StrategyInputs(view, store, self._step_s)
        tasks = cpu_tasks(inputs, _FEATURES) + memory_tasks(inputs, _FEATURES)
        return choose_victims(tasks, ())
