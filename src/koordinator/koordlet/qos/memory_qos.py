"""Memory QoS: protection, throttling and reclaim priority of pods' memory.

Source: koordinator pkg/koordlet/qosmanager/plugins/cgreconcile/cgroup_reconcile.go.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from koordinator.api.bounds import ANY, Bounds, accepted_by
from koordinator.api.node_slo import SystemStrategy
from koordinator.api.qos import KubeQos, QosClass
from koordinator.api.resource_names import BATCH_MEMORY, MEMORY
from koordinator.api.resource_qos import MemoryQos, MemorySettings, ResourceQos
from koordinator.domain.amounts import value_of
from koordinator.domain.cgroups.files import MAX_INT64, PAGE_BYTES, UNLIMITED, CgroupFile
from koordinator.domain.pod_requests import pod_limits
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.intents import Intent, SetCgroup, SetFile
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import ContainerView, PodView
from koordinator.koordlet.view.slo import AUTO_MEMORY_QOS, NO_MEMORY_QOS

MemoryValues = dict[CgroupFile, int]

_CLASS_OF_TIER: Final[Mapping[KubeQos, str]] = MappingProxyType(
    {
        KubeQos.GUARANTEED: "lsr_class",
        KubeQos.BURSTABLE: "ls_class",
        KubeQos.BEST_EFFORT: "be_class",
    }
)

_KIB = 1024
_MIN_FREE_KB: Final = Bounds(10_240, 10_485_760)
_FILES: Final = (
    ("sysctl", "vm/watermark_scale_factor", "watermark_scale_factor"),
    ("sys", "kernel/mm/memcg_reaper/reap_background", "memcg_reap_back_ground"),
    ("sysctl", "kernel/sched_group_identity_enabled", "sched_group_identity_enabled"),
    ("sysctl", "kernel/sched_idle_saver_wmark", "sched_idle_saver_wmark"),
    ("sys", "kernel/mm/pagecache_limit/enabled", "page_cache_limit_enabled"),
)


@dataclass(slots=True)
class _Tier:
    minimum: int | None = None
    low: int | None = None


def plan_memory_qos(view: NodeView) -> list[Intent]:
    """Return the settings of each tier, pod and container."""
    tiers = {qos: _Tier() for qos in KubeQos}
    allocatable = view.machine.raw_allocatable.get(MEMORY, 0)
    intents: list[Intent] = []
    for pod in view.active_pods:
        of_class = view.qos_of(pod).memory_qos or MemoryQos()
        auto = AUTO_MEMORY_QOS.get("LSR" if pod.qos is QosClass.LSE else pod.qos)
        settings = pod.memory_settings(of_class, auto, NO_MEMORY_QOS)
        request = _pod_request(pod)
        tier = tiers[pod.kube_qos]
        tier.minimum = _added(tier.minimum, request, settings.min_limit_percent)
        tier.low = _added(tier.low, request, settings.low_limit_percent)
        reason = "memory QoS"
        values = pod_values(pod, settings)
        intents += _intents(pod.folder, values, reason, pod.key)
        for container in pod.containers:
            values = container_values(container, pod, settings, allocatable)
            owner = f"{pod.key}/{container.name}"
            intents += _intents(container.folder, values, reason, owner)
    whole = tiers[KubeQos.GUARANTEED]
    for part in (tiers[KubeQos.BURSTABLE], tiers[KubeQos.BEST_EFFORT]):
        whole.minimum = _sum(whole.minimum, part.minimum)
        whole.low = _sum(whole.low, part.low)
    for qos, tier in tiers.items():
        intents += _intents(view.layout.tier(qos), _tier_values(view, qos, tier), "memory QoS", qos)
    return intents


def container_values(
    container: ContainerView, pod: PodView, settings: MemorySettings, allocatable_bytes: int
) -> MemoryValues:
    """Return the values of a container.

    One without limit is bounded by the limit of its pod, else by ``allocatable_bytes``.  Nothing is
    throttled while that is unknown (0).
    """
    values = _direct(settings)
    name = BATCH_MEMORY if pod.labelled_qos is QosClass.BE else MEMORY
    request = value_of(container.requests, name)
    _protect(values, request, settings)
    percent = settings.throttling_percent
    if percent is not None:
        whole = pod.least_spec.resources
        of_pod = value_of(whole.limits, name) if whole is not None else 0
        bound = value_of(container.limits, name) or of_pod or allocatable_bytes
        high = MAX_INT64
        if percent and bound:
            high = (request + (bound - request) * percent // 100) // PAGE_BYTES * PAGE_BYTES
        values[CgroupFile.MEMORY_HIGH] = max(high, values.get(CgroupFile.MEMORY_MIN, 0))
    return values


def pod_values(pod: PodView, settings: MemorySettings) -> MemoryValues:
    """Return the values of a pod: the sums of its containers, and its page cache limit."""
    values = _direct(settings)
    _protect(values, _pod_request(pod), settings)
    limit = _pod_limit(pod)
    size = settings.page_cache_limit_size
    if size is not None and limit > 0:
        size = min(size, limit)
    elif size is None and settings.page_cache_limit_percent is not None and limit > 0:
        size = limit * settings.page_cache_limit_percent // 100
    if size is not None:
        values[CgroupFile.PAGE_CACHE_SIZE] = size
        values[CgroupFile.PAGE_CACHE_ENABLE] = 1 if size else 0
        if size:
            values[CgroupFile.PAGE_CACHE_SYNC] = 1 if settings.page_cache_reclaim_sync else 0
    if settings.page_cache_enable is not None:
        values[CgroupFile.PAGE_CACHE_ENABLE] = 1 if settings.page_cache_enable else 0
    return values


def _direct(settings: MemorySettings) -> MemoryValues:
    stated = {
        CgroupFile.WMARK_RATIO: settings.wmark_ratio,
        CgroupFile.WMARK_SCALE: settings.wmark_scale_permill,
        CgroupFile.WMARK_MIN_ADJ: settings.wmark_min_adj,
        CgroupFile.MEMORY_PRIORITY: settings.priority,
        CgroupFile.USE_PRIORITY_OOM: settings.priority_enable,
        CgroupFile.OOM_GROUP: settings.oom_kill_group,
    }
    return {file: value for file, value in stated.items() if value is not None}


def _protect(values: MemoryValues, request: int, settings: MemorySettings) -> None:
    if settings.min_limit_percent is not None:
        values[CgroupFile.MEMORY_MIN] = request * settings.min_limit_percent // 100
    if settings.low_limit_percent is not None:
        low = request * settings.low_limit_percent // 100
        values[CgroupFile.MEMORY_LOW] = max(low, values.get(CgroupFile.MEMORY_MIN, 0) if low else 0)


def _tier_values(view: NodeView, qos: KubeQos, tier: _Tier) -> MemoryValues:
    of_class: ResourceQos | None = getattr(view.qos_strategy, _CLASS_OF_TIER[qos])
    memory = of_class.memory_qos if of_class is not None else None
    values: MemoryValues = {}
    if memory is not None:
        stated = _direct(memory)
        for file in (CgroupFile.MEMORY_PRIORITY, CgroupFile.USE_PRIORITY_OOM, CgroupFile.OOM_GROUP):
            if file in stated:
                values[file] = stated[file]
    if tier.minimum is not None:
        values[CgroupFile.MEMORY_MIN] = tier.minimum
    if tier.low is not None:
        values[CgroupFile.MEMORY_LOW] = tier.low
    return values


def _pod_request(pod: PodView) -> int:
    name = BATCH_MEMORY if pod.labelled_qos is QosClass.BE else MEMORY
    return pod.requests.get(name, 0)


def _pod_limit(pod: PodView) -> int:
    """Return the limit of the pod as the kubelet computes it; unlimited if a container has none."""
    name = BATCH_MEMORY if pod.labelled_qos is QosClass.BE else MEMORY
    spec = pod.least_spec
    parts = [each.resources for each in (*spec.containers, *spec.init_containers)]
    if spec.resources is not None and value_of(spec.resources.limits, name):
        parts = [spec.resources]
    if not parts or not all(value_of(part.limits, name) for part in parts):
        return UNLIMITED
    return pod_limits(spec).get(name, UNLIMITED)


def _added(before: int | None, request: int, percent: int | None) -> int | None:
    return before if percent is None else (before or 0) + request * percent // 100


def _sum(before: int | None, more: int | None) -> int | None:
    return before if more is None else (before or 0) + more


def _intents(folder: str, values: MemoryValues, reason: str, owner: str) -> Iterator[Intent]:
    for file, value in values.items():
        yield SetCgroup(file, folder, str(value), reason, owner)


def plan_system_config(view: NodeView) -> list[Intent]:
    """Return the settings; an out-of-range value is skipped, and the present one stays."""
    strategy, accepted = view.slo.system_strategy or SystemStrategy(), accepted_by(SystemStrategy)
    wanted: list[tuple[str, str, int | None, Bounds]] = [
        ("sysctl", "vm/min_free_kbytes", _min_free_kb(view, strategy), _MIN_FREE_KB),
        *(
            (
                tree,
                path,
                getattr(strategy, field),
                accepted[field].written if field in accepted else ANY,
            )
            for tree, path, field in _FILES
        ),
    ]
    intents: list[Intent] = [
        SetFile(tree, path, str(value), "system strategy", "node")
        for tree, path, value, bounds in wanted
        if value is not None and value in bounds
    ]
    for name, is_on in sorted(strategy.sched_features.items()):
        word = name if is_on else f"NO_{name}"
        intents.append(
            SetFile("sys", "kernel/debug/sched_features", word, "system strategy", "node", word)
        )
    return intents


def _min_free_kb(view: NodeView, strategy: SystemStrategy) -> int | None:
    factor = strategy.min_free_kbytes_factor
    if factor is None:
        return None
    return view.machine.memory_bytes // _KIB * factor // 10_000
