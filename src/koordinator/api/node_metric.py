"""NodeMetric: usage of a node and its pods, reported by koordlet.

Source: koordinator apis/slo/v1alpha1/nodemetric_types.go, resources.go.
"""

import datetime as dt
from enum import StrEnum
from typing import ClassVar, Literal

from msgspec import field

from koordinator.api.core import ResourceList
from koordinator.api.crd import CustomResource, UntypedObject
from koordinator.api.device import DeviceInfo
from koordinator.api.meta import ApiStruct, Int32
from koordinator.foundation.clock import Duration

MemoryCollectPolicy = Literal[
    "usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache"
]


class AggregationType(StrEnum):
    """How samples of a time window become one number."""

    AVG = "avg"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"


class AggregatePolicy(ApiStruct, frozen=True, kw_only=True):
    """The time windows to report."""

    durations: tuple[Duration, ...] = ()


class MetricCollectPolicy(ApiStruct, frozen=True, kw_only=True):
    """How koordlet measures.  What is None is up to koordlet."""

    aggregate_duration_seconds: int | None = None
    report_interval_seconds: int | None = None
    node_aggregate_policy: AggregatePolicy | None = None
    node_memory_collect_policy: MemoryCollectPolicy | None = None


class NodeMetricSpec(ApiStruct, frozen=True, kw_only=True):
    """Written by the manager."""

    metric_collect_policy: MetricCollectPolicy | None = None


class ResourceMap(ApiStruct, frozen=True, kw_only=True):
    """Used amounts; devices are listed one by one."""

    resources: ResourceList = {}
    devices: tuple[DeviceInfo, ...] = ()


class AggregatedUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage over one time window; empty while samples span less than half of it."""

    usage: dict[str, ResourceMap] = {}  # by AggregationType
    duration: Duration = Duration()


class NumaUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage of one NUMA node."""

    numa_node_id: Int32 = field(name="numaNodeID")
    node_usage: ResourceMap = ResourceMap()
    system_usage: ResourceMap = ResourceMap()


class NodeUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage of the node, and the part of it that is no pod's."""

    node_usage: ResourceMap = ResourceMap()
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    system_usage: ResourceMap = ResourceMap()
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()
    numa_usages: tuple[NumaUsage, ...] = ()


class PodUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage of a pod, with its priority band and QoS class at that time."""

    name: str = ""
    namespace: str = ""
    pod_usage: ResourceMap = ResourceMap()
    priority: str = ""  # a PriorityBand
    qos: str = ""  # a QosClass
    extensions: UntypedObject = {}


class HostApplicationUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage of a program that runs outside of pods."""

    name: str = ""
    usage: ResourceMap = ResourceMap()
    priority: str = ""  # a PriorityBand
    qos: str = ""  # a QosClass


class ResourceEstimate(ApiStruct, frozen=True, kw_only=True):
    """A prediction."""

    resource: ResourceMap = ResourceMap()


class NodeMetricStatus(ApiStruct, frozen=True, kw_only=True):
    """Written by koordlet.

    ``prod_reclaimable_metric`` is what pods of band koord-prod requested and will hardly use.
    """

    update_time: dt.datetime | None = None
    node_metric: NodeUsage | None = None
    pods_metric: tuple[PodUsage, ...] = ()
    host_application_metric: tuple[HostApplicationUsage, ...] = ()
    prod_reclaimable_metric: ResourceEstimate | None = None
    prod_peak_metric: ResourceEstimate | None = None


class NodeMetric(CustomResource, frozen=True, kw_only=True):
    """The usage of the node of the same name."""

    API_VERSION: ClassVar[str] = "slo.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "NodeMetric"
    PLURAL: ClassVar[str] = "nodemetrics"
    NAMESPACED: ClassVar[bool] = False
    SUBRESOURCE_STATUS: ClassVar[bool] = True

    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


KINDS = (NodeMetric,)
