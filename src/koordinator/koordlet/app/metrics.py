"""What is measured of the node and of the agent's doing, under the original's names.

Source: koordinator pkg/koordlet/metrics.
"""

from prometheus_client import CollectorRegistry, Gauge, Histogram

from koordinator.koordlet.app.metrics_snapshot import MetricsSnapshot, SnapshotCollector
from koordinator.koordlet.metrics import MetricStore
from koordinator.koordlet.metrics.names import Metric
from koordinator.koordlet.prediction.reclaimable import Prediction
from koordinator.koordlet.qos.cpu_suppress import Suppression

_CORE, _BYTE = "core", "byte"
_HOOK_BUCKETS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 100, 500, 2000)


class NodeGauges:
    """Set by the loop, read by the server's threads.  Every series has the label ``node``."""

    def __init__(self, registry: CollectorRegistry, node: str, now_s: float) -> None:
        self._node = node
        self._registry = registry
        self._gauge("start_time", "Seconds since the epoch.").set(now_s)
        self._cpu = self._gauge("node_used_cpu_cores", "CPU that the node uses.")
        self._memory = self._gauge("node_used_memory_bytes", "Memory that the node uses.")
        self._refused = self._gauge("refused_samples", "Readings that can't be true.")
        self._ls_used = self._gauge("be_suppress_ls_used_cpu_cores", "CPU of LS pods.")
        self._suppressed = Gauge(
            "koordlet_be_suppress_cpu_cores",
            "CPU that best-effort pods are held to.",
            ["node", "type"],
            registry=registry,
        )
        self._reclaimable = Gauge(
            "koordlet_node_priority_resource_reclaimable",
            "What pods of a band asked for and will hardly use.",
            ["node", "priority", "resource", "unit"],
            registry=registry,
        )
        self._evictions = Gauge(
            "koordlet_pod_eviction",
            "Pods evicted since the start.",
            ["node", "reason"],
            registry=registry,
        )
        self._writes = Gauge(
            "koordlet_resource_updates",
            "Changes of the machine since the start.",
            ["node", "type", "status"],
            registry=registry,
        )
        self._hooks = Histogram(
            "koordlet_runtime_hook_invoked_duration_milliseconds",
            "What the container runtime waited for a hook.",
            ["node", "hook", "stage", "status"],
            buckets=_HOOK_BUCKETS_MS,
            registry=registry,
        )
        self._nri = self._gauge("nri_connected", "1 while the container runtime asks this plugin.")
        self._snapshots = SnapshotCollector(node)
        registry.register(self._snapshots)
        self._slo = self._gauge("node_slo_followed", "1, or 0 while the NodeSLO is refused.")

    def publish(self, snapshot: MetricsSnapshot) -> None:
        """Show pods, containers and programs as they are now."""
        self._snapshots.lay_down(snapshot)

    def measured(self, store: MetricStore) -> None:
        """Show the newest samples of the node."""
        for metric, gauge in ((Metric.NODE_CPU, self._cpu), (Metric.NODE_MEMORY, self._memory)):
            value = store.last(metric, "", 0.0)
            if value is not None:
                gauge.set(value)
        self._refused.set(store.refused)

    def suppressed(self, done: Suppression) -> None:
        """Show how best effort is held back."""
        if done.be_cores is not None:
            self._suppressed.labels(self._node, done.policy).set(done.be_cores)
        if done.ls_used_cores is not None:
            self._ls_used.set(done.ls_used_cores)

    def predicted(self, prediction: Prediction | None) -> None:
        """Show what can be given away."""
        if prediction is None:
            return
        amounts = prediction.reclaimable
        labels = (self._node, "koord-prod")
        self._reclaimable.labels(*labels, "cpu", _CORE).set(amounts.cpu_milli / 1000)
        self._reclaimable.labels(*labels, "memory", _BYTE).set(amounts.memory_bytes)

    def evicted(self, reason: str, count: int) -> None:
        """Show how many pods had to go."""
        self._evictions.labels(self._node, reason).set(count)

    def written(self, kind: str, status: str, count: int) -> None:
        """Show how many changes were made or refused."""
        self._writes.labels(self._node, kind, status).set(count)

    def hook_ran(self, hook: str, stage: str, status: str, seconds: float) -> None:
        """Show how long a hook took; from any thread."""
        self._hooks.labels(self._node, hook, stage, status).observe(seconds * 1000)

    def nri_connected(self, is_connected: bool) -> None:
        """Show whether the runtime asks; from any thread."""
        self._nri.set(is_connected)

    def followed(self, *, slo: bool) -> None:
        """Show whether the newest NodeSLO counts."""
        self._slo.set(1 if slo else 0)

    def _gauge(self, name: str, text: str) -> Gauge:
        made = Gauge(f"koordlet_{name}", text, ["node"], registry=self._registry)
        return made.labels(self._node)
