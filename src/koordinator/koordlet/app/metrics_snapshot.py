"""Metrics of pods, containers and host applications, computed at each scrape.

A deleted pod leaves no series behind, and nothing is computed without a scrape.  The loop
publishes a new snapshot; the threads of the metrics server only read it.
Source: koordinator pkg/koordlet/metrics: cpi.go, psi.go, resctrl.go, host_application.go,
core_sched.go, resource_summary.go, cpu_cpuset.go, node_metric.go, cpu_burst.go, common.go;
external_metrics.go for the metrics of users.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from koordinator.api.core import ResourceList
from koordinator.api.node_metric import NodeMetricStatus, ResourceMap
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import bits_of
from koordinator.koordlet.collectors.performance import CYCLE, INSTRUCTION, Pressures
from koordinator.koordlet.hooks.batch_resources import plan_oom_scores
from koordinator.koordlet.intents import SetOomScore
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.view.cpus import CpuPools, cpu_pools
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import ContainerView, PodView

log = logging.getLogger(__name__)

Row = tuple[tuple[str, ...], float]  # label values without the node's, and the sample

_FRESH_S: Final = 300.0
_POD = ("pod_uid", "pod_name", "pod_namespace")
_CONTAINER = ("container_id", "container_name", *_POD)
_PSI = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")
_PRECISIONS = ("avg10", "avg60", "avg300")
_UNITS = {BATCH_CPU: "integer", MID_CPU: "integer", BATCH_MEMORY: "byte", MID_MEMORY: "byte"}

_AMOUNT = ("resource", "unit")
_SCALED = ("pod_namespace", "pod_name", "container_id", "container_name")


@dataclass(frozen=True, kw_only=True)
class MetricsSnapshot:
    """Inputs of the metrics.

    ``cookies`` are the core scheduling group and cookie by cgroup folder.  ``usage`` None omits the
    NodeMetric series.  ``burst`` has the value that CPU burst requested last, by file and folder;
    ``evictions`` counts by reason, ``recent_evictions`` by namespace, name and reason.
    """

    view: NodeView
    store: MetricStore
    pressures: Pressures
    cookies: Mapping[str, tuple[str, int]]
    shows_each_cpu: bool = False
    shows_oom_scores: bool = False
    usage: NodeMetricStatus | None = None
    burst: Mapping[tuple[CgroupFile, str], str] = field(default_factory=dict)
    cookie_outcomes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    evictions: Mapping[str, int] = field(default_factory=dict)
    recent_evictions: Mapping[tuple[str, str, str], int] = field(default_factory=dict)

    @cached_property
    def pools(self) -> CpuPools:
        """Shared CPU pools, computed at a scrape only because all annotations are read."""
        return cpu_pools(self.view)

    def containers(self) -> Iterator[tuple[ContainerView, tuple[str, ...]]]:
        """Yield the containers of active pods with their label values."""
        for pod in self.view.active_pods:
            for each in pod.containers:
                yield each, (each.id, each.name, *_pod_labels(pod))

    def last(self, metric: Metric, owner: str) -> float | None:
        """Return the newest sample; None if it is older than five minutes."""
        return self.store.last(metric, owner, self.view.now_s - _FRESH_S)


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    text: str
    labels: tuple[str, ...]
    rows: Callable[[MetricsSnapshot], Iterable[Row]]
    external: bool = False  # for users, not about the agent itself


class SnapshotCollector(Collector):
    """Collector over the snapshot published last; each series has the label ``node``.

    ``external`` selects the metrics for users, otherwise those about the agent itself.
    """

    def __init__(self, node: str, *, external: bool) -> None:
        self._node = node
        self._families = [each for each in FAMILIES if each.external is external]
        self._snapshot: MetricsSnapshot | None = None

    def publish(self, snapshot: MetricsSnapshot) -> None:
        """Replace the snapshot."""
        self._snapshot = snapshot

    def collect(self) -> Iterator[GaugeMetricFamily]:
        snapshot = self._snapshot
        if snapshot is None:
            return
        for family in self._families:
            metric = GaugeMetricFamily(
                f"koordlet_{family.name}", family.text, labels=("node", *family.labels)
            )
            try:
                for labels, value in family.rows(snapshot):
                    metric.add_metric((self._node, *labels), value)
            except Exception:  # a failing family must not hide the others
                log.exception("metric not collected", extra={"metric": metric.name})
                continue
            yield metric


def _cpi(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for container, labels in snapshot.containers():
        for kind in (CYCLE, INSTRUCTION):
            sample = snapshot.last(Metric.CONTAINER_CPI, f"{container.id}/{kind}")
            if sample is not None:
                yield (*labels, f"{kind}s"), sample


def _container_psi(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for container, labels in snapshot.containers():
        yield from _psi(snapshot, container.id, labels)


def _pod_psi(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for pod in snapshot.view.active_pods:
        yield from _psi(snapshot, pod.uid, _pod_labels(pod))


def _psi(snapshot: MetricsSnapshot, owner: str, labels: tuple[str, ...]) -> Iterator[Row]:
    for resource, pressure in snapshot.pressures.get(owner, {}).items():
        has_full = str(pressure.full is not None).lower()
        for degree, averages in (("some", pressure.some), ("full", pressure.full or ())):
            for precision, value in zip(_PRECISIONS, averages, strict=False):
                yield (*labels, resource, precision, degree, has_full), value


def _scaled(file: CgroupFile) -> Callable[[MetricsSnapshot], Iterable[Row]]:
    def rows(snapshot: MetricsSnapshot) -> Iterable[Row]:
        for pod in snapshot.view.active_pods:
            namespace, name = pod.pod.metadata.namespace, pod.pod.metadata.name
            for each in pod.containers:
                wanted = snapshot.burst.get((file, each.folder))
                if wanted is not None:
                    yield (namespace, name, each.id, each.name), float(wanted)

    return rows


def _cookie_outcomes(snapshot: MetricsSnapshot) -> Iterable[Row]:
    return snapshot.cookie_outcomes.items()


def _evictions(snapshot: MetricsSnapshot) -> Iterable[Row]:
    return [((_trigger(reason),), count) for reason, count in snapshot.evictions.items()]


def _recent_evictions(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for (namespace, name, reason), count in snapshot.recent_evictions.items():
        yield (namespace, name, _trigger(reason)), count


def _trigger(feature: str) -> str:
    return f"trigger by koordlet feature {feature}"


def _cache(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for owner in sorted(snapshot.store.owners(Metric.RESCTRL_LLC)):
        sample = snapshot.last(Metric.RESCTRL_LLC, owner)
        if sample is not None:
            group, cache = owner.split("/")
            yield (cache, group), sample


def _bandwidth(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for owner in sorted(snapshot.store.owners(Metric.RESCTRL_MB)):
        sample = snapshot.last(Metric.RESCTRL_MB, owner)
        if sample is not None:
            group, cache, kind = owner.split("/")
            yield (cache, group, kind), sample


def _host_applications(snapshot: MetricsSnapshot) -> Iterator[Row]:
    metrics = {CPU: Metric.HOST_APP_CPU, MEMORY: Metric.HOST_APP_MEMORY}
    for application in snapshot.view.slo.host_applications:
        for resource, metric in metrics.items():
            sample = snapshot.last(metric, application.name)
            if sample is not None:
                labels = (application.name, resource, application.priority, application.qos)
                yield labels, sample


def _cookies(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for container, labels in snapshot.containers():
        assigned = snapshot.cookies.get(container.folder)
        if assigned is not None:
            yield (*labels, assigned[0], str(assigned[1])), 1


def _best_effort_use(snapshot: MetricsSnapshot) -> Iterator[Row]:
    sample = snapshot.last(Metric.BE_CPU, "")
    if sample is not None:
        yield (), sample


def _oom_scores(snapshot: MetricsSnapshot) -> Iterator[Row]:
    planned = plan_oom_scores(snapshot.view) if snapshot.shows_oom_scores else ()
    scores = {i.folder: i.value for i in planned if isinstance(i, SetOomScore)}
    for container, (_, name, *of_pod) in snapshot.containers():
        if container.folder in scores:
            yield (name, *of_pod), scores[container.folder]


def _node_allocatable(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for name, unit in _UNITS.items():
        yield (name, unit), snapshot.view.machine.allocatable.get(name, 0)


def _requests(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for container, labels in snapshot.containers():
        yield from _amounts(container.requests, labels)


def _limits(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for container, labels in snapshot.containers():
        yield from _amounts(container.limits, labels)


def _amounts(stated: ResourceList, labels: tuple[str, ...]) -> Iterator[Row]:
    for name, unit in _UNITS.items():
        if name in stated:
            yield (name, unit, *labels), stated[name].value()


def _pool(mask: Callable[[MetricsSnapshot], int]) -> Callable[[MetricsSnapshot], Iterable[Row]]:
    return lambda snapshot: [((), mask(snapshot).bit_count())]


def _pool_cpus(
    mask: Callable[[MetricsSnapshot], int],
) -> Callable[[MetricsSnapshot], Iterable[Row]]:
    def rows(snapshot: MetricsSnapshot) -> Iterable[Row]:
        chosen = mask(snapshot) if snapshot.shows_each_cpu else 0
        return [((str(cpu),), 1.0) for cpu in bits_of(chosen)]

    return rows


def _usage(snapshot: MetricsSnapshot, *, of_system: bool) -> Iterator[Row]:
    reported = snapshot.usage.node_metric if snapshot.usage is not None else None
    if reported is not None:
        yield from _used(reported.system_usage if of_system else reported.node_usage)


def _numa_usage(snapshot: MetricsSnapshot, *, of_system: bool) -> Iterator[Row]:
    reported = snapshot.usage.node_metric if snapshot.usage is not None else None
    for each in reported.numa_usages if reported is not None else ():
        node = str(each.numa_node_id)
        for labels, value in _used(each.system_usage if of_system else each.node_usage):
            yield (node, *labels), value


def _used(usage: ResourceMap) -> Iterator[Row]:
    if CPU in usage.resources:
        yield (CPU, "core"), usage.resources[CPU].milli() / 1000
    if MEMORY in usage.resources:
        yield (MEMORY, "byte"), usage.resources[MEMORY].value()


def _pod_labels(pod: PodView) -> tuple[str, str, str]:
    meta = pod.pod.metadata
    return meta.uid, meta.name, meta.namespace


def _shared(snapshot: MetricsSnapshot) -> int:
    return snapshot.pools.all_shared


def _best_effort(snapshot: MetricsSnapshot) -> int:
    return sum(snapshot.pools.best_effort.values())


FAMILIES: Final = (
    Family(
        "container_cpi",
        "CPU cycles and instructions of a container in the last sampling window.",
        (*_CONTAINER, "cpi_field"),
        _cpi,
        external=True,
    ),
    Family(
        "container_psi",
        "Percentage of time that tasks of a container were stalled on a resource.",
        (*_CONTAINER, *_PSI),
        _container_psi,
        external=True,
    ),
    Family(
        "pod_psi",
        "Percentage of time that tasks of a pod were stalled on a resource.",
        (*_POD, *_PSI),
        _pod_psi,
        external=True,
    ),
    Family(
        "container_scaled_cfs_burst_us",
        "CPU burst of a container in microseconds, as computed by CPU burst.",
        _SCALED,
        _scaled(CgroupFile.CFS_BURST),
    ),
    Family(
        "container_scaled_cfs_quota_us",
        "CFS quota of a container in microseconds per period, as scaled by CPU burst.",
        _SCALED,
        _scaled(CgroupFile.CFS_QUOTA),
    ),
    Family(
        "core_sched_cookie_manage_status",
        "Number of assignments of a core scheduling cookie to a cgroup, by status.",
        ("core_sched_group", "status"),
        _cookie_outcomes,
    ),
    Family("pod_eviction", "Number of pods evicted since the start.", ("reason",), _evictions),
    Family(
        "pod_eviction_detail",
        "Number of evictions of a pod in the last five minutes.",
        ("pod_namespace", "pod_name", "reason"),
        _recent_evictions,
    ),
    Family(
        "resctrl_llc_occupancy",
        "Last-level cache occupancy of a resctrl group in bytes.",
        ("cache_id", "qos"),
        _cache,
        external=True,
    ),
    Family(
        "resctrl_memory_bandwidth",
        "Memory traffic of a resctrl group in bytes since its creation.",
        ("cache_id", "qos", "mb_type"),
        _bandwidth,
        external=True,
    ),
    Family(
        "host_application_resource_usage",
        "Resource usage of a host application, in cores or bytes.",
        ("host_application_name", "resource", "priority_class", "qos"),
        _host_applications,
    ),
    Family(
        "container_core_sched_cookie",
        "1 for the core scheduling cookie of a container.",
        (*_CONTAINER, "core_sched_group", "core_sched_cookie"),
        _cookies,
    ),
    Family(
        "be_suppress_be_used_cpu_cores",
        "CPU usage of best-effort pods in cores.",
        (),
        _best_effort_use,
    ),
    Family(
        "container_oom_score_adj",
        "OOM score adjustment of a container, as requested by the pod's annotation.",
        ("container_name", *_POD),
        _oom_scores,
    ),
    Family(
        "node_resource_allocatable",
        "Batch and mid resources that the node can allocate.",
        _AMOUNT,
        _node_allocatable,
        external=True,
    ),
    Family(
        "container_resource_requests",
        "Batch and mid resources that a container requests.",
        (*_AMOUNT, *_CONTAINER),
        _requests,
        external=True,
    ),
    Family(
        "container_resource_limits",
        "Batch and mid resources that a container is limited to.",
        (*_AMOUNT, *_CONTAINER),
        _limits,
        external=True,
    ),
    Family(
        "cpuset_share_pool_cpu_cores", "Number of CPUs in the shared pools.", (), _pool(_shared)
    ),
    Family(
        "cpuset_be_share_pool_cpu_cores",
        "Number of CPUs that best-effort pods may use.",
        (),
        _pool(_best_effort),
    ),
    Family(
        "cpuset_share_pool_info", "1 for a CPU in a shared pool.", ("cpu",), _pool_cpus(_shared)
    ),
    Family(
        "cpuset_be_share_pool_info",
        "1 for a CPU that best-effort pods may use.",
        ("cpu",),
        _pool_cpus(_best_effort),
    ),
    Family(
        "node_metric_node_usage",
        "Usage of the node, as last reported in the NodeMetric.",
        _AMOUNT,
        lambda p: _usage(p, of_system=False),
    ),
    Family(
        "node_metric_system_usage",
        "Usage outside of pods, as last reported in the NodeMetric.",
        _AMOUNT,
        lambda p: _usage(p, of_system=True),
    ),
    Family(
        "node_metric_numa_node_usage",
        "Usage of a NUMA node, as last reported in the NodeMetric.",
        ("numa_node_id", *_AMOUNT),
        lambda p: _numa_usage(p, of_system=False),
    ),
    Family(
        "node_metric_numa_system_usage",
        "Usage of a NUMA node outside of pods, as last reported in the NodeMetric.",
        ("numa_node_id", *_AMOUNT),
        lambda p: _numa_usage(p, of_system=True),
    ),
)
