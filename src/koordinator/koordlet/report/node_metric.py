"""Status of the NodeMetric object.

Source: koordinator pkg/koordlet/statesinformer/impl/states_nodemetric.go.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from koordinator.api.device import DeviceInfo, DeviceType
from koordinator.api.node_metric import (
    AggregatedUsage,
    AggregationType,
    HostApplicationUsage,
    MetricCollectPolicy,
    NodeMetricSpec,
    NodeMetricStatus,
    NodeUsage,
    NumaUsage,
    PodUsage,
    ResourceEstimate,
    ResourceMap,
)
from koordinator.api.node_slo import HostApplication
from koordinator.api.resource_names import CPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, MEMORY
from koordinator.foundation.clock import Duration, to_datetime
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.host.gpus import Gpu
from koordinator.koordlet.metrics import (
    MEMORY_METRICS,
    WITH_HOT_PAGES,
    WITHOUT_PAGE_CACHE,
    Aggregate,
    MemoryMetrics,
    Metric,
    MetricStore,
)
from koordinator.koordlet.prediction.reclaimable import PredictedAmounts, Prediction
from koordinator.koordlet.view.pods import PodView

DEFAULT_REPORT_S: Final = 60
MIN_REPORT_S: Final = 30
DEFAULT_AGGREGATE_S: Final = 300
MIN_AGGREGATE_S: Final = 60
DEFAULT_DURATIONS: Final = (Duration(minutes=5), Duration(minutes=10), Duration(minutes=30))
_WARM_SHARE = 0.5  # minimum share of a window that its samples span

_Number = Callable[[Aggregate], float]
_AGGREGATIONS: Mapping[AggregationType, _Number] = {
    AggregationType.AVG: Aggregate.average,
    AggregationType.P50: lambda aggregate: aggregate.percentile(0.5),
    AggregationType.P90: lambda aggregate: aggregate.percentile(0.9),
    AggregationType.P95: lambda aggregate: aggregate.percentile(0.95),
    AggregationType.P99: lambda aggregate: aggregate.percentile(0.99),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPolicy:
    """Interval and windows of the report, in seconds."""

    report_s: int = DEFAULT_REPORT_S
    aggregate_s: int = DEFAULT_AGGREGATE_S
    durations: tuple[Duration, ...] = DEFAULT_DURATIONS
    memory: str = "usageWithoutPageCache"

    @property
    def longest_s(self) -> float:
        """Longest window for which samples are needed."""
        windows = (duration.total_seconds() for duration in self.durations)
        return max(self.aggregate_s, *windows, 0.0)


def report_policy(spec: NodeMetricSpec) -> ReportPolicy:
    """Return the policy of the NodeMetric, with defaults and lower bounds applied."""
    stated = spec.metric_collect_policy or MetricCollectPolicy()
    report_s, aggregate_s = stated.report_interval_seconds, stated.aggregate_duration_seconds
    windows = stated.node_aggregate_policy
    return ReportPolicy(
        report_s=DEFAULT_REPORT_S if report_s is None else max(report_s, MIN_REPORT_S),
        aggregate_s=(
            DEFAULT_AGGREGATE_S if aggregate_s is None else max(aggregate_s, MIN_AGGREGATE_S)
        ),
        durations=DEFAULT_DURATIONS if windows is None else windows.durations,
        memory=stated.node_memory_collect_policy or "usageWithoutPageCache",
    )


def policy_problem(spec: NodeMetricSpec) -> str:
    """Describe the intervals of a NodeMetric below the minimum; empty if there is none."""
    stated = spec.metric_collect_policy or MetricCollectPolicy()
    minima = {
        "reportIntervalSeconds": (stated.report_interval_seconds, MIN_REPORT_S),
        "aggregateDurationSeconds": (stated.aggregate_duration_seconds, MIN_AGGREGATE_S),
    }
    return "; ".join(
        f"spec.metricCollectPolicy.{name}: must be at least {bound}, got {value}: {bound} is used"
        for name, (value, bound) in minima.items()
        if value is not None and value < bound
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricReport:
    """Inputs of a status.

    ``knows_hot_pages`` is whether the kernel reports hot pages; otherwise usage is reported
    without page cache.
    """

    store: MetricStore
    policy: ReportPolicy
    pods: Sequence[PodView]
    host_applications: Sequence[HostApplication]
    numa_nodes: Sequence[int]
    gpus: Sequence[Gpu] = ()
    knows_hot_pages: bool = False

    def reported_pods(self, now_s: float) -> list[PodView]:
        """Return the active pods with samples, for which a prediction is made."""
        return [pod for pod in self._active if self._pod_usage(pod.uid, now_s) is not None]

    def status(self, now_s: float, prediction: Prediction | None) -> NodeMetricStatus | None:
        """Return the status; None without samples of the node itself."""
        node = self._node_usage(now_s, self.policy.aggregate_s, AggregationType.AVG)
        if node is None:
            return None
        system = self._system_usage(now_s, self.policy.aggregate_s, AggregationType.AVG)
        return NodeMetricStatus(
            update_time=to_datetime(now_s),
            node_metric=NodeUsage(
                node_usage=node,
                aggregated_node_usages=self._windows(self._node_usage, now_s),
                system_usage=system or ResourceMap(),
                aggregated_system_usages=self._windows(self._system_usage, now_s),
                numa_usages=self._numa_usages(now_s),
            ),
            pods_metric=self._pods(now_s),
            host_application_metric=self._host_applications(now_s),
            prod_reclaimable_metric=_estimate(prediction.reclaimable if prediction else None),
            prod_peak_metric=_estimate(prediction.peak) if prediction else None,
        )

    @property
    def _active(self) -> list[PodView]:
        return [pod for pod in self.pods if pod.is_active]

    @property
    def _memory(self) -> MemoryMetrics:
        metrics = MEMORY_METRICS.get(self.policy.memory, WITHOUT_PAGE_CACHE)
        has_no_samples = metrics is WITH_HOT_PAGES and not self.knows_hot_pages
        return WITHOUT_PAGE_CACHE if has_no_samples else metrics

    def _node_usage(
        self, now_s: float, window_s: float, kind: AggregationType, *, warm: bool = False
    ) -> ResourceMap | None:
        metrics = (Metric.NODE_CPU, self._memory.node)
        usage = self._usage(metrics, "", now_s, window_s, kind, warm=warm)
        if usage is None:
            return None
        return ResourceMap(
            resources=usage.resources, devices=self._gpu_usage("", now_s, window_s, kind)
        )

    def _system_usage(
        self, now_s: float, window_s: float, kind: AggregationType, *, warm: bool = False
    ) -> ResourceMap | None:
        metrics = (Metric.SYSTEM_CPU, self._memory.system)
        return self._usage(metrics, "", now_s, window_s, kind, warm=warm)

    def _usage(
        self,
        metrics: tuple[Metric, Metric],
        owner: str,
        now_s: float,
        window_s: float,
        kind: AggregationType,
        *,
        warm: bool = False,
    ) -> ResourceMap | None:
        cpu, memory = (
            self.store.between(metric, owner, now_s - window_s, now_s) for metric in metrics
        )
        if cpu is None or memory is None:
            return None
        if warm and cpu.span_s < window_s * _WARM_SHARE:
            return None
        number = _AGGREGATIONS[kind]
        return _resource_map(int(number(cpu) * 1000), int(number(memory)))

    def _windows(
        self, usage: Callable[..., ResourceMap | None], now_s: float
    ) -> tuple[AggregatedUsage, ...]:
        windows = []
        for duration in self.policy.durations:
            window_s = duration.total_seconds()
            usages = {kind: usage(now_s, window_s, kind, warm=True) for kind in _AGGREGATIONS}
            windows.append(
                AggregatedUsage(
                    usage={str(kind): usage or ResourceMap() for kind, usage in usages.items()}
                    if any(usages.values())
                    else {},
                    duration=duration,
                )
            )
        return tuple(windows)

    def _numa_usages(self, now_s: float) -> tuple[NumaUsage, ...]:
        usages = []
        for node in self.numa_nodes:
            of_node, of_system = (
                self._usage(metrics, str(node), now_s, self.policy.aggregate_s, AggregationType.AVG)
                for metrics in (
                    (Metric.NUMA_CPU, Metric.NUMA_MEMORY),
                    (Metric.SYSTEM_NUMA_CPU, Metric.SYSTEM_NUMA_MEMORY),
                )
            )
            if of_node is not None:
                system = of_system or ResourceMap()
                usages.append(NumaUsage(numa_node_id=node, node_usage=of_node, system_usage=system))
        return tuple(usages)

    def _pod_usage(self, uid: str, now_s: float) -> ResourceMap | None:
        metrics = (Metric.POD_CPU, self._memory.pod)
        return self._usage(metrics, uid, now_s, self.policy.aggregate_s, AggregationType.AVG)

    def _pods(self, now_s: float) -> tuple[PodUsage, ...]:
        usages = []
        for pod in self._active:
            usage = self._pod_usage(pod.uid, now_s)
            if usage is None:
                continue
            window_s = self.policy.aggregate_s
            devices = self._gpu_usage(f"{pod.uid}/", now_s, window_s, AggregationType.AVG)
            meta = pod.pod.metadata
            usages.append(
                PodUsage(
                    name=meta.name,
                    namespace=meta.namespace,
                    pod_usage=ResourceMap(resources=usage.resources, devices=devices),
                    priority=pod.band,
                    qos=pod.qos,
                )
            )
        return tuple(sorted(usages, key=lambda usage: (usage.namespace, usage.name)))

    def _host_applications(self, now_s: float) -> tuple[HostApplicationUsage, ...]:
        metrics = (Metric.HOST_APP_CPU, self._memory.host_application)
        window_s = self.policy.aggregate_s
        usages = []
        for application in sorted(self.host_applications, key=lambda each: each.name):
            usage = self._usage(metrics, application.name, now_s, window_s, AggregationType.AVG)
            if usage is not None:
                usages.append(
                    HostApplicationUsage(
                        name=application.name,
                        usage=usage,
                        priority=application.priority,
                        qos=application.qos,
                    )
                )
        return tuple(usages)

    def _gpu_usage(
        self, owner: str, now_s: float, window_s: float, kind: AggregationType
    ) -> tuple[DeviceInfo, ...]:
        """Return the GPU usage of a pod (``owner`` is ``uid/``), or of the node (empty)."""
        core_metric = Metric.POD_GPU_CORE if owner else Metric.NODE_GPU_CORE
        memory_metric = Metric.POD_GPU_MEMORY if owner else Metric.NODE_GPU_MEMORY
        infos = []
        for gpu in self.gpus:
            key, start_s = f"{owner}{gpu.minor}", now_s - window_s
            core = self.store.between(core_metric, key, start_s, now_s)
            memory = self.store.between(memory_metric, key, start_s, now_s)
            if core is None or memory is None:
                continue
            number = _AGGREGATIONS[kind]
            used = number(memory)
            infos.append(
                DeviceInfo(
                    type=DeviceType.GPU,
                    id=gpu.uuid,
                    minor=gpu.minor,
                    resources={
                        GPU_CORE: Quantity.from_int(int(number(core))),
                        GPU_MEMORY: Quantity.from_int(int(used), binary=True),
                        GPU_MEMORY_RATIO: Quantity.from_int(
                            int(100 * used / gpu.memory_bytes) if gpu.memory_bytes else 0
                        ),
                    },
                )
            )
        return tuple(infos)


def _resource_map(cpu_milli: int, memory_bytes: int) -> ResourceMap:
    return ResourceMap(
        resources={
            CPU: Quantity.from_milli(cpu_milli),
            MEMORY: Quantity.from_int(memory_bytes, binary=True),
        }
    )


def _estimate(amounts: PredictedAmounts | None) -> ResourceEstimate:
    if amounts is None:
        return ResourceEstimate()
    return ResourceEstimate(resource=_resource_map(amounts.cpu_milli, amounts.memory_bytes))
