"""Metrics of the descheduler, with the original's names.

Source: koordinator pkg/descheduler/metrics/metrics.go.
"""

from collections.abc import Iterable
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Histogram

from koordinator.api.core import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod

_LONGEST_CYCLE_S = 60.0


class DeschedulerMetrics:
    """Evictions by result, and durations of cycles."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._evicted = Counter(
            "descheduler_pods_evicted",
            "Number of evictions that plugins requested, by result.",
            ("result", "strategy", "namespace", "node"),
            registry=registry,
        )
        self._cycles = Histogram(
            "descheduler_cycle_duration_seconds",
            "Duration of a cycle.",
            ("result",),
            buckets=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, _LONGEST_CYCLE_S),
            registry=registry,
        )

        self._series: dict[str, set[tuple[str, ...]]] = {}  # label values by node and by namespace

    def evicted(self, plugin: str, pod: Pod, result: str) -> None:
        """Count an eviction that a plugin requested."""
        node, namespace = pod.spec.node_name, pod.metadata.namespace
        labels = (result, plugin, namespace, node)
        self._evicted.labels(*labels).inc()
        for key in (f"node {node}", f"namespace {namespace}"):
            self._series.setdefault(key, set()).add(labels)

    def forget(self, deleted: Node | Namespace) -> None:
        """Remove the series of a deleted node or namespace, so that they don't accumulate."""
        self._remove(f"{deleted.KIND.lower()} {deleted.metadata.name}")

    def retain(self, nodes: Iterable[str], namespaces: Iterable[str]) -> None:
        """Remove the series of all other nodes and namespaces.

        No event announces deletions between two terms of leadership.
        """
        retained = {"node ", *(f"node {name}" for name in nodes)}
        retained |= {f"namespace {name}" for name in namespaces}
        for key in self._series.keys() - retained:
            self._remove(key)

    def _remove(self, key: str) -> None:
        for labels in self._series.pop(key, ()):
            with suppress(KeyError):  # removed with the other of the two
                self._evicted.remove(*labels)
            for place in (f"namespace {labels[2]}", f"node {labels[3]}"):
                others = self._series.get(place)
                if others is not None:
                    others.discard(labels)
                    if not others:
                        del self._series[place]

    def finished_cycle(self, duration_s: float, *, succeeded: bool) -> None:
        """Record a finished cycle."""
        self._cycles.labels("success" if succeeded else "error").observe(duration_s)
