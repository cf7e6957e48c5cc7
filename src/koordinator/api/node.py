"""Nodes, with the fields that scheduling reads.

Source: k8s.io/api core/v1/types.go.
"""

from typing import ClassVar

from msgspec import field

from koordinator.api.core import ResourceList, Taint
from koordinator.api.meta import ApiStruct, Condition, KubeObject


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    """What an operator sets."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = field(name="providerID", default="")


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
    """What the kubelet reports.  Pods share ``allocatable``; ``capacity`` is the whole machine."""

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


KINDS = (Node,)
