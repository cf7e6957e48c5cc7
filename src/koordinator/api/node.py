"""Node and its report of NUMA topology.

Source: k8s.io/api core/v1/types.go; k8stopologyawareschedwg/noderesourcetopology-api
pkg/apis/topology/v1alpha1/types.go, v1alpha2/types.go.
"""

from typing import ClassVar

from msgspec import field

from koordinator.api.core import ResourceList, Taint
from koordinator.api.crd import CustomResource
from koordinator.api.meta import ApiStruct, Condition, KubeObject
from koordinator.foundation.quantity import Quantity

NUMA_ZONE = "Node"  # the zone type of a NUMA node, which is called node-<id>


class NodePodPreemptionPolicy(ApiStruct, frozen=True, kw_only=True):
    """Preemption of pods of one node.  Gate InPlacePodVerticalScalingSchedulerPreemption.

    ``disable_resize_preemption``: owners who forbid preemption for resized pods; empty: allowed.
    """

    disable_resize_preemption: tuple[str, ...] = ()


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    """Settings of the operator."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = field(name="providerID", default="")
    pod_preemption_policy: NodePodPreemptionPolicy | None = None


class ContainerImage(ApiStruct, frozen=True, kw_only=True):
    """An image that lies on the node, under all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class AttachedVolume(ApiStruct, frozen=True, kw_only=True):
    """A volume that is attached to the node."""

    name: str
    device_path: str = ""


class NodeAddress(ApiStruct, frozen=True, kw_only=True):
    """``type`` is Hostname, InternalIP, ExternalIP, …."""

    type: str
    address: str


class NodeSystemInfo(ApiStruct, frozen=True, kw_only=True):
    """Facts about the machine that the kubelet reports."""

    architecture: str = ""
    operating_system: str = ""
    kernel_version: str = ""
    kubelet_version: str = ""


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    """Report of the kubelet.  Pods share ``allocatable``; ``capacity`` is the whole machine."""

    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()
    declared_features: tuple[str, ...] = ()  # of the kubelet


class Node(KubeObject, frozen=True, kw_only=True):
    """A machine that runs pods."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Node"
    PLURAL: ClassVar[str] = "nodes"
    NAMESPACED: ClassVar[bool] = False

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class CostInfo(ApiStruct, frozen=True, kw_only=True):
    """The distance to another zone."""

    name: str  # name of the other zone
    value: int  # distance to the other zone


class AttributeInfo(ApiStruct, frozen=True, kw_only=True):
    """A free remark."""

    name: str  # name of the attribute
    value: str  # value of the attribute


class ZoneResource(ApiStruct, frozen=True, kw_only=True):
    """Amounts of one resource in a zone."""

    name: str  # name of the resource
    capacity: Quantity  # total amount
    allocatable: Quantity  # amount that pods can get
    available: Quantity  # amount that no pod has


class Zone(ApiStruct, frozen=True, kw_only=True):
    """A part of the machine; a NUMA node if ``type`` is Node."""

    name: str  # name of the zone, such as node-0
    type: str  # type of the zone: Node for a NUMA node
    parent: str = ""  # zone that it is a part of
    costs: tuple[CostInfo, ...] = ()  # distances to other zones
    attributes: tuple[AttributeInfo, ...] = ()  # further properties
    resources: tuple[ZoneResource, ...] = ()  # resources of the zone


class NodeResourceTopologyV1Alpha2(CustomResource, frozen=True, kw_only=True):
    """The version that the API server stores; it converts to the one that Koordinator uses."""

    API_VERSION: ClassVar[str] = "topology.node.k8s.io/v1alpha2"
    KIND: ClassVar[str] = "NodeResourceTopology"
    PLURAL: ClassVar[str] = "noderesourcetopologies"
    NAMESPACED: ClassVar[bool] = False

    zones: tuple[Zone, ...]  # parts of the node
    topology_policies: tuple[str, ...] = ()  # topology manager policies of the kubelet
    attributes: tuple[AttributeInfo, ...] = ()  # further properties of the node


class NodeResourceTopology(CustomResource, frozen=True, kw_only=True):
    """The topology of the node of the same name; its CPUs stand in annotations."""

    API_VERSION: ClassVar[str] = "topology.node.k8s.io/v1alpha1"
    KIND: ClassVar[str] = "NodeResourceTopology"
    PLURAL: ClassVar[str] = "noderesourcetopologies"
    NAMESPACED: ClassVar[bool] = False
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("node-res-topo",)
    API_APPROVED: ClassVar[str] = "https://github.com/kubernetes/enhancements/pull/1870"
    STORED_AS: ClassVar[type[KubeObject] | None] = NodeResourceTopologyV1Alpha2

    topology_policies: tuple[str, ...]  # topology manager policies of the kubelet
    zones: tuple[Zone, ...]  # parts of the node


KINDS = (
    Node,
    NodeResourceTopology,
)
