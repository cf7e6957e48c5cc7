"""Annotations of nodes: how they are shared between classes, and what they are worth.

Source: koordinator apis/extension/node_colocation.go, node_resource_amplification.go,
cpu_normalization.go, node_qos.go, load_aware.go; apis/slo/v1alpha1/node.go;
apis/configuration/slo_controller_config.go, ``ColocationStrategy``.
"""

from typing import Annotated, Final

from msgspec import field

from koordinator.api.annotations.codec import (
    AnnotationCodec,
    annotation_path,
    read_float,
    read_quantity,
)
from koordinator.api.bounds import ANY, NOT_NEGATIVE, Bounds, bounded
from koordinator.api.core import ResourceList
from koordinator.api.crd import ConfiguredPercent, UntypedObject
from koordinator.api.meta import ApiStruct, ObjectMeta
from koordinator.api.node_metric import AggregatePolicy, MemoryCollectPolicy
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

#: worth of a CPU, with two decimals
CPU_NORMALIZATION_RATIO: Final = "node.koordinator.sh/cpu-normalization-ratio"
#: total bandwidth of the node's network, in place of totalNetworkBandwidth of the ConfigMap
NETWORK_BANDWIDTH: Final = "node.koordinator.sh/network-bandwidth"
#: JSON object of ratios by resource, by which the webhook multiplies what the node can allocate
AMPLIFICATION_RATIOS: Final = "node.koordinator.sh/resource-amplification-ratio"
#: id of the NodeManager that runs in the pod, as host:port
YARN_NODE_ID: Final = "yarn.hadoop.apache.org/node-id"
#: id of the YARN cluster that the NodeManager in the pod belongs to
YARN_CLUSTER_ID: Final = "yarn.hadoop.apache.org/cluster-id"

MAX_RATIO: Final = 100  # by which a resource is amplified

#: The annotation of a node is taken as it is; the ConfigMap is checked.
ConfiguredFromZero = Annotated[int, bounded(NOT_NEGATIVE, decoded=ANY)]
ConfiguredFromOne = Annotated[int, bounded(Bounds(1), decoded=ANY)]

_RATIOS = AnnotationCodec(AMPLIFICATION_RATIOS, dict[str, float])

#: allocatable amounts before amplification
RAW_ALLOCATABLE = AnnotationCodec("node.koordinator.sh/raw-allocatable", ResourceList)


class ColocationStrategy(ApiStruct, frozen=True, kw_only=True):
    """Share of idle resources for batch and mid pods; None leaves it to the configuration."""

    enable: bool | None = None  # whether the node offers batch and mid resources
    #: time window of the averages in a NodeMetric
    metric_aggregate_duration_seconds: ConfiguredFromOne | None = None
    #: time between two reports of koordlet
    metric_report_interval_seconds: ConfiguredFromOne | None = None
    #: time windows of the percentiles in a NodeMetric
    metric_aggregate_policy: AggregatePolicy | None = None
    #: memory that counts as used: without page cache, with hot pages, or with all of it
    metric_memory_collect_policy: MemoryCollectPolicy | None = None
    #: share of the node's CPU that batch and other pods may fill together
    cpu_reclaim_threshold_percent: ConfiguredFromZero | None = None
    #: share of the node's memory that batch and other pods may fill together
    memory_reclaim_threshold_percent: ConfiguredFromZero | None = None
    cpu_calculate_policy: str | None = None  # usage or maxUsageRequest
    memory_calculate_policy: str | None = None  # usage, request or maxUsageRequest
    #: age of a NodeMetric from which batch and mid resources are set to 0
    degrade_time_minutes: ConfiguredFromOne | None = None
    #: time after which the node is updated even if the amounts differ little
    update_time_threshold_seconds: ConfiguredFromOne | None = None
    #: relative change of an amount from which the node is updated at once
    resource_diff_threshold: (
        Annotated[float, bounded(Bounds(most=1, above=0), decoded=ANY)] | None
    ) = None
    mid_reclaim_mode: str | None = None  # static, or not set
    #: largest mid-cpu, as a percentage of the node's CPU
    mid_cpu_threshold_percent: ConfiguredPercent | None = field(
        name="midCPUThresholdPercent", default=None
    )
    #: largest mid-memory, as a percentage of the node's memory
    mid_memory_threshold_percent: ConfiguredPercent | None = None
    #: share of what prod pods do not request that mid resources get
    mid_unallocated_percent: ConfiguredPercent | None = None
    #: mid-cpu in the static mode, as a percentage of the node's CPU
    mid_static_cpu_reserved_percent: ConfiguredPercent | None = field(
        name="midStaticCPUReservedPercent", default=None
    )
    #: mid-memory in the static mode, as a percentage of the node's memory
    mid_static_memory_reserved_percent: ConfiguredPercent | None = None
    #: largest batch-cpu, as a percentage of the node's CPU
    batch_cpu_threshold_percent: ConfiguredFromZero | None = field(
        name="batchCPUThresholdPercent", default=None
    )
    #: largest batch-memory, as a percentage of the node's memory
    batch_memory_threshold_percent: ConfiguredFromZero | None = None
    extensions: UntypedObject = {}  # settings of extensions of the manager; kept as they are


class OriginExtendedAllocatable(ApiStruct, frozen=True, kw_only=True):
    """Batch resources before the allocations of third parties are subtracted."""

    resources: ResourceList = {}  # batch resources by name


class ThirdPartyAllocation(ApiStruct, frozen=True, kw_only=True):
    """Resources of a node that another system, such as YARN, has allocated."""

    name: str  # name of the system, such as hadoop-yarn
    priority: str  # a PriorityBand
    resources: ResourceList = {}  # allocated batch or mid resources


class ThirdPartyAllocations(ApiStruct, frozen=True, kw_only=True):
    """One entry per system."""

    allocations: tuple[ThirdPartyAllocation, ...] = ()  # allocations by system


class CustomAggregatedUsage(ApiStruct, frozen=True, kw_only=True):
    """Thresholds, in percent, for the usage over a time window."""

    #: percentage of the node by resource from which the node is not used
    usage_thresholds: dict[str, int] = {}
    usage_aggregation_type: str = ""  # an AggregationType
    usage_aggregated_duration: Duration | None = None  # time window of the percentile


class CustomUsageThresholds(ApiStruct, frozen=True, kw_only=True):
    """Thresholds, in percent, that replace the arguments of load-aware scheduling on this node."""

    #: percentage of the node by resource from which the node is not used
    usage_thresholds: dict[str, int] = {}
    #: the same for the usage of prod pods alone, and for prod pods
    prod_usage_thresholds: dict[str, int] = {}
    #: thresholds for percentiles of usage instead of the average
    aggregated_usage: CustomAggregatedUsage | None = None


#: strategy of this node; goes before the ConfigMap
COLOCATION_STRATEGY = AnnotationCodec("node.koordinator.sh/colocation-strategy", ColocationStrategy)
ORIGIN_EXTENDED_ALLOCATABLE = AnnotationCodec(
    "node.koordinator.sh/originExtendedAllocatable", OriginExtendedAllocatable
)  # batch resources before third parties
THIRD_PARTY_ALLOCATIONS = AnnotationCodec(
    "node.koordinator.sh/thirdPartyAllocations", ThirdPartyAllocations
)  # batch resources that other systems use
USAGE_THRESHOLDS = AnnotationCodec(
    "scheduling.koordinator.sh/usage-thresholds", CustomUsageThresholds
)  # thresholds of load-aware scheduling on this node


def read_cpu_normalization_ratio(meta: ObjectMeta) -> float | None:
    """Return the CPU amplification ratio of this node, None if it is not set.

    Raises InputError if it isn't a number above 0.
    """
    ratio = read_float(meta, CPU_NORMALIZATION_RATIO)
    if ratio is not None and not ratio > 0:
        raise InputError(
            f"must be a number above 0, got {ratio}",
            path=annotation_path(CPU_NORMALIZATION_RATIO),
        )
    return ratio


def cpu_normalization_entry(ratio: float) -> dict[str, str]:
    """Return the annotation, with two decimals."""
    return {CPU_NORMALIZATION_RATIO: f"{ratio:.2f}"}


def read_amplification_ratios(meta: ObjectMeta) -> dict[str, float] | None:
    """Return by how much the node shows more of a resource than it has.

    Raises InputError if the annotation can't be read, or can't be meant.
    """
    ratios = _RATIOS.read(meta)
    for name, ratio in (ratios or {}).items():
        if not ratio <= MAX_RATIO:
            raise InputError(
                f"the ratio of {name} must be at most {MAX_RATIO}, got {ratio}",
                path=_RATIOS.path,
            )
    return ratios


def amplification_entry(ratios: dict[str, float]) -> dict[str, str]:
    """Return the annotation; every ratio has two decimals, which JSON encoders don't do."""
    parts = (f'"{name}":{ratio:.2f}' for name, ratio in sorted(ratios.items()))
    return {AMPLIFICATION_RATIOS: "{" + ",".join(parts) + "}"}


def read_network_bandwidth(meta: ObjectMeta) -> Quantity | None:
    """Return the bandwidth of the node, None if it is not set.

    Raises InputError if it isn't a quantity.
    """
    return read_quantity(meta, NETWORK_BANDWIDTH)
