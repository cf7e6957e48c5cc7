"""NodeSLO: strategies of koordlet on a node.

Everything is optional; the manager renders it from its configuration.
Source: koordinator apis/slo/v1alpha1/nodeslo_types.go, host_application.go.
"""

from typing import Annotated, ClassVar

from msgspec import field

from koordinator.api.bounds import ANY, FLAG, NOT_NEGATIVE, PERCENT, Bounds, bounded, one_of
from koordinator.api.crd import CustomResource, NotNegative, Percent, UntypedObject
from koordinator.api.meta import INT32, ApiStruct, Int32
from koordinator.api.resource_qos import ResourceQosStrategy
from koordinator.foundation.quantity import Quantity

ConfiguredPercent = Annotated[int, bounded(PERCENT, decoded=ANY)]
BurstPercent = Annotated[int, bounded(Bounds(1, 10_000), decoded=Bounds(0, 10_000))]
ConfiguredFlag = Annotated[int, bounded(FLAG, decoded=ANY, written=FLAG)]


class ResourceThresholdStrategy(ApiStruct, frozen=True, kw_only=True):
    """When best-effort pods are suppressed and evicted.

    ``cpu_suppress_policy`` is cpuset or cfsQuota, ``cpu_evict_policy`` evictByRealLimit or
    evictByAllocatable.  A threshold starts what its lower or upper counterpart ends.
    """

    enable: bool | None = None
    cpu_suppress_threshold_percent: Percent | None = None
    cpu_suppress_min_percent: Percent | None = None
    cpu_suppress_policy: Annotated[str, one_of("cpuset", "cfsQuota")] = ""
    memory_evict_threshold_percent: (
        Annotated[int, bounded(PERCENT, exceeds="memoryEvictLowerPercent")] | None
    ) = None
    memory_evict_lower_percent: Percent | None = None
    memory_allocatable_evict_threshold_percent: (
        Annotated[int, bounded(NOT_NEGATIVE, exceeds="memoryAllocatableEvictLowerPercent")] | None
    ) = None
    memory_allocatable_evict_lower_percent: NotNegative | None = None
    cpu_evict_be_satisfaction_upper_percent: (
        Annotated[int, bounded(PERCENT, decoded=ANY, exceeds="cpuEvictBESatisfactionLowerPercent")]
        | None
    ) = field(name="cpuEvictBESatisfactionUpperPercent", default=None)
    cpu_evict_be_satisfaction_lower_percent: ConfiguredPercent | None = field(
        name="cpuEvictBESatisfactionLowerPercent", default=None
    )
    cpu_evict_be_usage_threshold_percent: ConfiguredPercent | None = field(
        name="cpuEvictBEUsageThresholdPercent", default=None
    )
    cpu_evict_time_window_seconds: Annotated[int, bounded(Bounds(above=0), decoded=ANY)] | None = (
        None
    )
    cpu_evict_threshold_percent: (
        Annotated[int, bounded(PERCENT, exceeds="cpuEvictLowerPercent")] | None
    ) = None
    cpu_evict_lower_percent: Percent | None = None
    cpu_allocatable_evict_threshold_percent: (
        Annotated[int, bounded(NOT_NEGATIVE, exceeds="cpuAllocatableEvictLowerPercent")] | None
    ) = None
    cpu_allocatable_evict_lower_percent: NotNegative | None = None
    cpu_evict_policy: Annotated[str, one_of("evictByRealLimit", "evictByAllocatable")] = ""
    evict_enabled_priority_threshold: Int32 | None = None
    allocatable_evict_priority_threshold: (
        Annotated[int, bounded(Bounds(0, 7999), decoded=INT32)] | None
    ) = None


class CpuBurstSettings(ApiStruct, frozen=True, kw_only=True):
    """``policy`` is none, cpuBurstOnly, cfsQuotaBurstOnly or auto; a period of -1 never ends."""

    policy: Annotated[str, one_of("none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly")] = ""
    cpu_burst_percent: BurstPercent | None = None
    cfs_quota_burst_percent: Annotated[int, bounded(Bounds(100), decoded=ANY)] | None = None
    cfs_quota_burst_period_seconds: Annotated[int, bounded(Bounds(-1), decoded=ANY)] | None = None


class CpuBurstStrategy(CpuBurstSettings, frozen=True, kw_only=True):
    """How far pods may go beyond their CPU limit while the node has CPUs to spare."""

    share_pool_threshold_percent: ConfiguredPercent | None = None


class SystemStrategy(ApiStruct, frozen=True, kw_only=True):
    """Settings of the kernel.  ``min_free_kbytes_factor`` is in 1/10000 of the memory."""

    min_free_kbytes_factor: Annotated[int, bounded(Bounds(above=0), decoded=ANY)] | None = None
    watermark_scale_factor: (
        Annotated[int, bounded(Bounds(most=400, above=0), decoded=ANY, written=Bounds(10, 400))]
        | None
    ) = None
    memcg_reap_back_ground: ConfiguredFlag | None = None
    sched_group_identity_enabled: Annotated[int, bounded(ANY, written=FLAG)] | None = None
    sched_idle_saver_wmark: int | None = None  # nanoseconds
    sched_features: dict[str, bool] = {}
    page_cache_limit_enabled: ConfiguredFlag | None = None
    total_network_bandwidth: Quantity | None = None


class CgroupPath(ApiStruct, frozen=True, kw_only=True):
    """``base`` is CgroupRoot, Kubepods, KubepodsBurstable or KubepodsBesteffort."""

    base: str = ""
    parent_dir: str = ""
    relative_path: str = ""


class HostApplicationStrategy(ApiStruct, frozen=True, kw_only=True):
    """Always empty."""


class HostApplication(ApiStruct, frozen=True, kw_only=True):
    """A program that runs outside of pods."""

    name: str = ""
    priority: str = ""  # a PriorityBand
    qos: str = ""  # a QosClass
    cgroup_path: CgroupPath | None = None
    strategy: HostApplicationStrategy | None = None


class NodeSloSpec(ApiStruct, frozen=True, kw_only=True):
    """Written by the manager."""

    resource_used_threshold_with_be: ResourceThresholdStrategy | None = field(
        name="resourceUsedThresholdWithBE", default=None
    )
    resource_qos_strategy: ResourceQosStrategy | None = field(
        name="resourceQOSStrategy", default=None
    )
    cpu_burst_strategy: CpuBurstStrategy | None = None
    system_strategy: SystemStrategy | None = None
    host_applications: tuple[HostApplication, ...] = ()
    extensions: UntypedObject = {}


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
