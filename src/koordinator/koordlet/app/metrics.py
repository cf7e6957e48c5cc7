"""What is measured of the node and of the agent's doing, under the original's names.

Source: koordinator pkg/koordlet/metrics.
"""

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram

from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.koordlet.app.metrics_snapshot import MetricsSnapshot, SnapshotCollector
from koordinator.koordlet.executor.cgroup_writer import Write
from koordinator.koordlet.metrics import MetricStore
from koordinator.koordlet.metrics.names import Metric
from koordinator.koordlet.prediction.reclaimable import Amounts, Prediction
from koordinator.koordlet.qos.cpu_suppress import Suppression

_CORE, _BYTE = "core", "byte"
_HOOK_BUCKETS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 100, 500, 2000)
_KUBELET_BUCKETS_S: Final = tuple(0.001 * 4**power for power in range(7))
_WRITE_BUCKETS_MS: Final = tuple(0.01 * 4**power for power in range(8))
_PROD = "koord-prod"


class NodeGauges:
    """Set by the loop, read by the server's threads.  Every series has the label ``node``.

    ``registry`` has what is about the agent and its doing; what is for users, such as batch
    resources, cycles, pressure and caches, goes into ``external``, which may be the same one.
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
        self._gauge("start_time", "Seconds since the epoch.").set(now_s)
        self._cpu = self._gauge("node_used_cpu_cores", "CPU that the node uses.")
        self._memory = self._gauge("node_used_memory_bytes", "Memory that the node uses.")
        self._refused = self._gauge("refused_samples", "Readings that can't be true.")
        self._ls_used = self._gauge("be_suppress_ls_used_cpu_cores", "CPU of LS pods.")
        self._unprepared = self._gauge(
            "unprepared_containers", "Containers that were created while no hook could be asked."
        )
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
            registry=external,
        )
        self._unpredicted = Gauge(
            "koordlet_node_resource_priority_reclaimable_status",
            "1 while it is not known what a band will hardly use, else 0.",
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
                ("reclaimable", "What prod pods will hardly use, by who predicts it."),
                ("peak", "What prod pods will use at most, by who predicts it."),
            )
        )
        self._collections = {
            part: Gauge(
                f"koordlet_collect_node_{part}_info_status",
                f"How often the {part.replace('_', ' ')} of the node was looked at.",
                ["node", "status"],
                registry=registry,
            )
            for part in ("cpu", "numa", "local_storage")
        }
        self._writes = Gauge(
            "koordlet_resource_updates",
            "Changes of the machine since the start.",
            ["node", "type", "status"],
            registry=registry,
        )
        # As in the original, the one series without the label of the node.
        self._write_times = Histogram(
            "koordlet_resource_update_duration_milliseconds",
            "How long a change of the machine took.",
            ["type", "status"],
            buckets=_WRITE_BUCKETS_MS,
            registry=registry,
        )
        self._reconciled = Histogram(
            "koordlet_runtime_hook_reconciler_invoked_duration_milliseconds",
            "How long setting right what a hook wants took.",
            ["node", "level", "resource_type", "status"],
            buckets=_WRITE_BUCKETS_MS,
            registry=registry,
        )
        self._hooks = Histogram(
            "koordlet_runtime_hook_invoked_duration_milliseconds",
            "What the container runtime waited for a hook.",
            ["node", "hook", "stage", "status"],
            buckets=_HOOK_BUCKETS_MS,
            registry=registry,
        )
        self._kubelet = Histogram(
            "koordlet_kubelet_request_duration_seconds",
            "How long the kubelet took to answer.",
            ["verb", "path", "code"],
            buckets=_KUBELET_BUCKETS_S,
            registry=registry,
        )
        self._nri = self._gauge("nri_connected", "1 while the container runtime asks this plugin.")
        self._snapshots = [SnapshotCollector(node, external=each) for each in (False, True)]
        for snapshots, where in zip(self._snapshots, (registry, external), strict=True):
            where.register(snapshots)
        self._slo = self._gauge("node_slo_followed", "1, or 0 while the NodeSLO is refused.")

    def publish(self, snapshot: MetricsSnapshot) -> None:
        """Show pods, containers and programs as they are now."""
        for each in self._snapshots:
            each.lay_down(snapshot)

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
        """Show what can be given away: nothing while that is not known."""
        self._unpredicted.labels(self._node, _PROD).set(prediction is None)
        amounts = Amounts() if prediction is None else prediction.reclaimable
        self._show(self._reclaimable, _PROD, amounts)
        for part in () if prediction is None else (prediction, *prediction.parts):
            self._show(self._predictors, part.predictor, part.reclaimable)
            self._show(self._peaks, part.predictor, part.peak)

    def collected(self, part: str, *, ok: bool) -> None:
        """Count that ``cpu``, ``numa`` or ``local_storage`` of the node was looked at."""
        self._collections[part].labels(self._node, "succeeded" if ok else "failed").inc()

    def written(self, kind: str, status: str, count: int) -> None:
        """Show how many changes were made or refused."""
        self._writes.labels(self._node, kind, status).set(count)

    def wrote(self, kind: str, took_s: float, has_failed: bool) -> None:
        """Show how long a change of the machine took."""
        status = "failed" if has_failed else "success"
        self._write_times.labels(kind, status).observe(took_s * 1000)

    def reconciled(self, writes: Sequence[Write], layout: CgroupLayout) -> None:
        """Show what had to be set right of what hooks want, and how long that took."""
        for write in writes:
            level = layout.level(write.intent.folder)
            status = "failed" if write.error else "succeeded"
            self._reconciled.labels(
                self._node, level or "host", str(write.intent.file), status
            ).observe(write.took_s * 1000)

    def hook_ran(self, hook: str, stage: str, status: str, seconds: float) -> None:
        """Show how long a hook took; from any thread."""
        self._hooks.labels(self._node, hook, stage, status).observe(seconds * 1000)

    def kubelet_answered(self, path: str, code: str, seconds: float) -> None:
        """Show how long the kubelet took; from any thread."""
        self._kubelet.labels("get", path, code).observe(seconds)

    def nri_connected(self, is_connected: bool) -> None:
        """Show whether the runtime asks; from any thread."""
        self._nri.set(is_connected)

    def unprepared(self, count: int) -> None:
        """Show how many containers run without what the runtime hooks give them."""
        self._unprepared.set(count)

    def followed(self, *, slo: bool) -> None:
        """Show whether the newest NodeSLO counts."""
        self._slo.set(1 if slo else 0)

    def _show(self, gauge: Gauge, label: str, amounts: Amounts) -> None:
        gauge.labels(self._node, label, "cpu", _CORE).set(amounts.cpu_milli / 1000)
        gauge.labels(self._node, label, "memory", _BYTE).set(amounts.memory_bytes)

    def _gauge(self, name: str, text: str) -> Gauge:
        made = Gauge(f"koordlet_{name}", text, ["node"], registry=self._registry)
        return made.labels(self._node)
