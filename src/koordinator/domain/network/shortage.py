"""What a job is told that no domain has room for.

The text begins as the original's (network_topology_solver.go, ``MessageNoCandidateTopologyNodes``);
what the best domain had is added, and a long list of domains is cut.
"""

from collections.abc import Sequence

from koordinator.domain.network.plan import Planner

LISTED = 16  # domains; those with the most room


def shortage(planner: Planner, count: int, why_nodes: str) -> str:
    """Return why ``count`` members can't be gathered; ``why_nodes`` is why no node takes more."""
    tree, level = planner.tree, planner.rules.must
    layer, headroom = tree.layer_names[level], planner.headroom[level]
    names: Sequence[str] = tree.node_names if level == tree.depth else planner.levels[level].names
    domains = sorted(planner.allowed().tolist(), key=lambda d: (-int(headroom[d]), names[d]))
    listed = sorted(
        f"topology topologyNode {layer}/{names[d]}: {headroom[d]}" for d in domains[:LISTED]
    )
    text = ";".join(listed)
    if len(domains) > LISTED:
        text += f";and {len(domains) - LISTED} with no more room"
    multiples = ", ".join(
        sorted(f"{tree.layer_names[at]}={n}" for at, n in planner.rules.multiples.items())
    )
    said = (
        f"no candidate topology nodes can accommodate job, desiredOfferSlot: {count}, "
        f"{text}, {why_nodes}"
    )
    if multiples:
        said += f"; podCountMultiple constraints: {multiples}"
    if domains:
        best = domains[0]
        name = f"{layer}/{names[best]}" if level else "the cluster"
        said += f"; best was {name} with room for {min(int(headroom[best]), count)} of {count}"
    return said
