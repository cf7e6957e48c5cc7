"""Limits of evictions in one cycle: per node, per namespace and in total.

Source: koordinator pkg/descheduler/evictions/eviction_limiter.go.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from koordinator.api.pod import Pod


class LimitReached(StrEnum):
    """Limit that prevents an eviction; ``result`` of the metric ``pods_evicted``."""

    NODE = "maximum number of pods per node reached"
    NAMESPACE = "maximum number of pods per namespace reached"
    TOTAL = "maximum number of pods total reached"


@dataclass(slots=True)
class EvictionLimits:
    """Evictions of the cycle by node and namespace; None means no limit."""

    per_node: int | None = None
    per_namespace: int | None = None
    in_total: int | None = None
    total: int = 0
    _by_node: Counter[str] = field(default_factory=Counter)
    _by_namespace: Counter[str] = field(default_factory=Counter)

    def reset(self) -> None:
        """Reset the counts at the start of a cycle."""
        self.total = 0
        self._by_node.clear()
        self._by_namespace.clear()

    def refusal(self, pod: Pod) -> LimitReached | None:
        """Return the limit that the eviction of a pod would exceed, None otherwise."""
        node = pod.spec.node_name
        if node and self.is_node_limit_reached(node):
            return LimitReached.NODE
        namespace = pod.metadata.namespace
        if self.per_namespace is not None and self._by_namespace[namespace] >= self.per_namespace:
            return LimitReached.NAMESPACE
        if self.in_total is not None and self.total >= self.in_total:
            return LimitReached.TOTAL
        return None

    def refusal_of(self, pods: Sequence[Pod]) -> LimitReached | None:
        """Return the limit that the evictions of all pods together would exceed, None otherwise."""
        after = EvictionLimits(
            self.per_node,
            self.per_namespace,
            self.in_total,
            self.total,
            Counter(self._by_node),
            Counter(self._by_namespace),
        )
        for pod in pods:
            refusal = after.refusal(pod)
            if refusal is not None:
                return refusal
            after.count(pod)
        return None

    def is_node_limit_reached(self, node: str) -> bool:
        """Return whether no further pod of a node may be evicted."""
        return self.per_node is not None and self._by_node[node] >= self.per_node

    def count(self, pod: Pod) -> None:
        """Count the eviction of a pod."""
        self.total += 1
        self._by_namespace[pod.metadata.namespace] += 1
        if pod.spec.node_name:
            self._by_node[pod.spec.node_name] += 1
