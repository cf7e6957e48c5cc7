"""NodeMetric reports of the node agents, one per node and report interval.

Usage is the current usage, without aggregation.  The reclaimable amounts of prod pods are predicted
from one histogram over all prod pods of a node; the node agent also has one for each pod.

Source: koordinator pkg/koordlet/statesinformer/impl/states_nodemetric.go;
pkg/koordlet/prediction/peak_predictor.go.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from koordinator.api.core import ResourceList
from koordinator.api.node_metric import (
    HostApplicationUsage,
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    ResourceEstimate,
    ResourceMap,
)
from koordinator.api.qos import PriorityBand, QosClass
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.arrays import FloatArray
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import NotFoundError
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.prediction.models import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    DecayingHistogram,
    PredictionOptions,
)
from koordinator.simulator.colocation.fleet import Fleet, Loads, ResidentPod

_DEFAULT_INTERVAL_S = 60.0
_PROTECTED = (PriorityBand.PROD, PriorityBand.NONE)
_CPU_SHARE, _MEMORY_SHARE = 0.95, 0.98
_MILLI = 1000
_YARN = "yarn-task"  # as docs/how-to/run-yarn.md calls it
_NO_USE = ResourceMap(resources={CPU: Quantity(0), MEMORY: Quantity(0)})


class _Forecast:
    """Predicted peak of the prod pods of one node."""

    def __init__(self, options: PredictionOptions) -> None:
        self._options = options
        self._cpu = DecayingHistogram(CPU_BUCKETS, options.cpu_half_life_s)
        self._memory = DecayingHistogram(MEMORY_BUCKETS, options.memory_half_life_s)

    def train(self, cores: float, memory_bytes: float, now_s: float) -> None:
        self._cpu.add(cores, now_s)
        self._memory.add(memory_bytes, now_s)

    def peak(self) -> tuple[float, float]:
        """Return milli-CPU and bytes."""
        margin = 1 + self._options.safety_margin_percent / 100
        cpu = self._cpu.percentile(_CPU_SHARE) * _MILLI * margin
        return cpu, self._memory.percentile(_MEMORY_SHARE) * margin


class Reporters:
    """Report part of the node agents."""

    def __init__(self, fleet: Fleet, cluster: MemoryCluster) -> None:
        self._fleet = fleet
        self._cluster = cluster
        self._options = PredictionOptions()
        self._next_s = np.zeros(len(fleet.names))
        self._forecasts = [_Forecast(self._options) for _ in fleet.names]

    def report(
        self, now_s: float, shares: FloatArray, speed: FloatArray, loads: Loads, up: FloatArray
    ) -> int:
        """Write the due reports; return their number.

        ``shares`` are the used shares of the CPU requests by kind, ``speed`` the granted share of
        the best-effort demand by node; ``up`` is 0 for a failed node, which does not report.
        """
        yarn_cpu = np.minimum(speed, 1.0) * loads.yarn_cpu
        written = 0
        by_kind = shares.tolist()
        for row in np.flatnonzero((self._next_s <= now_s) & (up > 0)).tolist():
            try:
                metric = self._cluster.get(NodeMetric, self._fleet.names[row])
            except NotFoundError:
                continue  # the manager has not created it yet
            yarn = int(yarn_cpu[row]), int(loads.yarn_memory[row])
            status = self._status(row, now_s, by_kind, float(speed[row]), yarn)
            self._cluster.update_status(replace(metric, status=status))
            policy = metric.spec.metric_collect_policy
            stated = policy.report_interval_seconds if policy is not None else None
            self._next_s[row] = now_s + (stated or _DEFAULT_INTERVAL_S)
            written += 1
        return written

    def _status(
        self,
        row: int,
        now_s: float,
        shares: Sequence[float],
        speed: float,
        yarn: tuple[int, int],
    ) -> NodeMetricStatus:
        fleet = self._fleet
        noise = float(fleet.noise[row])
        node_cpu, node_memory = yarn
        prod_cpu = prod_memory = 0
        pods = []
        for resident in fleet.residents[row].values():
            factor = speed if resident.is_best_effort else noise
            cpu = int(resident.cpu_milli * min(shares[resident.column] * factor, 1.0))
            memory = resident.memory_in_use.value()
            node_cpu, node_memory = node_cpu + cpu, node_memory + memory
            if resident.band in _PROTECTED:
                prod_cpu, prod_memory = prod_cpu + cpu, prod_memory + memory
            pods.append(_pod_usage(resident, cpu))
        node_cpu = min(node_cpu, int(fleet.cpu[row]))
        forecast = self._forecasts[row]
        forecast.train(prod_cpu / _MILLI, prod_memory, now_s)
        return NodeMetricStatus(
            update_time=to_datetime(now_s),
            node_metric=NodeUsage(node_usage=_amounts(node_cpu, node_memory), system_usage=_NO_USE),
            pods_metric=tuple(pods),
            host_application_metric=_host_applications(*yarn),
            prod_reclaimable_metric=self._reclaimable(row, now_s, forecast),
        )

    def _reclaimable(self, row: int, now_s: float, forecast: _Forecast) -> ResourceEstimate:
        """Return the requests that prod pods beyond the cold start are not expected to use."""
        fleet = self._fleet
        known = [
            resident
            for resident in fleet.residents[row].values()
            if resident.band in _PROTECTED and now_s - resident.since_s > self._options.cold_start_s
        ]
        cpu_peak, memory_peak = forecast.peak()
        requested_cpu = sum(resident.cpu_milli for resident in known)
        requested_memory = sum(resident.memory_bytes for resident in known)
        cpu = min(requested_cpu, int(fleet.cpu[row])) - cpu_peak
        memory = min(requested_memory, int(fleet.memory[row])) - memory_peak
        return ResourceEstimate(resource=_amounts(max(int(cpu), 0), max(int(memory), 0)))


def _pod_usage(resident: ResidentPod, cpu_milli: int) -> PodUsage:
    meta = resident.pod.metadata
    used = {CPU: Quantity.from_milli(cpu_milli), MEMORY: resident.memory_in_use}
    return PodUsage(
        name=meta.name,
        namespace=meta.namespace,
        pod_usage=ResourceMap(resources=used),
        priority=resident.band,
        qos=resident.qos,
    )


def _host_applications(cpu_milli: int, memory_bytes: int) -> tuple[HostApplicationUsage, ...]:
    """Return the usage of YARN containers as a host application of priority batch."""
    if not cpu_milli and not memory_bytes:
        return ()
    usage = _amounts(cpu_milli, memory_bytes)
    return (
        HostApplicationUsage(name=_YARN, usage=usage, priority=PriorityBand.BATCH, qos=QosClass.BE),
    )


def _amounts(cpu_milli: int, memory_bytes: int) -> ResourceMap:
    resources: ResourceList = {
        CPU: Quantity.from_milli(cpu_milli),
        MEMORY: Quantity.from_int(memory_bytes, binary=True),
    }
    return ResourceMap(resources=resources)
