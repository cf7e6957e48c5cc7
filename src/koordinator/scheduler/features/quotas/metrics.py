"""Metrics of elastic quotas and job queues, under the names of koord-scheduler.

Source: koordinator pkg/scheduler/plugins/elasticquota/metrics.go.  Gauges of quotas are refreshed
with their statuses.  The spec gauge is declared upstream but never set; dashboards use it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from koordinator.domain.amounts import Amounts
from koordinator.foundation.clock import Clock
from koordinator.scheduler.features.quotas.gauges import QuotaGauges
from koordinator.scheduler.loop.instruments import Histogram, exponential

_LABELS = ("name", "resource", "tree", "is_parent", "parent", "field")


class QuotaMetrics:
    """Collector that the scheduler's thread updates and any thread may scrape."""

    def __init__(self, registry: CollectorRegistry, stopwatch: Clock) -> None:
        self._stopwatch = stopwatch
        self._status_seconds = Histogram(
            "update_elastic_quota_status_duration_seconds",
            "Time to update the status of one quota.",
            [],
            exponential(0.001, 2, 15),
        )
        self._process_seconds = Histogram(
            "elastic_quota_process_latency",
            "Time of one pass over quotas, in seconds.",
            ["operation"],
            exponential(0.00001, 2, 24),
        )
        self._hook_seconds = Histogram(
            "elastic_quota_hook_plugin_latency",
            "Time of one call of a hook plugin, in seconds.",
            ["plugin", "operation"],
            exponential(0.000001, 2, 24),
        )
        self._quotas: Callable[[], Mapping[str, QuotaGauges]] = dict
        self._queues: Callable[[], Mapping[str, int]] = dict
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return nothing; names are not checked before the first scrape."""
        return ()

    def now_s(self) -> float:
        """Return the time by the stopwatch."""
        return self._stopwatch.now_s()

    def status_updated(self, took_s: float) -> None:
        """Record an updated status."""
        self._status_seconds.observe(took_s)

    def processed(self, operation: str, took_s: float) -> None:
        """Record a pass over quotas."""
        self._process_seconds.observe(took_s, operation)

    def hook_called(self, plugin: str, operation: str, took_s: float) -> None:
        """Record a call of a hook plugin."""
        self._hook_seconds.observe(took_s, plugin, operation)

    def watch_quotas(self, quotas: Callable[[], Mapping[str, QuotaGauges]]) -> None:
        """Set the source of quota gauges."""
        self._quotas = quotas

    def watch_queues(self, queues: Callable[[], Mapping[str, int]]) -> None:
        """Set the source of queue lengths."""
        self._queues = queues

    def unwatch(self) -> None:
        """Scrape neither quotas nor queues."""
        self._quotas = self._queues = dict

    def collect(self) -> Iterator[Metric]:
        """Yield histograms, and gauges of quotas and queues."""
        for histogram in (self._status_seconds, self._process_seconds, self._hook_seconds):
            yield histogram.collect()
        status = GaugeMetricFamily(
            "scheduler_elastic_quota_status",
            "Figures of a quota; CPU in milli-CPU.",
            labels=_LABELS,
        )
        spec = GaugeMetricFamily(
            "scheduler_elastic_quota_spec", "Spec of a quota; CPU in milli-CPU.", labels=_LABELS
        )
        for quota in list(self._quotas().values()):
            figures = quota.figures
            configured = {"min": figures.min, "max": figures.max, "sharedWeight": figures.weight}
            _add_quota(spec, quota, configured)
            _add_quota(status, quota, _status_of(quota) | configured)
        yield spec
        yield status
        queued = GaugeMetricFamily(
            "scheduler_job_queue_length", "Jobs in the queue of a quota.", labels=["name"]
        )
        for name, count in list(self._queues().items()):
            queued.add_metric([name], count)
        yield queued


def _status_of(quota: QuotaGauges) -> dict[str, Amounts]:
    figures = quota.figures
    return {
        "runtime": figures.runtime,
        "request": figures.request,
        "child-request": figures.child_request,
        "guaranteed": figures.guaranteed,
        "allocated": figures.allocated,
        "non-preemptible-request": figures.non_preemptible_request,
        "non-preemptible-used": figures.non_preemptible_used,
        "unschedulable-resource": quota.unschedulable,
        "used": figures.used,
    }


def _add_quota(
    family: GaugeMetricFamily, quota: QuotaGauges, fields: Mapping[str, Amounts]
) -> None:
    is_parent = "true" if quota.is_parent else "false"
    for field, amounts in fields.items():
        for resource, amount in amounts.items():
            labels = [quota.name, resource, quota.tree, is_parent, quota.parent, field]
            family.add_metric(labels, amount)
