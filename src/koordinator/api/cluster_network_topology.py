"""The layers of the network between nodes: which racks, blocks and halls there are.

Source: koordinator apis/scheduling/v1alpha1/cluster_network_topology_types.go;
pkg/scheduler/frameworkext/networktopology/tree.go (construction of the tree).
"""

from typing import ClassVar

from koordinator.api.crd import CustomResource, StandardCondition
from koordinator.api.meta import ApiStruct, Int32
from koordinator.api.syntax import check_label_key, invalid_value
from koordinator.foundation.errors import InputError

DEFAULT_NAME = "default"  # the only object that is looked at
NODE_LAYER = "NodeTopologyLayer"  # the leaves: every node is one
CLUSTER_LAYER = "ClusterTopologyLayer"  # the root, which needs no entry


class NetworkTopologyLayer(ApiStruct, frozen=True, kw_only=True):
    """A layer; the first label of ``label_key`` that a node has names its domain."""

    topology_layer: str  # name of the layer, such as SpineLayer
    parent_topology_layer: str = ""  # name of the layer above; empty for the topmost
    #: labels of nodes; the first of them that a node has names its domain
    label_key: tuple[str, ...] = ()


class ClusterNetworkTopologySpec(ApiStruct, frozen=True, kw_only=True):
    """One chain of layers, in any order."""

    #: layers of the network, each with the labels of nodes that name its domains
    network_topology_spec: tuple[NetworkTopologyLayer, ...]


class TopologyInfo(ApiStruct, frozen=True, kw_only=True):
    """Names a domain."""

    topology_layer: str  # layer of the domain
    topology_name: str  # name of the domain


class TopologyDetail(ApiStruct, frozen=True, kw_only=True):
    """A domain and what it consists of; the children are not named if they are nodes."""

    topology_info: TopologyInfo  # the domain
    node_num: Int32  # number of nodes in the domain
    parent_topology_info: TopologyInfo | None = None  # the domain above
    child_topology_layer: str = ""  # layer of the domains below
    child_topology_names: tuple[str, ...] = ()  # names of the domains below


class ClusterNetworkTopologyStatus(ApiStruct, frozen=True, kw_only=True):
    """All domains but the nodes, parents first."""

    detail_status: tuple[TopologyDetail, ...] = ()  # domains above the nodes, each after its parent
    conditions: tuple[StandardCondition, ...] = ()  # ours: whether the object is valid


class ClusterNetworkTopology(CustomResource, frozen=True, kw_only=True):
    """The network of the cluster."""

    API_VERSION: ClassVar[str] = "scheduling.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "ClusterNetworkTopology"
    PLURAL: ClassVar[str] = "clusternetworktopologies"
    NAMESPACED: ClassVar[bool] = False
    SUBRESOURCE_STATUS: ClassVar[bool] = True

    spec: ClusterNetworkTopologySpec
    status: ClusterNetworkTopologyStatus = ClusterNetworkTopologyStatus()


def validate_cluster_network_topology(topology: ClusterNetworkTopology) -> None:
    """Raise InputError unless the layers are one chain that starts at the nodes."""
    path = "spec.networkTopologySpec"
    layers: dict[str, NetworkTopologyLayer] = {}
    for index, layer in enumerate(topology.spec.network_topology_spec):
        if layer.topology_layer in layers:
            raise invalid_value(f"{path}[{index}].topologyLayer", layer.topology_layer, "unique")
        layers[layer.topology_layer] = layer
        for key_index, key in enumerate(layer.label_key):
            check_label_key(key, f"{path}[{index}].labelKey[{key_index}]")
    left, name = dict(layers), NODE_LAYER
    while name and name != CLUSTER_LAYER:
        entry = left.pop(name, None)
        if entry is None:
            problem = "names a parent of itself" if name in layers else "has no entry"
            raise InputError(
                f"layer {name} {problem}; layers must form one chain that starts at {NODE_LAYER}",
                path=path,
            )
        name = entry.parent_topology_layer
    left.pop(CLUSTER_LAYER, None)
    if left:
        raise InputError(
            f"all layers must form one chain; not connected to {NODE_LAYER}: "
            f"{', '.join(sorted(left))}",
            path=path,
        )


KINDS = (ClusterNetworkTopology,)
