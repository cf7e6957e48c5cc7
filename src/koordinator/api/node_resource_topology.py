"""The NUMA nodes of a machine and what each of them has.

Source: k8stopologyawareschedwg/noderesourcetopology-api pkg/apis/topology/v1alpha1/types.go,
v1alpha2/types.go.
"""

from typing import ClassVar

from koordinator.api.crd import CustomResource
from koordinator.api.meta import ApiStruct, KubeObject
from koordinator.foundation.quantity import Quantity

NUMA_ZONE = "Node"  # the zone type of a NUMA node, which is called node-<id>


class CostInfo(ApiStruct, frozen=True, kw_only=True):
    """The distance to another zone."""

    name: str
    value: int


class AttributeInfo(ApiStruct, frozen=True, kw_only=True):
    """A free remark."""

    name: str
    value: str


class ZoneResource(ApiStruct, frozen=True, kw_only=True):
    """Amounts of one resource in a zone."""

    name: str
    capacity: Quantity
    allocatable: Quantity
    available: Quantity


class Zone(ApiStruct, frozen=True, kw_only=True):
    """A part of the machine; a NUMA node if ``type`` is Node."""

    name: str
    type: str
    parent: str = ""
    costs: tuple[CostInfo, ...] = ()
    attributes: tuple[AttributeInfo, ...] = ()
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopologyV1Alpha2(CustomResource, frozen=True, kw_only=True):
    """The version that the API server stores; it converts to the one that Koordinator uses."""

    API_VERSION: ClassVar[str] = "topology.node.k8s.io/v1alpha2"
    KIND: ClassVar[str] = "NodeResourceTopology"
    PLURAL: ClassVar[str] = "noderesourcetopologies"
    NAMESPACED: ClassVar[bool] = False

    zones: tuple[Zone, ...]
    topology_policies: tuple[str, ...] = ()
    attributes: tuple[AttributeInfo, ...] = ()


class NodeResourceTopology(CustomResource, frozen=True, kw_only=True):
    """The topology of the node of the same name; its CPUs stand in annotations."""

    API_VERSION: ClassVar[str] = "topology.node.k8s.io/v1alpha1"
    KIND: ClassVar[str] = "NodeResourceTopology"
    PLURAL: ClassVar[str] = "noderesourcetopologies"
    NAMESPACED: ClassVar[bool] = False
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("node-res-topo",)
    API_APPROVED: ClassVar[str] = "https://github.com/kubernetes/enhancements/pull/1870"
    STORED_AS: ClassVar[type[KubeObject] | None] = NodeResourceTopologyV1Alpha2

    topology_policies: tuple[str, ...]
    zones: tuple[Zone, ...]


KINDS = (NodeResourceTopology,)
