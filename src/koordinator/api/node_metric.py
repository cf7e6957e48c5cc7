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
    """Reduction of the samples of a time window to one number."""

    AVG = "avg"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"


class AggregatePolicy(ApiStruct, frozen=True, kw_only=True):
    """The time windows to report."""

    durations: tuple[Duration, ...] = ()  # lengths of the time windows


class MetricCollectPolicy(ApiStruct, frozen=True, kw_only=True):
    """Settings of koordlet's measurements; koordlet has its own defaults."""

    aggregate_duration_seconds: int | None = None  # time window of the averages
    report_interval_seconds: int | None = None  # time between two reports
    node_aggregate_policy: AggregatePolicy | None = None  # time windows of the percentiles
    #: which page cache counts as used memory: none, hot or all
    node_memory_collect_policy: MemoryCollectPolicy | None = None


class NodeMetricSpec(ApiStruct, frozen=True, kw_only=True):
    """Written by the manager."""

    metric_collect_policy: MetricCollectPolicy | None = None  # how the agent measures and reports


class ResourceMap(ApiStruct, frozen=True, kw_only=True):
    """Used amounts; devices are listed one by one."""

    resources: ResourceList = {}  # amounts by name of the resource
    devices: tuple[DeviceInfo, ...] = ()  # usage of single devices


class AggregatedUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage over one time window; empty while samples span less than half of it."""

    usage: dict[str, ResourceMap] = {}  # by AggregationType
    duration: Duration = Duration()  # length of the time window


class NumaUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage of one NUMA node."""

    numa_node_id: Int32 = field(name="numaNodeID")  # number of the NUMA node
    node_usage: ResourceMap = ResourceMap()  # usage of the whole NUMA node
    system_usage: ResourceMap = ResourceMap()  # usage outside of pods


class NodeUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage of the node, and the part of it that is no pod's."""

    node_usage: ResourceMap = ResourceMap()  # average usage of the whole node
    #: average and percentiles of it, by window
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    system_usage: ResourceMap = ResourceMap()  # average usage outside of pods
    #: average and percentiles of it, by window
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()
    numa_usages: tuple[NumaUsage, ...] = ()  # usage by NUMA node


class PodUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage of a pod, with its priority band and QoS class at that time."""

    name: str = ""  # name of the pod
    namespace: str = ""  # namespace of the pod
    pod_usage: ResourceMap = ResourceMap()  # average usage of the pod
    priority: str = ""  # a PriorityBand
    qos: str = ""  # a QosClass
    extensions: UntypedObject = {}  # further data; koordlet writes none


class HostApplicationUsage(ApiStruct, frozen=True, kw_only=True):
    """The usage of a program that runs outside of pods."""

    name: str = ""  # name of the application in the NodeSLO
    usage: ResourceMap = ResourceMap()  # average usage
    priority: str = ""  # a PriorityBand
    qos: str = ""  # a QosClass


class ResourceEstimate(ApiStruct, frozen=True, kw_only=True):
    """A prediction."""

    resource: ResourceMap = ResourceMap()  # predicted amounts


class NodeMetricStatus(ApiStruct, frozen=True, kw_only=True):
    """Written by koordlet.

    ``prod_reclaimable_metric`` is what pods of band koord-prod requested and will hardly use.
    """

    update_time: dt.datetime | None = None  # time of the report
    node_metric: NodeUsage | None = None  # usage of the node
    pods_metric: tuple[PodUsage, ...] = ()  # usage of each pod
    #: usage of programs outside of pods
    host_application_metric: tuple[HostApplicationUsage, ...] = ()
    #: resources that prod pods request and are predicted not to use
    prod_reclaimable_metric: ResourceEstimate | None = None
    prod_peak_metric: ResourceEstimate | None = None  # predicted peak usage of prod pods


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
