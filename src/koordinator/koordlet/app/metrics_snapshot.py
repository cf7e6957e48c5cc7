"""What the metrics server shows of pods, containers and programs, taken anew at every scrape.

So a pod that has gone leaves no series behind, and nothing is counted while nobody asks.  The loop
lays a new snapshot down; the server's threads read it, and change nothing.
Source: koordinator pkg/koordlet/metrics: cpi.go, psi.go, resctrl.go, host_application.go,
core_sched.go, resource_summary.go, cpu_cpuset.go, node_metric.go, cpu_burst.go, common.go;
external_metrics.go for what is for users.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from koordinator.api.core import ResourceList
from koordinator.api.node_metric import NodeMetricStatus, ResourceMap
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.cpu_list import cpu_ids
from koordinator.koordlet.collectors.cpi import CYCLE, INSTRUCTION
from koordinator.koordlet.collectors.pressure import Pressures
from koordinator.koordlet.hooks.oom_score import plan_oom_scores
from koordinator.koordlet.intents import SetOomScore
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.view.cpu_pools import CpuPools, cpu_pools
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import ContainerView, PodView

log = logging.getLogger(__name__)

Row = tuple[tuple[str, ...], float]  # values of the labels but that of the node

_FRESH_S: Final = 300.0
_POD = ("pod_uid", "pod_name", "pod_namespace")
_CONTAINER = ("container_id", "container_name", *_POD)
_PSI = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")
_PRECISIONS = ("avg10", "avg60", "avg300")
_UNITS = {BATCH_CPU: "integer", MID_CPU: "integer", BATCH_MEMORY: "byte", MID_MEMORY: "byte"}


@dataclass(frozen=True, kw_only=True)
class MetricsSnapshot:
    """Everything that is shown.  ``cookies`` are groups of core scheduling and theirs, by folder.

    ``usage`` None shows no NodeMetric.  ``burst`` has what CPU burst wanted last, by file and
    folder; ``evictions`` counts by reason, ``recent_evictions`` by namespace, name and reason.
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
        """CPUs that pods share; asked for at a scrape only, since it takes all annotations."""
        return cpu_pools(self.view)

    def containers(self) -> Iterator[tuple[ContainerView, tuple[str, ...]]]:
        """Yield the containers of active pods, with the values of their labels."""
        for pod in self.view.active_pods:
            for each in pod.containers:
                yield each, (each.id, each.name, *_pod_labels(pod))

    def last(self, metric: Metric, owner: str) -> float | None:
        """Return the newest sample, unless it is old."""
        return self.store.last(metric, owner, self.view.now_s - _FRESH_S)


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    text: str
    labels: tuple[str, ...]
    rows: Callable[[MetricsSnapshot], Iterable[Row]]
    external: bool = False  # for users, not about the agent's doing


class SnapshotCollector(Collector):
    """Shows the snapshot that was laid down last; every series has the label ``node``.

    ``external`` shows what is for users, and else what is about the agent's doing.
    """

    def __init__(self, node: str, *, external: bool) -> None:
        self._node = node
        self._families = [each for each in _FAMILIES if each.external is external]
        self._snapshot: MetricsSnapshot | None = None

    def lay_down(self, snapshot: MetricsSnapshot) -> None:
        """Show this one from now on."""
        self._snapshot = snapshot

    def collect(self) -> Iterator[GaugeMetricFamily]:
        snapshot = self._snapshot
        if snapshot is None:
            return
        for family in self._families:
            made = GaugeMetricFamily(
                f"koordlet_{family.name}", family.text, labels=("node", *family.labels)
            )
            try:
                for labels, value in family.rows(snapshot):
                    made.add_metric((self._node, *labels), value)
            except Exception:  # the other families are as good as ever
                log.exception("metric not shown", extra={"metric": made.name})
                continue
            yield made


def _cpi(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for container, labels in snapshot.containers():
        for kind in (CYCLE, INSTRUCTION):
            found = snapshot.last(Metric.CONTAINER_CPI, f"{container.id}/{kind}")
            if found is not None:
                yield (*labels, f"{kind}s"), found


def _container_psi(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for container, labels in snapshot.containers():
        yield from _psi(snapshot, container.id, labels)


def _pod_psi(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for pod in snapshot.view.active_pods:
        yield from _psi(snapshot, pod.uid, _pod_labels(pod))


def _psi(snapshot: MetricsSnapshot, owner: str, labels: tuple[str, ...]) -> Iterator[Row]:
    for resource, found in snapshot.pressures.get(owner, {}).items():
        has_full = str(found.full is not None).lower()
        for degree, averages in (("some", found.some), ("full", found.full or ())):
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
        found = snapshot.last(Metric.RESCTRL_LLC, owner)
        if found is not None:
            group, cache = owner.split("/")
            yield (cache, group), found


def _bandwidth(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for owner in sorted(snapshot.store.owners(Metric.RESCTRL_MB)):
        found = snapshot.last(Metric.RESCTRL_MB, owner)
        if found is not None:
            group, cache, kind = owner.split("/")
            yield (cache, group, kind), found


def _host_applications(snapshot: MetricsSnapshot) -> Iterator[Row]:
    metrics = {CPU: Metric.HOST_APP_CPU, MEMORY: Metric.HOST_APP_MEMORY}
    for application in snapshot.view.slo.host_applications:
        for resource, metric in metrics.items():
            found = snapshot.last(metric, application.name)
            if found is not None:
                labels = (application.name, resource, application.priority, application.qos)
                yield labels, found


def _cookies(snapshot: MetricsSnapshot) -> Iterator[Row]:
    for container, labels in snapshot.containers():
        held = snapshot.cookies.get(container.folder)
        if held is not None:
            yield (*labels, held[0], str(held[1])), 1


def _best_effort_use(snapshot: MetricsSnapshot) -> Iterator[Row]:
    found = snapshot.last(Metric.BE_CPU, "")
    if found is not None:
        yield (), found


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
        return [((str(cpu),), 1.0) for cpu in cpu_ids(chosen)]

    return rows


def _usage(snapshot: MetricsSnapshot, *, of_system: bool) -> Iterator[Row]:
    found = snapshot.usage.node_metric if snapshot.usage is not None else None
    if found is not None:
        yield from _used(found.system_usage if of_system else found.node_usage)


def _numa_usage(snapshot: MetricsSnapshot, *, of_system: bool) -> Iterator[Row]:
    found = snapshot.usage.node_metric if snapshot.usage is not None else None
    for each in found.numa_usages if found is not None else ():
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


_AMOUNT = ("resource", "unit")
_SCALED = ("pod_namespace", "pod_name", "container_id", "container_name")
_FAMILIES: Final = (
    _Family(
        "container_cpi",
        "Cycles and instructions.",
        (*_CONTAINER, "cpi_field"),
        _cpi,
        external=True,
    ),
    _Family(
        "container_psi",
        "Percent of time waited.",
        (*_CONTAINER, *_PSI),
        _container_psi,
        external=True,
    ),
    _Family("pod_psi", "Percent of time waited.", (*_POD, *_PSI), _pod_psi, external=True),
    _Family(
        "container_scaled_cfs_burst_us",
        "CPU time that a container may save up, as CPU burst wants it.",
        _SCALED,
        _scaled(CgroupFile.CFS_BURST),
    ),
    _Family(
        "container_scaled_cfs_quota_us",
        "CPU time of a period, where CPU burst has changed it.",
        _SCALED,
        _scaled(CgroupFile.CFS_QUOTA),
    ),
    _Family(
        "core_sched_cookie_manage_status",
        "How often a cgroup was to share the cookie of its group.",
        ("core_sched_group", "status"),
        _cookie_outcomes,
    ),
    _Family("pod_eviction", "Pods evicted since the start.", ("reason",), _evictions),
    _Family(
        "pod_eviction_detail",
        "Evictions of the last five minutes.",
        ("pod_namespace", "pod_name", "reason"),
        _recent_evictions,
    ),
    _Family(
        "resctrl_llc_occupancy",
        "Bytes of cache of a class.",
        ("cache_id", "qos"),
        _cache,
        external=True,
    ),
    _Family(
        "resctrl_memory_bandwidth",
        "Bytes moved by a class since its group was made.",
        ("cache_id", "qos", "mb_type"),
        _bandwidth,
        external=True,
    ),
    _Family(
        "host_application_resource_usage",
        "Use of a program outside of pods: cores, bytes.",
        ("host_application_name", "resource", "priority_class", "qos"),
        _host_applications,
    ),
    _Family(
        "container_core_sched_cookie",
        "1 for the cookie of core scheduling that a container has.",
        (*_CONTAINER, "core_sched_group", "core_sched_cookie"),
        _cookies,
    ),
    _Family("be_suppress_be_used_cpu_cores", "CPU that best effort uses.", (), _best_effort_use),
    _Family(
        "container_oom_score_adj",
        "What the annotation of a pod wants.",
        ("container_name", *_POD),
        _oom_scores,
    ),
    _Family(
        "node_resource_allocatable",
        "Batch and mid resources.",
        _AMOUNT,
        _node_allocatable,
        external=True,
    ),
    _Family(
        "container_resource_requests",
        "Batch and mid requests.",
        (*_AMOUNT, *_CONTAINER),
        _requests,
        external=True,
    ),
    _Family(
        "container_resource_limits",
        "Batch and mid limits.",
        (*_AMOUNT, *_CONTAINER),
        _limits,
        external=True,
    ),
    _Family("cpuset_share_pool_cpu_cores", "CPUs that pods share.", (), _pool(_shared)),
    _Family("cpuset_be_share_pool_cpu_cores", "Those for best effort.", (), _pool(_best_effort)),
    _Family("cpuset_share_pool_info", "1 for a shared CPU.", ("cpu",), _pool_cpus(_shared)),
    _Family(
        "cpuset_be_share_pool_info",
        "1 for a CPU of best effort.",
        ("cpu",),
        _pool_cpus(_best_effort),
    ),
    _Family(
        "node_metric_node_usage", "As reported.", _AMOUNT, lambda p: _usage(p, of_system=False)
    ),
    _Family(
        "node_metric_system_usage", "As reported.", _AMOUNT, lambda p: _usage(p, of_system=True)
    ),
    _Family(
        "node_metric_numa_node_usage",
        "As reported.",
        ("numa_node_id", *_AMOUNT),
        lambda p: _numa_usage(p, of_system=False),
    ),
    _Family(
        "node_metric_numa_system_usage",
        "As reported.",
        ("numa_node_id", *_AMOUNT),
        lambda p: _numa_usage(p, of_system=True),
    ),
)
