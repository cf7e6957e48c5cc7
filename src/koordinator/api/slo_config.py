"""The ConfigMap slo-controller-config: what the manager makes of nodes and their pods.

Every key of the ConfigMap is a JSON document with a strategy for the cluster and strategies for
nodes that a selector picks.
Source: koordinator apis/configuration/slo_controller_config.go.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.meta import ApiStruct, LabelSelector
from koordinator.api.node_slo import (
    CpuBurstStrategy,
    HostApplication,
    ResourceThresholdStrategy,
    SystemStrategy,
)
from koordinator.api.resource_qos import ResourceQosStrategy

CONFIG_NAMESPACE: Final = "koordinator-system"
CONFIG_NAME: Final = "slo-controller-config"
CONFIG_TYPE: Final = "slo-controller-config"  # of the label configmap-type

COLOCATION: Final = "colocation-config"
RESOURCE_THRESHOLD: Final = "resource-threshold-config"
RESOURCE_QOS: Final = "resource-qos-config"
CPU_BURST: Final = "cpu-burst-config"
SYSTEM: Final = "system-config"
HOST_APPLICATION: Final = "host-application-config"
CPU_NORMALIZATION: Final = "cpu-normalization-config"
RESOURCE_AMPLIFICATION: Final = "resource-amplification-config"


class NodeColocation(ColocationStrategy, frozen=True, kw_only=True):
    """Overrides for the selected nodes; a selector of None selects none, an empty one all."""

    name: str = ""  # name of the entry
    #: labels of the nodes; unset selects none, an empty one all
    node_selector: LabelSelector | None = None


class ColocationConfig(ColocationStrategy, frozen=True, kw_only=True):
    """Strategy of the cluster, and strategies of nodes that override it."""

    node_configs: tuple[NodeColocation, ...] = ()  # differences on selected nodes


class NodeThreshold(ResourceThresholdStrategy, frozen=True, kw_only=True):
    """Overrides for the selected nodes."""

    name: str = ""  # name of the entry
    node_selector: LabelSelector | None = None  # labels of the nodes


class ThresholdConfig(ApiStruct, frozen=True, kw_only=True):
    """Thresholds of suppression and eviction of best-effort pods."""

    cluster_strategy: ResourceThresholdStrategy | None = None  # settings of all nodes
    node_strategies: tuple[NodeThreshold, ...] = ()  # differences on selected nodes


class NodeResourceQos(ResourceQosStrategy, frozen=True, kw_only=True):
    """Overrides for the selected nodes."""

    name: str = ""  # name of the entry
    node_selector: LabelSelector | None = None  # labels of the nodes


class ResourceQosConfig(ApiStruct, frozen=True, kw_only=True):
    """Kernel settings of the QoS classes."""

    cluster_strategy: ResourceQosStrategy | None = None  # settings of all nodes
    node_strategies: tuple[NodeResourceQos, ...] = ()  # differences on selected nodes


class NodeCpuBurst(CpuBurstStrategy, frozen=True, kw_only=True):
    """Overrides for the selected nodes."""

    name: str = ""  # name of the entry
    node_selector: LabelSelector | None = None  # labels of the nodes


class CpuBurstConfig(ApiStruct, frozen=True, kw_only=True):
    """CPU burst of pods beyond their limit."""

    cluster_strategy: CpuBurstStrategy | None = None  # settings of all nodes
    node_strategies: tuple[NodeCpuBurst, ...] = ()  # differences on selected nodes


class NodeSystem(SystemStrategy, frozen=True, kw_only=True):
    """Overrides for the selected nodes."""

    name: str = ""  # name of the entry
    node_selector: LabelSelector | None = None  # labels of the nodes


class SystemConfig(ApiStruct, frozen=True, kw_only=True):
    """Settings of the kernel."""

    cluster_strategy: SystemStrategy | None = None  # settings of all nodes
    node_strategies: tuple[NodeSystem, ...] = ()  # differences on selected nodes


class NodeHostApplications(ApiStruct, frozen=True, kw_only=True):
    """The whole list of the nodes that the selector picks."""

    name: str = ""  # name of the entry
    node_selector: LabelSelector | None = None  # labels of the nodes
    #: applications of these nodes, in place of the cluster's
    applications: tuple[HostApplication, ...] = ()


class HostApplicationConfig(ApiStruct, frozen=True, kw_only=True):
    """Programs that run outside of pods."""

    applications: tuple[HostApplication, ...] = ()  # applications on all nodes
    node_configs: tuple[NodeHostApplications, ...] = ()  # lists of selected nodes


class ModelRatio(ApiStruct, frozen=True, kw_only=True):
    """Performance ratios of a CPU model, by whether hyper-threading and turbo are on."""

    base_ratio: float | None = None  # ratio without hyper-threading and turbo
    hyper_thread_enabled_ratio: float | None = None  # ratio with hyper-threading
    turbo_enabled_ratio: float | None = None  # ratio with turbo
    hyper_thread_turbo_enabled_ratio: float | None = None  # ratio with both


class CpuNormalizationStrategy(ApiStruct, frozen=True, kw_only=True):
    """Performance ratios of CPUs, by the name of their model."""

    enable: bool | None = None  # whether CPUs are normalized
    default_ratio: float | None = None  # ratio of models that are not listed
    ratio_model: dict[str, ModelRatio] = {}  # ratios by CPU model


class NodeCpuNormalization(CpuNormalizationStrategy, frozen=True, kw_only=True):
    """Overrides for the selected nodes."""

    name: str = ""  # name of the entry
    node_selector: LabelSelector | None = None  # labels of the nodes


class CpuNormalizationConfig(CpuNormalizationStrategy, frozen=True, kw_only=True):
    """Strategy of the cluster, and strategies of nodes that override it."""

    node_configs: tuple[NodeCpuNormalization, ...] = ()  # differences on selected nodes


class ResourceAmplificationStrategy(ApiStruct, frozen=True, kw_only=True):
    """Factors by which nodes publish more of a resource than they have."""

    enable: bool | None = None  # whether resources are amplified
    resource_amplification_ratio: dict[str, float] = {}  # ratio by resource


class NodeResourceAmplification(ResourceAmplificationStrategy, frozen=True, kw_only=True):
    """Overrides for the selected nodes."""

    name: str = ""  # name of the entry
    node_selector: LabelSelector | None = None  # labels of the nodes


class ResourceAmplificationConfig(ResourceAmplificationStrategy, frozen=True, kw_only=True):
    """Strategy of the cluster, and strategies of nodes that override it."""

    node_configs: tuple[NodeResourceAmplification, ...] = ()  # differences on selected nodes


#: Struct of each key of the ConfigMap.
SECTIONS: Final[Mapping[str, type[ApiStruct]]] = MappingProxyType(
    {
        COLOCATION: ColocationConfig,
        RESOURCE_THRESHOLD: ThresholdConfig,
        RESOURCE_QOS: ResourceQosConfig,
        CPU_BURST: CpuBurstConfig,
        SYSTEM: SystemConfig,
        HOST_APPLICATION: HostApplicationConfig,
        CPU_NORMALIZATION: CpuNormalizationConfig,
        RESOURCE_AMPLIFICATION: ResourceAmplificationConfig,
    }
)
