"""What is asked for of nodes: in amounts, and in percent of what they have.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/nodeutilization nodeutilization.go,
usageclients.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordinator.api.node import Node
from koordinator.descheduler.contract import ClusterView
from koordinator.domain.pod_requests import canonical

Percentages = Mapping[str, float]
BASIC = ("cpu", "memory", "pods")
ALL = 100.0


@dataclass(frozen=True, slots=True)
class RequestedNode:
    """A node, what is asked for of each resource, and which percentage of what it has that is."""

    node: Node
    capacity: Mapping[str, int]
    amounts: dict[str, int]  # falls as pods are evicted
    percentages: Percentages  # of resources that the node has

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def total(self) -> int:
        """All amounts together, by which nodes are ordered."""
        return sum(self.amounts.values())

    def is_above(self, thresholds: Percentages) -> bool:
        """Return whether more than a threshold is asked for of some resource."""
        return any(limit < self.percentages.get(name, 0.0) for name, limit in thresholds.items())

    def limits(self, thresholds: Percentages, names: Iterable[str]) -> dict[str, int]:
        """Return the most that may be asked for: all of what has no threshold."""
        found = {}
        for name in names:
            has = self.capacity.get(name, 0)
            part = thresholds.get(name)
            found[name] = has if part is None else int(part * 0.01 * float(has))
        return found


def requested_nodes(
    nodes: Sequence[Node], names: Sequence[str], view: ClusterView
) -> list[RequestedNode]:
    """Return what is asked for of nodes, in their order."""
    found = []
    for node in nodes:
        requested = view.requested_on(node.metadata.name)
        has = node.status.allocatable or node.status.capacity
        capacity = {name: canonical(name, quantity) for name, quantity in has.items()}
        amounts = {name: requested.get(name, 0) for name in names}
        percentages = {
            name: float(amounts[name]) / float(capacity[name]) * ALL if capacity[name] > 0 else 0.0
            for name in names
            if name in capacity
        }
        found.append(RequestedNode(node, capacity, amounts, percentages))
    return found


def around_mean(
    nodes: Sequence[RequestedNode], below: Percentages, above: Percentages
) -> tuple[Percentages, Percentages]:
    """Return thresholds that lie so far below and above the mean of the nodes."""
    low, high = {}, {}
    for name in below:
        known = [each.percentages[name] for each in nodes if name in each.percentages]
        if known:
            mean = sum(known) / len(known)
            low[name] = min(max(mean - below[name], 0.0), ALL)
            high[name] = min(max(mean + above[name], 0.0), ALL)
    return low, high
