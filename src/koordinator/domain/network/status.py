"""What the status of ClusterNetworkTopology says: every domain, parents first.

Source: koordinator pkg/scheduler/frameworkext/networktopology/tree_manager.go ``makeStatus``.
"""

from collections.abc import Iterator

from koordinator.api.cluster_network_topology import (
    ClusterNetworkTopologyStatus,
    TopologyDetail,
    TopologyInfo,
)
from koordinator.domain.network.tree import NetworkTree


def status_of(tree: NetworkTree) -> ClusterNetworkTopologyStatus:
    """Return all domains but the nodes; those of one parent by name."""
    return ClusterNetworkTopologyStatus(detail_status=tuple(_details(tree, 0, 0, None)))


def _details(
    tree: NetworkTree, level: int, domain: int, parent: TopologyInfo | None
) -> Iterator[TopologyDetail]:
    names, levels = tree.layer_names, tree.levels()
    info = TopologyInfo(topology_layer=names[level], topology_name=levels[level].names[domain])
    children = levels[level].children_of(domain).tolist()
    above_nodes = level + 1 == tree.depth
    below = [] if above_nodes else sorted((levels[level + 1].names[c], c) for c in children)
    yield TopologyDetail(
        topology_info=info,
        parent_topology_info=parent,
        child_topology_layer=names[level + 1] if children else "",
        child_topology_names=tuple(name for name, _ in below),
        node_num=int(levels[level].sizes[domain]),
    )
    for _, child in below:
        yield from _details(tree, level + 1, child, info)
