"""Metrics of the node and of the agent, under the original's names.

Source: koordinator pkg/koordlet/metrics.
"""

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram

from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.koordlet.app.metrics_snapshot import MetricsSnapshot, SnapshotCollector
from koordinator.koordlet.executor.cgroup_writer import CgroupWrite
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.prediction.reclaimable import PredictedAmounts, Prediction
from koordinator.koordlet.qos.cpu_suppress import Suppression

_CORE, _BYTE = "core", "byte"
_HOOK_BUCKETS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 100, 500, 2000)
_KUBELET_BUCKETS_S: Final = tuple(0.001 * 4**power for power in range(7))
_WRITE_BUCKETS_MS: Final = tuple(0.01 * 4**power for power in range(8))
_PROD = "koord-prod"


class NodeGauges:
    """Metrics set by the loop and read by the server's threads; each has the label ``node``.

    ``registry`` has the metrics about the agent; metrics for users, such as batch resources, CPI,
    pressure and caches, go into ``external``, which may be the same registry.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        node: str,
        now_s: float,
        external: CollectorRegistry | None = None,
    ) -> None:
        self._node = node
        self._registry = registry
        external = external or registry
        self._gauge("start_time", "Start time of the agent in seconds since the epoch.").set(now_s)
        self._cpu = self._gauge("node_used_cpu_cores", "CPU usage of the node in cores.")
        self._memory = self._gauge("node_used_memory_bytes", "Memory usage of the node in bytes.")
        self._refused = self._gauge("refused_samples", "Number of implausible samples rejected.")
        self._ls_used = self._gauge(
            "be_suppress_ls_used_cpu_cores", "CPU usage of latency-sensitive pods in cores."
        )
        self._unprepared = self._gauge(
            "unprepared_containers",
            "Number of containers created while the runtime hooks were unavailable.",
        )
        self._suppressed = Gauge(
            "koordlet_be_suppress_cpu_cores",
            "CPU limit of best-effort pods in cores, by policy.",
            ["node", "type"],
            registry=registry,
        )
        self._reclaimable = Gauge(
            "koordlet_node_priority_resource_reclaimable",
            "Requested but predicted unused resources of a priority band.",
            ["node", "priority", "resource", "unit"],
            registry=external,
        )
        self._unpredicted = Gauge(
            "koordlet_node_resource_priority_reclaimable_status",
            "1 while no prediction exists for a priority band, otherwise 0.",
            ["node", "priority"],
            registry=external,
        )
        self._predictors, self._peaks = (
            Gauge(
                f"koordlet_node_predicted_resource_{name}",
                text,
                ["node", "predictor", "resource", "unit"],
                registry=registry,
            )
            for name, text in (
                ("reclaimable", "Predicted unused resources of prod pods, by predictor."),
                ("peak", "Predicted peak usage of prod pods, by predictor."),
            )
        )
        self._collections = {
            part: Gauge(
                f"koordlet_collect_node_{part}_info_status",
                f"Number of {part.replace('_', ' ')} collections, by status.",
                ["node", "status"],
                registry=registry,
            )
            for part in ("cpu", "numa", "local_storage")
        }
        self._writes = Gauge(
            "koordlet_resource_updates",
            "Number of writes to the machine since the start, by status.",
            ["node", "type", "status"],
            registry=registry,
        )
        # As in the original, the one series without the label of the node.
        self._write_times = Histogram(
            "koordlet_resource_update_duration_milliseconds",
            "Duration of a write to the machine in milliseconds.",
            ["type", "status"],
            buckets=_WRITE_BUCKETS_MS,
            registry=registry,
        )
        self._reconciled = Histogram(
            "koordlet_runtime_hook_reconciler_invoked_duration_milliseconds",
            "Duration of a reconciling write in milliseconds.",
            ["node", "level", "resource_type", "status"],
            buckets=_WRITE_BUCKETS_MS,
            registry=registry,
        )
        self._hooks = Histogram(
            "koordlet_runtime_hook_invoked_duration_milliseconds",
            "Duration of a hook invocation by the container runtime in milliseconds.",
            ["node", "hook", "stage", "status"],
            buckets=_HOOK_BUCKETS_MS,
            registry=registry,
        )
        self._kubelet = Histogram(
            "koordlet_kubelet_request_duration_seconds",
            "Duration of a request to the kubelet in seconds.",
            ["verb", "path", "code"],
            buckets=_KUBELET_BUCKETS_S,
            registry=registry,
        )
        self._nri = self._gauge(
            "nri_connected", "1 while the NRI plugin is connected to the container runtime."
        )
        self._snapshots = [SnapshotCollector(node, external=each) for each in (False, True)]
        for snapshots, target in zip(self._snapshots, (registry, external), strict=True):
            target.register(snapshots)
        self._slo = self._gauge(
            "node_slo_followed", "1 if the newest NodeSLO is applied, 0 if it was rejected."
        )

    def publish(self, snapshot: MetricsSnapshot) -> None:
        """Publish a snapshot of pods, containers and host applications."""
        for each in self._snapshots:
            each.publish(snapshot)

    def set_node_usage(self, store: MetricStore) -> None:
        """Set usage from the newest samples of the node."""
        for metric, gauge in ((Metric.NODE_CPU, self._cpu), (Metric.NODE_MEMORY, self._memory)):
            value = store.last(metric, "", 0.0)
            if value is not None:
                gauge.set(value)
        self._refused.set(store.refused)

    def set_suppression(self, suppression: Suppression) -> None:
        """Set the CPU limit of best-effort pods."""
        if suppression.be_cores is not None:
            self._suppressed.labels(self._node, suppression.policy).set(suppression.be_cores)
        if suppression.ls_used_cores is not None:
            self._ls_used.set(suppression.ls_used_cores)

    def set_prediction(self, prediction: Prediction | None) -> None:
        """Set the reclaimable resources; 0 without a prediction."""
        self._unpredicted.labels(self._node, _PROD).set(prediction is None)
        amounts = PredictedAmounts() if prediction is None else prediction.reclaimable
        self._show(self._reclaimable, _PROD, amounts)
        for part in () if prediction is None else (prediction, *prediction.parts):
            self._show(self._predictors, part.predictor, part.reclaimable)
            self._show(self._peaks, part.predictor, part.peak)

    def count_collection(self, part: str, *, ok: bool) -> None:
        """Count a collection of ``cpu``, ``numa`` or ``local_storage``."""
        self._collections[part].labels(self._node, "succeeded" if ok else "failed").inc()

    def set_write_count(self, kind: str, status: str, count: int) -> None:
        """Set the number of writes of a kind with a status."""
        self._writes.labels(self._node, kind, status).set(count)

    def observe_write(self, kind: str, took_s: float, has_failed: bool) -> None:
        """Observe the duration of a write to the machine."""
        status = "failed" if has_failed else "success"
        self._write_times.labels(kind, status).observe(took_s * 1000)

    def observe_reconciled(self, writes: Sequence[CgroupWrite], layout: CgroupLayout) -> None:
        """Observe the writes of a reconciliation."""
        for write in writes:
            level = layout.level(write.intent.folder)
            status = "failed" if write.error else "succeeded"
            self._reconciled.labels(
                self._node, level or "host", str(write.intent.file), status
            ).observe(write.took_s * 1000)

    def observe_hook(self, hook: str, stage: str, status: str, seconds: float) -> None:
        """Observe the duration of a hook; thread-safe."""
        self._hooks.labels(self._node, hook, stage, status).observe(seconds * 1000)

    def observe_kubelet_request(self, path: str, code: str, seconds: float) -> None:
        """Observe the duration of a request to the kubelet; thread-safe."""
        self._kubelet.labels("get", path, code).observe(seconds)

    def set_nri_connected(self, is_connected: bool) -> None:
        """Set whether the NRI connection is up; thread-safe."""
        self._nri.set(is_connected)

    def set_unprepared(self, count: int) -> None:
        """Set the number of containers created without the runtime hooks."""
        self._unprepared.set(count)

    def set_slo_applied(self, *, is_applied: bool) -> None:
        """Set whether the newest NodeSLO is applied."""
        self._slo.set(1 if is_applied else 0)

    def _show(self, gauge: Gauge, label: str, amounts: PredictedAmounts) -> None:
        gauge.labels(self._node, label, "cpu", _CORE).set(amounts.cpu_milli / 1000)
        gauge.labels(self._node, label, "memory", _BYTE).set(amounts.memory_bytes)

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(f"koordlet_{name}", text, ["node"], registry=self._registry)
        return gauge.labels(self._node)
