"""What the descheduler tells of its work, under the original's names.

Source: koordinator pkg/descheduler/metrics/metrics.go.
"""

from prometheus_client import CollectorRegistry, Counter, Histogram

from koordinator.api.pod import Pod

_LONGEST_CYCLE_S = 60.0


class DeschedulerMetrics:
    """Evictions by result, and how long cycles took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._evicted = Counter(
            "descheduler_pods_evicted",
            "Pods that went, and that should have gone, by what became of it.",
            ("result", "strategy", "namespace", "node"),
            registry=registry,
        )
        self._cycles = Histogram(
            "descheduler_cycle_duration_seconds",
            "How long a cycle took.",
            ("result",),
            buckets=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, _LONGEST_CYCLE_S),
            registry=registry,
        )

    def evicted(self, plugin: str, pod: Pod, result: str) -> None:
        """Count an eviction that a plugin wanted."""
        node, namespace = pod.spec.node_name, pod.metadata.namespace
        self._evicted.labels(result, plugin, namespace, node).inc()

    def finished_cycle(self, duration_s: float, *, succeeded: bool) -> None:
        """Note a cycle."""
        self._cycles.labels("success" if succeeded else "error").observe(duration_s)
