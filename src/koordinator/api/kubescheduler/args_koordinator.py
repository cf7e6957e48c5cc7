"""Arguments of the plugins that Koordinator adds.

Source: koordinator pkg/scheduler/apis/config: v1/types.go, v1/defaults.go,
validation/validation_pluginargs.go.
"""

from typing import Literal

from msgspec import field

from koordinator.api.annotations.reservation import PRE_ALLOCATABLE_PRIORITY
from koordinator.api.core import ResourceList
from koordinator.api.kubescheduler.structs import (
    ConfigPercent,
    ConfigStruct,
    Count,
    PluginArgs,
    PositiveCount,
    PositivePercent,
    PositiveSeconds,
    Seconds,
    Weight,
    fill,
)
from koordinator.api.labels import PRE_ALLOCATABLE
from koordinator.api.meta import Int32
from koordinator.api.resource_validation import is_extended
from koordinator.api.syntax import check_label_key, invalid_value, join_path
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

OptionalAggregationType = Literal["", "avg", "p50", "p90", "p95", "p99"]

_WEIGHTS = {"cpu": 1, "memory": 1}
_THRESHOLDS = {"cpu": 65, "memory": 95}
_FACTORS = {"cpu": 85, "memory": 70}
_NO_LIMIT = Quantity.from_int((2**63 - 1) // 5)  # a fifth, so that sums stay in range
_GC_DURATION_SECONDS = 86_400
_INTERVAL_SECONDS = 60


class WeightedResource(ConfigStruct, frozen=True, kw_only=True):
    """A resource that is scored."""

    name: str  # name of the resource
    weight: Weight  # weight of the resource in the score


class NodeScoringStrategy(ConfigStruct, frozen=True, kw_only=True):
    """Preferred utilization of nodes or NUMA nodes."""

    #: LeastAllocated prefers free nodes, MostAllocated full ones
    type: Literal["LeastAllocated", "MostAllocated"]
    resources: tuple[WeightedResource, ...] = ()  # resources that are scored


def _least_allocated(*names: str) -> NodeScoringStrategy:
    resources = tuple(WeightedResource(name=name, weight=1) for name in names)
    return NodeScoringStrategy(type="LeastAllocated", resources=resources)


class LoadAwareSchedulingAggregatedArgs(ConfigStruct, frozen=True, kw_only=True):
    """Percentiles of usage in place of the latest; without a duration, over the longest window."""

    #: usage in percent by resource from which a node is filtered
    usage_thresholds: dict[str, ConfigPercent] = field(default_factory=dict)
    usage_aggregation_type: OptionalAggregationType = ""  # percentile for the filter, such as p95
    #: time window for the filter; 0s takes the longest reported
    usage_aggregated_duration: Duration = Duration()
    score_aggregation_type: OptionalAggregationType = ""  # percentile for the score
    #: time window for the score; 0s takes the longest reported
    score_aggregated_duration: Duration = Duration()


class LoadAwareSchedulingArgs(PluginArgs, frozen=True, kw_only=True):
    """Measured usage, in percent of allocatable; a threshold of 0 is not checked."""

    #: whether nodes with an expired NodeMetric are filtered
    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: PositiveSeconds = 180  # age from which a NodeMetric has expired
    #: whether such nodes are used nevertheless
    enable_schedule_when_node_metrics_expired: bool = False
    #: empty is cpu 1, memory 1, unless the dominant resource has a weight
    resource_weights: dict[str, Weight] = field(default_factory=dict)
    dominant_resource_weight: ConfigPercent = 0  # weight of the resource that the node has least of
    #: empty is cpu 65, memory 95
    usage_thresholds: dict[str, ConfigPercent] = field(default_factory=dict)
    #: usage of prod pods in percent by resource from which prod pods avoid a node
    prod_usage_thresholds: dict[str, int] = field(default_factory=dict)
    #: whether the usage of the system counts as usage of prod pods
    prod_usage_include_sys: bool = False
    #: whether prod pods are scored by the usage of prod pods alone
    score_according_prod_usage: bool = False
    estimator: str = "defaultEstimator"  # any other name means the same
    #: cpu is 85 and memory 70 if they are not named
    estimated_scaling_factors: dict[str, PositivePercent] = field(default_factory=dict)
    #: time after binding for which the estimate counts at least
    estimated_seconds_after_pod_scheduled: int | None = None
    #: time after initialization for which the estimate counts at least
    estimated_seconds_after_initialized: int | None = None
    #: whether annotations of pods may set factors and times
    allow_customize_estimation: bool = False
    #: percentiles of usage in place of the average
    aggregated: LoadAwareSchedulingAggregatedArgs | None = None
    supported_resources: tuple[str, ...] = ()  # further resources whose usage is considered

    def __post_init__(self) -> None:
        if not self.resource_weights and not self.dominant_resource_weight:
            fill(self, resource_weights=dict(_WEIGHTS))
        fill(
            self,
            usage_thresholds=self.usage_thresholds or dict(_THRESHOLDS),
            estimated_scaling_factors=_FACTORS | self.estimated_scaling_factors,
        )

    def validate(self) -> None:
        for name in self.resource_weights:
            if name not in self.estimated_scaling_factors:
                raise InputError(
                    "required for a resource in resourceWeights, but missing",
                    path=join_path("estimatedScalingFactors", name),
                )
        if self.aggregated is not None:
            for duration, path in (
                (self.aggregated.usage_aggregated_duration, "usageAggregatedDuration"),
                (self.aggregated.score_aggregated_duration, "scoreAggregatedDuration"),
            ):
                _check_not_negative(duration, f"aggregated.{path}")


class NodeNUMAResourceArgs(PluginArgs, frozen=True, kw_only=True):
    """CPU binding, and the preferred utilization of nodes and NUMA nodes."""

    #: bind policy of LSR and LSE pods that name none
    default_cpu_bind_policy: Literal["", "FullPCPUs", "SpreadByPCPUs"] = field(
        name="defaultCPUBindPolicy", default="FullPCPUs"
    )
    scoring_strategy: NodeScoringStrategy = _least_allocated("cpu", "memory")  # score of nodes
    #: score of NUMA nodes within a node
    numa_scoring_strategy: NodeScoringStrategy = _least_allocated("cpu", "memory")


class PreAllocationConfig(ConfigStruct, frozen=True, kw_only=True):
    """Reservations that take the place of pods which run already."""

    #: whether labelled pods are candidates, in place of the owners of the reservation
    enable_cluster_mode: bool = False
    cluster_label_key: str = PRE_ALLOCATABLE  # label of the candidates
    #: annotation of candidates with their order, larger first
    cluster_priority_annotation_key: str = PRE_ALLOCATABLE_PRIORITY
    prefer_no_pre_allocated_pods: bool = False  # whether nodes that need no candidate are preferred


class ReservationSelectorIndexArgs(ConfigStruct, frozen=True, kw_only=True):
    """The labels by which reservations are found faster."""

    enabled: bool = False  # whether the index is used
    key_prefixes: tuple[str, ...] = ()  # prefixes of labels in the index
    keys: tuple[str, ...] = ()  # labels in the index


class ReservationArgs(PluginArgs, frozen=True, kw_only=True):
    """0 seconds mean the default, of all three."""

    enable_preemption: bool = False  # whether reservations preempt pods
    min_candidate_nodes_percentage: ConfigPercent = 10
    min_candidate_nodes_absolute: Count = 100
    controller_workers: Int32 = 1  # has no effect: the loop that schedules writes the status, too
    #: age from which ended reservations are deleted
    gc_duration_seconds: Seconds = _GC_DURATION_SECONDS
    #: time between two searches for such reservations
    gc_interval_seconds: Seconds = _INTERVAL_SECONDS
    disable_garbage_collection: bool = False  # whether ended reservations stay
    resync_interval_seconds: Seconds = _INTERVAL_SECONDS  # has no effect: nothing is copied
    #: reservations in place of pods that run
    pre_allocation_config: PreAllocationConfig = PreAllocationConfig()
    ignored_resources: tuple[str, ...] = ()  # resources that reservations do not keep
    #: domains of such resources: example.com means example.com/*
    ignored_resource_groups: tuple[str, ...] = ()
    #: has no effect: reservations are looked up by owner, which finds no others than a scan
    reservation_selector_index: ReservationSelectorIndexArgs = ReservationSelectorIndexArgs()

    def __post_init__(self) -> None:
        fill(
            self,
            gc_duration_seconds=self.gc_duration_seconds or _GC_DURATION_SECONDS,
            gc_interval_seconds=self.gc_interval_seconds or _INTERVAL_SECONDS,
            resync_interval_seconds=self.resync_interval_seconds or _INTERVAL_SECONDS,
        )

    def validate(self) -> None:
        for index, name in enumerate(self.ignored_resources):
            path = f"ignoredResources[{index}]"
            check_label_key(name, path)
            if not is_extended(name) or name.startswith("requests."):
                raise invalid_value(path, name, "an extended resource such as example.com/gpu")
        for index, group in enumerate(self.ignored_resource_groups):
            path = f"ignoredResourceGroups[{index}]"
            if "/" in group or not is_extended(f"{group}/x"):
                raise invalid_value(path, group, "a domain such as example.com, not kubernetes.io")
            check_label_key(f"{group}/x", path)


class CoschedulingArgs(PluginArgs, frozen=True, kw_only=True):
    """Gangs: how long members wait for each other, and what is done for them."""

    #: time that members wait for each other unless the gang sets it
    default_timeout: Duration = Duration(seconds=600)
    controller_workers: PositiveCount = 1  # has no effect: one loop writes the status
    skip_check_schedule_cycle: bool = False  # has no effect any more
    enable_preemption: bool = False  # whether gangs preempt pods
    aware_network_topology: bool = False  # whether gangs follow the ClusterNetworkTopology
    default_match_policy: str = "once-satisfied"  # or only-waiting, waiting-and-running

    def validate(self) -> None:
        _check_not_negative(self.default_timeout, "defaultTimeout")


class GPUSharedResourceTemplatesConfig(ConfigStruct, frozen=True, kw_only=True):
    """Location of the templates of virtual devices, and the requests that they apply to."""

    config_map_namespace: str = ""  # namespace of the ConfigMap
    config_map_name: str = ""  # name of the ConfigMap
    matched_resources: tuple[str, ...] = ()  # requested resources that the templates apply to


class GPUShareUnsupportedModel(ConfigStruct, frozen=True, kw_only=True):
    """A GPU that can't be shared, as the labels of its node call it."""

    vendor: str  # vendor of the GPU
    model: str  # model of the GPU


class DeviceShareArgs(PluginArgs, frozen=True, kw_only=True):
    """Preferred utilization of devices; given templates replace all default ones."""

    allocator: str = ""  # has no effect any more
    #: score of devices and nodes
    scoring_strategy: NodeScoringStrategy = _least_allocated(
        "koordinator.sh/gpu-memory-ratio",
        "koordinator.sh/gpu-memory",
        "koordinator.sh/rdma",
        "koordinator.sh/fpga",
    )
    #: whether devices ignore the NUMA topology policy
    disable_device_numa_topology_alignment: bool = field(
        name="disableDeviceNUMATopologyAlignment", default=False
    )
    #: place of the templates of virtual devices
    gpu_shared_resource_templates_config: GPUSharedResourceTemplatesConfig = (
        GPUSharedResourceTemplatesConfig(
            config_map_namespace="koordinator-system",
            config_map_name="gpu-shared-resource-templates",
            matched_resources=("huawei.com/npu-core",),
        )
    )
    #: models that are allocated as whole devices only
    gpu_share_unsupported_models: tuple[GPUShareUnsupportedModel, ...] = ()


class HookPluginConf(ConfigStruct, frozen=True, kw_only=True):
    """A hook of the quota tree that is compiled in."""

    key: str = ""  # name of the hook
    factory_key: str = ""  # name under which the hook is registered
    factory_args: str = ""  # arguments of the hook


class ElasticQuotaArgs(PluginArgs, frozen=True, kw_only=True):
    """An empty maximum means the default one: practically none, of CPU and memory.

    The three about queues are ours: they count for quotas whose annotations say nothing else.
    """

    #: time for which a quota may exceed its runtime amount before pods are evicted
    delay_evict_time: Duration = Duration(seconds=120)
    revoke_pod_interval: Duration = Duration(seconds=1)  # time between two searches for such quotas
    #: largest amounts of the default quota
    default_quota_group_max: ResourceList = field(default_factory=dict)
    #: largest amounts of the system quota
    system_quota_group_max: ResourceList = field(default_factory=dict)
    quota_group_namespace: str = "koordinator-system"  # namespace of the built-in quotas
    #: whether pods of quotas that exceed their runtime amount are evicted
    monitor_all_quotas: bool = False
    #: whether a pod must fit every ancestor of its quota too
    enable_check_parent_quota: bool = False
    enable_runtime_quota: bool = True  # whether quotas borrow; otherwise max alone limits them
    #: whether min is lowered where the cluster is smaller than the sum of all
    enable_min_quota_scale: bool = True
    disable_default_quota_preemption: bool = True  # whether pods of the default quota preempt none
    enable_queue_hint: bool = False  # has no effect: queueing hints are always used
    #: has no effect: quotas are always current
    quota_snapshot_update_interval: Duration = Duration(seconds=120)
    hook_plugins: tuple[HookPluginConf, ...] = ()  # hooks of the quota tree
    #: queue policy of quotas that set none
    default_queue_policy: Literal["none", "strict", "backfill", "best-effort"] = "none"
    #: order of jobs in quotas that set none
    default_queue_order: Literal["fifo", "fair-share"] = "fifo"
    default_queue_depth: PositiveCount = 32  # jobs that "close behind the first" means

    def __post_init__(self) -> None:
        unlimited = {"cpu": _NO_LIMIT, "memory": _NO_LIMIT}
        fill(
            self,
            default_quota_group_max=self.default_quota_group_max or unlimited,
            system_quota_group_max=self.system_quota_group_max or unlimited,
            quota_group_namespace=self.quota_group_namespace or "koordinator-system",
        )

    def validate(self) -> None:
        _check_not_negative(self.delay_evict_time, "delayEvictTime")
        _check_not_negative(self.revoke_pod_interval, "revokePodInterval")
        for amounts, path in (
            (self.default_quota_group_max, "defaultQuotaGroupMax"),
            (self.system_quota_group_max, "systemQuotaGroupMax"),
        ):
            for name, amount in amounts.items():
                if amount.nanos < 0:
                    raise invalid_value(join_path(path, name), str(amount), "at least 0")
        for index, hook in enumerate(self.hook_plugins):
            for text, name in ((hook.key, "key"), (hook.factory_key, "factoryKey")):
                if not text:
                    raise InputError("is required", path=f"hookPlugins[{index}].{name}")


class ResourcesType(ConfigStruct, frozen=True, kw_only=True):
    """``type`` is LeastAllocated or MostAllocated; any other scores 0 with its weight."""

    type: str = ""  # LeastAllocated or MostAllocated; any other scores 0
    weight: int = 0  # weight of the resource in the score


class NodeResourcesFitPlusArgs(PluginArgs, frozen=True, kw_only=True):
    """Preferred utilization of nodes, by resource."""

    resources: dict[str, ResourcesType] = field(default_factory=dict)  # type and weight by resource


class ScarceResourceAvoidanceArgs(PluginArgs, frozen=True, kw_only=True):
    """Scarce resources, whose nodes other pods should avoid."""

    resources: tuple[str, ...] = ()  # resources whose nodes are left to pods that request them


class SchedulingHintArgs(PluginArgs, frozen=True, kw_only=True):
    """Limit of the preferred nodes of a hint that are tried."""

    max_hint_nodes: PositiveCount = 100  # number of preferred nodes of a hint that are tried


def _check_not_negative(duration: Duration, path: str) -> None:
    if duration < Duration():
        raise invalid_value(path, str(duration), "at least 0s")
