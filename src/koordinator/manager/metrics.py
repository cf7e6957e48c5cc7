"""Metrics of the manager, under the original's names.

The client library gives counters names that end in _total, so counts that have other names are
gauges that only grow.

Source: koordinator pkg/slo-controller/metrics, pkg/webhook/metrics.
"""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

from koordinator.api.annotations.quota import shared_weight
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.foundation.quantity import NANOS
from koordinator.manager.mirror import Controller
from koordinator.manager.node_resources.node import milli, units
from koordinator.manager.node_resources.reconciler import NodeOutcome

_MILLIS = 1000.0
_PREFIX = "slo_controller"
_COUNTED = {
    Controller.NODE_METRIC: "nodemetric",
    Controller.NODE_SLO: "nodeslo",
    Controller.NODE_RESOURCE: "node_resource",
}


class BindingMetrics:
    """Counter of binding decisions, by reason."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Counter(
            "koord_manager_webhook_binding_admission_decisions",
            "Number of admission decisions on pod bindings, by reason.",
            ("decision",),
            registry=registry,
        )

    def decided(self, decision: str) -> None:
        """Count a decision; ``decision`` is a ``BindingDecision``."""
        self._decisions.labels(decision).inc()


class QuotaWeights:
    """Gauge of the shared weight of each existing quota."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._weight = Gauge(
            "koord_manager_webhook_quota_shared_weight",
            "Shared weight of an ElasticQuota, in cores, bytes or number of devices.",
            ("elasticquota_name", "resource_name"),
            registry=registry,
        )
        self._shown: dict[str, frozenset[str]] = {}  # resources by quota

    def show(self, quota: ElasticQuota) -> None:
        """Set the weights of a quota."""
        name = quota.metadata.name
        weights = shared_weight(quota)
        self._keep_only(name, frozenset(weights))
        for resource, weight in weights.items():
            self._weight.labels(name, resource).set(weight.nanos / NANOS)

    def forget(self, quota: ElasticQuota) -> None:
        """Remove the weights of a deleted quota."""
        self._keep_only(quota.metadata.name, frozenset())

    def _keep_only(self, name: str, resources: frozenset[str]) -> None:
        for resource in self._shown.pop(name, frozenset()) - resources:
            with suppress(KeyError):
                self._weight.remove(name, resource)
        if resources:
            self._shown[name] = resources


class ManagerMetrics:
    """Counts of reconciliations, and gauges of calculated batch and mid resources."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reconciled = {
            controller: Gauge(
                f"{_PREFIX}_{name}_reconcile_count",
                f"Number of writes of the controller {controller}.",
                ("status", "reason"),
                registry=registry,
            )
            for controller, name in _COUNTED.items()
        }
        self._plugins = Gauge(
            f"{_PREFIX}_node_resource_run_plugin_status",
            "Number of calculations of a node resource plugin.",
            ("plugin", "status", "reason"),
            registry=registry,
        )
        self._rejected = Counter(
            f"{_PREFIX}_config_rejected",
            "Number of sections of slo-controller-config that were rejected.",
            ("key",),
            registry=registry,
        )
        self._allocatable = Gauge(
            f"{_PREFIX}_node_extended_resource_allocatable_internal",
            "Batch and mid resources before CPU normalization and third-party allocations.",
            ("node", "resource", "unit"),
            registry=registry,
        )
        self._slo_parsed = Gauge(
            f"{_PREFIX}_nodeslo_spec_parse_count",
            "Number of NodeSLO specs that were rendered.",
            ("status", "reason"),
            registry=registry,
        )
        self._metric_parsed = Gauge(
            f"{_PREFIX}_nodemetric_spec_parse_count",
            "Number of collect policies of NodeMetrics that were rendered.",
            ("status", "reason"),
            registry=registry,
        )

    def wrote(self, controller: Controller, action: str, *, succeeded: bool) -> None:
        """Count a write."""
        counter = self._reconciled.get(controller)
        if counter is not None:
            counter.labels("succeeded" if succeeded else "failed", action).inc()

    def rejected(self, key: str) -> None:
        """Count a rejected section of the configuration."""
        self._rejected.labels(key).inc()

    def rendered(self, *, succeeded: bool) -> None:
        """Count a rendered NodeSLO."""
        status = "succeeded" if succeeded else "failed"
        self._slo_parsed.labels(status, "getSystemConfigSpec").inc()

    def collects(self) -> None:
        """Count a rendered collect policy; an invalid one is rejected with the configuration."""
        self._metric_parsed.labels("succeeded", "getNodeMetricCollectPolicy").inc()

    def calculated(self, node: str, outcome: NodeOutcome) -> None:
        """Set the calculated batch and mid resources of a node, and count plugin failures."""
        for plugin, _ in outcome.problems:
            self._plugins.labels(plugin, "failed", "ResourceCalculate").inc()
        result = outcome.calculated
        if result is None:
            return
        if result.batch is not None:
            batch = result.batch.batch()
            cpu = milli(batch.cpu) / _MILLIS
            self._allocatable.labels(node, "kubernetes.io/batch-cpu", "integer").set(cpu)
            memory = float(units(batch.memory))
            self._allocatable.labels(node, "kubernetes.io/batch-memory", "byte").set(memory)
        if result.mid is not None:
            cpu = result.mid.cpu_milli / _MILLIS
            self._allocatable.labels(node, "kubernetes.io/mid-cpu", "integer").set(cpu)
            memory = float(result.mid.memory_bytes)
            self._allocatable.labels(node, "kubernetes.io/mid-memory", "byte").set(memory)

    def forget(self, node: str) -> None:
        """Remove the gauges of a deleted node."""
        for resource, unit in (("cpu", "integer"), ("memory", "byte")):
            for band in ("batch", "mid"):
                with suppress(KeyError):
                    self._allocatable.remove(node, f"kubernetes.io/{band}-{resource}", unit)
