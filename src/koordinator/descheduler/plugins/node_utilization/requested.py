"""Requested resources of nodes, in amounts and in percent of allocatable.

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
    """Node with its requested amounts and percentages by resource."""

    node: Node
    capacity: Mapping[str, int]
    amounts: dict[str, int]  # decreases with evictions
    percentages: Percentages  # of the resources of the node

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def total(self) -> int:
        """Sum of all amounts, by which nodes are sorted."""
        return sum(self.amounts.values())

    def is_above(self, thresholds: Percentages) -> bool:
        """Return whether the requested percentage of a resource exceeds its threshold."""
        return any(limit < self.percentages.get(name, 0.0) for name, limit in thresholds.items())

    def limits(self, thresholds: Percentages, names: Iterable[str]) -> dict[str, int]:
        """Return the limits in amounts; a resource without a threshold has its capacity."""
        limits = {}
        for name in names:
            capacity = self.capacity.get(name, 0)
            part = thresholds.get(name)
            limits[name] = capacity if part is None else int(part * 0.01 * float(capacity))
        return limits


def requested_nodes(
    nodes: Sequence[Node], names: Sequence[str], view: ClusterView
) -> list[RequestedNode]:
    """Return the nodes with their requested resources, in the same order."""
    requested_on = []
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
        requested_on.append(RequestedNode(node, capacity, amounts, percentages))
    return requested_on


def around_mean(
    nodes: Sequence[RequestedNode], below: Percentages, above: Percentages
) -> tuple[Percentages, Percentages]:
    """Return thresholds at the given distances below and above the mean of the nodes."""
    low, high = {}, {}
    for name in below:
        known = [each.percentages[name] for each in nodes if name in each.percentages]
        if known:
            mean = sum(known) / len(known)
            low[name] = min(max(mean - below[name], 0.0), ALL)
            high[name] = min(max(mean + above[name], 0.0), ALL)
    return low, high
