"""NodeSLO: strategies of koordlet on a node, their defaults, and the overlay of one on another.

Everything is optional; the manager renders it from its configuration.  The defaults contain no QoS
classes: the manager renders none, the node agent has its own.

Source: koordinator apis/slo/v1alpha1/nodeslo_types.go, host_application.go;
pkg/util/sloconfig/nodeslo_config.go; pkg/util/utils.go, ``MergeCfg``.
"""

from typing import Annotated, ClassVar, Final, TypeVar

import msgspec
from msgspec import field

from koordinator.api.bounds import ANY, FLAG, NOT_NEGATIVE, PERCENT, Bounds, bounded, one_of
from koordinator.api.crd import (
    ConfiguredPercent,
    CustomResource,
    NotNegative,
    Percent,
    UntypedObject,
)
from koordinator.api.meta import INT32, ApiStruct, Int32
from koordinator.api.resource_qos import ResourceQosStrategy
from koordinator.foundation.quantity import Quantity

BurstPercent = Annotated[int, bounded(Bounds(1, 10_000), decoded=Bounds(0, 10_000))]
ConfiguredFlag = Annotated[int, bounded(FLAG, decoded=ANY, written=FLAG)]

StrategyT = TypeVar("StrategyT", bound=msgspec.Struct)


class ResourceThresholdStrategy(ApiStruct, frozen=True, kw_only=True):
    """Thresholds of suppression and eviction of best-effort pods.

    ``cpu_suppress_policy`` is cpuset or cfsQuota, ``cpu_evict_policy`` evictByRealLimit or
    evictByAllocatable.  A threshold starts what its lower or upper counterpart ends.
    """

    enable: bool | None = None  # whether best-effort pods are suppressed and pods are evicted
    #: percentage of the CPUs that best-effort pods may fill up to
    cpu_suppress_threshold_percent: Percent | None = None
    #: least CPU of best-effort pods, as a percentage of the node
    cpu_suppress_min_percent: Percent | None = None
    #: how their CPU is limited
    cpu_suppress_policy: Annotated[str, one_of("cpuset", "cfsQuota")] = ""
    #: memory usage of the node from which pods are evicted
    memory_evict_threshold_percent: (
        Annotated[int, bounded(PERCENT, exceeds="memoryEvictLowerPercent")] | None
    ) = None
    memory_evict_lower_percent: Percent | None = None  # memory usage at which evictions stop
    #: requested batch-memory and mid-memory from which pods are evicted, as a percentage of what
    #: is allocatable
    memory_allocatable_evict_threshold_percent: (
        Annotated[int, bounded(NOT_NEGATIVE, exceeds="memoryAllocatableEvictLowerPercent")] | None
    ) = None
    #: the same, at which these evictions stop
    memory_allocatable_evict_lower_percent: NotNegative | None = None
    #: CPU limit of best-effort pods, as a percentage of their requests, at which evictions stop
    cpu_evict_be_satisfaction_upper_percent: (
        Annotated[int, bounded(PERCENT, decoded=ANY, exceeds="cpuEvictBESatisfactionLowerPercent")]
        | None
    ) = field(name="cpuEvictBESatisfactionUpperPercent", default=None)
    #: CPU limit, as a percentage of the requests, up to which best-effort pods are evicted
    cpu_evict_be_satisfaction_lower_percent: ConfiguredPercent | None = field(
        name="cpuEvictBESatisfactionLowerPercent", default=None
    )
    #: least CPU usage, as a percentage of that limit, for these evictions
    cpu_evict_be_usage_threshold_percent: ConfiguredPercent | None = field(
        name="cpuEvictBEUsageThresholdPercent", default=None
    )
    #: time window of the averages that these evictions use
    cpu_evict_time_window_seconds: Annotated[int, bounded(Bounds(above=0), decoded=ANY)] | None = (
        None
    )
    #: CPU usage of the node from which pods are evicted
    cpu_evict_threshold_percent: (
        Annotated[int, bounded(PERCENT, exceeds="cpuEvictLowerPercent")] | None
    ) = None
    cpu_evict_lower_percent: Percent | None = None  # CPU usage at which evictions stop
    #: requested batch-cpu and mid-cpu from which pods are evicted, as a percentage of what is
    #: allocatable
    cpu_allocatable_evict_threshold_percent: (
        Annotated[int, bounded(NOT_NEGATIVE, exceeds="cpuAllocatableEvictLowerPercent")] | None
    ) = None
    #: the same, at which these evictions stop
    cpu_allocatable_evict_lower_percent: NotNegative | None = None
    #: limit of best-effort pods: that of their cgroup or the allocatable batch-cpu
    cpu_evict_policy: Annotated[str, one_of("evictByRealLimit", "evictByAllocatable")] = ""
    #: largest priority of pods that usage evicts
    evict_enabled_priority_threshold: Int32 | None = None
    #: largest priority of pods that the allocatable amounts evict
    allocatable_evict_priority_threshold: (
        Annotated[int, bounded(Bounds(0, 7999), decoded=INT32)] | None
    ) = None


class CpuBurstSettings(ApiStruct, frozen=True, kw_only=True):
    """``policy`` is none, cpuBurstOnly, cfsQuotaBurstOnly or auto; a period of -1 never ends."""

    #: whether CPU burst, a raised CFS quota, both (auto) or neither is used
    policy: Annotated[str, one_of("none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly")] = ""
    #: CPU burst of a container, as a percentage of its limit
    cpu_burst_percent: BurstPercent | None = None
    #: largest CFS quota of a container, as a percentage of its limit
    cfs_quota_burst_percent: Annotated[int, bounded(Bounds(100), decoded=ANY)] | None = None
    #: how long a container may use its largest quota; -1: without limit
    cfs_quota_burst_period_seconds: Annotated[int, bounded(Bounds(-1), decoded=ANY)] | None = None


class CpuBurstStrategy(CpuBurstSettings, frozen=True, kw_only=True):
    """CPU burst of pods beyond their limit while the node has idle CPUs."""

    #: usage of the shared CPUs from which quotas are lowered, not raised
    share_pool_threshold_percent: ConfiguredPercent | None = None


class SystemStrategy(ApiStruct, frozen=True, kw_only=True):
    """Settings of the kernel.  ``min_free_kbytes_factor`` is in 1/10000 of the memory."""

    #: vm.min_free_kbytes in units of 1/10000 of the memory
    min_free_kbytes_factor: Annotated[int, bounded(Bounds(above=0), decoded=ANY)] | None = None
    #: vm.watermark_scale_factor
    watermark_scale_factor: (
        Annotated[int, bounded(Bounds(most=400, above=0), decoded=ANY, written=Bounds(10, 400))]
        | None
    ) = None
    #: whether the kernel reaps deleted memory cgroups in the background
    memcg_reap_back_ground: ConfiguredFlag | None = None
    #: kernel.sched_group_identity_enabled
    sched_group_identity_enabled: Annotated[int, bounded(ANY, written=FLAG)] | None = None
    sched_idle_saver_wmark: int | None = None  # nanoseconds
    sched_features: dict[str, bool] = {}  # features of the kernel's scheduler to switch on or off
    #: whether the kernel limits the page cache of cgroups
    page_cache_limit_enabled: ConfiguredFlag | None = None
    total_network_bandwidth: Quantity | None = None  # network bandwidth of the node


class CgroupPath(ApiStruct, frozen=True, kw_only=True):
    """``base`` is CgroupRoot, Kubepods, KubepodsBurstable or KubepodsBesteffort."""

    base: str = ""  # start of the path, such as Kubepods
    parent_dir: str = ""  # directory below the base
    relative_path: str = ""  # directory of the application, below parentDir


class HostApplicationStrategy(ApiStruct, frozen=True, kw_only=True):
    """Always empty."""


class HostApplication(ApiStruct, frozen=True, kw_only=True):
    """A program that runs outside of pods."""

    name: str = ""  # name of the application
    priority: str = ""  # a PriorityBand
    qos: str = ""  # a QosClass
    cgroup_path: CgroupPath | None = None  # cgroup of the application
    strategy: HostApplicationStrategy | None = None  # always empty


class NodeSloSpec(ApiStruct, frozen=True, kw_only=True):
    """Written by the manager."""

    #: when best-effort pods are suppressed and evicted
    resource_used_threshold_with_be: ResourceThresholdStrategy | None = field(
        name="resourceUsedThresholdWithBE", default=None
    )
    #: settings of CPU, memory, caches, disks and network by QoS class
    resource_qos_strategy: ResourceQosStrategy | None = field(
        name="resourceQOSStrategy", default=None
    )
    cpu_burst_strategy: CpuBurstStrategy | None = None  # when containers may exceed their CPU limit
    system_strategy: SystemStrategy | None = None  # settings of the kernel
    host_applications: tuple[HostApplication, ...] = ()  # programs outside of pods with a QoS class
    extensions: UntypedObject = {}  # settings of other components


class NodeSloStatus(ApiStruct, frozen=True, kw_only=True):
    """Always empty."""


class NodeSlo(CustomResource, frozen=True, kw_only=True):
    """The service-level objectives of the node of the same name."""

    API_VERSION: ClassVar[str] = "slo.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "NodeSLO"
    PLURAL: ClassVar[str] = "nodeslos"
    NAMESPACED: ClassVar[bool] = False
    SUBRESOURCE_STATUS: ClassVar[bool] = True

    spec: NodeSloSpec = NodeSloSpec()
    status: NodeSloStatus = NodeSloStatus()


KINDS = (NodeSlo,)


def overlaid(base: StrategyT, over: msgspec.Struct) -> StrategyT:
    """Return ``base`` with the fields that ``over`` sets.

    A field of ``over`` that has its default is not set.  Structs are overlaid recursively,
    dictionaries by key; lists are replaced.  Fields that only one of the two has are ignored.
    """
    changes = {}
    for name in base.__struct_fields__:
        new, old = getattr(over, name, None), getattr(base, name)
        if new is None or new in ("", {}, ()):
            continue
        if isinstance(new, msgspec.Struct) and isinstance(old, msgspec.Struct):
            new = overlaid(old, new)
        elif isinstance(new, dict):
            new = {**old, **new}
        changes[name] = new
    return msgspec.structs.replace(base, **changes) if changes else base


THRESHOLD: Final = ResourceThresholdStrategy(
    enable=False,
    cpu_suppress_threshold_percent=65,
    cpu_suppress_policy="cpuset",
    memory_evict_threshold_percent=70,
    cpu_evict_policy="evictByRealLimit",
)
CPU_BURST: Final = CpuBurstStrategy(
    policy="none",
    cpu_burst_percent=1000,
    cfs_quota_burst_percent=300,
    cfs_quota_burst_period_seconds=-1,
    share_pool_threshold_percent=50,
)
SYSTEM: Final = SystemStrategy(total_network_bandwidth=Quantity(0))
