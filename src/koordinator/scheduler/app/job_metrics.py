"""What is measured of gangs and elastic quotas, under the names of koord-scheduler.

Source: koordinator pkg/scheduler/metrics/metrics.go; pkg/scheduler/plugins/elasticquota/metrics.go;
pkg/scheduler/plugins/coscheduling.  The gauges of quotas are as old as their statuses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from koordinator.domain.gangs import GangBook
from koordinator.scheduler.app.gauges import QuotaGauges
from koordinator.scheduler.app.instruments import Histogram, exponential

PLACED = "gang is already succeed"  # reasons for the end of a gang's turn, as the original has them
NOT_PLACED = "all pending pods is already been attempted"
_SIZE_STEP, _LARGEST = 100, 1000
_BELOW_MINUTE_S = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 25.0, 30.0, 45.0)
_TURN_BUCKETS_S = (*_BELOW_MINUTE_S, 60.0, 120.0)


class JobMetrics:
    """Told by the scheduler's thread only; a collector of prometheus-client, asked by any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._turn_seconds = Histogram(
            "gang_schedule_cycle_duration_seconds",
            "Time to decide on all members of a gang group that need a place.",
            ["reason", "job_size"],
            _TURN_BUCKETS_S,
        )
        self._status_seconds = Histogram(
            "update_elastic_quota_status_duration_seconds",
            "Time to bring the status of one quota up to date.",
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
        self._gangs: Sequence[GangBook] = ()
        self._quotas: Callable[[], Mapping[str, QuotaGauges]] = dict
        self._queues: Callable[[], Mapping[str, int]] = dict
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return ()

    # -- told by the scheduler ---------------------------------------------------------------

    def gang_decided(self, size: int, took_s: float, *, placed: bool) -> None:
        """Count the turn of a gang group with so many members to place."""
        self._turn_seconds.observe(took_s, PLACED if placed else NOT_PLACED, job_size(size))

    def status_updated(self, took_s: float) -> None:
        """Count a quota whose status was brought up to date."""
        self._status_seconds.observe(took_s)

    def processed(self, operation: str, took_s: float) -> None:
        """Count a pass over quotas."""
        self._process_seconds.observe(took_s, operation)

    def hook_called(self, plugin: str, operation: str, took_s: float) -> None:
        """Count a call of a hook plugin."""
        self._hook_seconds.observe(took_s, plugin, operation)

    def watch(
        self,
        gangs: Sequence[GangBook],
        quotas: Callable[[], Mapping[str, QuotaGauges]],
        queues: Callable[[], Mapping[str, int]],
    ) -> None:
        """Show gangs, quotas and how many jobs wait in their queues with every scrape."""
        self._gangs, self._quotas, self._queues = gangs, quotas, queues

    # -- read when somebody asks -------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        for histogram in (
            self._turn_seconds,
            self._status_seconds,
            self._process_seconds,
            self._hook_seconds,
        ):
            yield histogram.collect()
        waiting = {
            gang.terms.group_id
            for gangs in self._gangs
            for gang in list(gangs.gangs.values())
            if gang.terms is not None and gang.waiting
        }
        yield GaugeMetricFamily(
            "scheduler_waiting_gang_group_number",
            "Gang groups some of whose members have places and wait.",
            value=len(waiting),
        )
        status = GaugeMetricFamily(
            "scheduler_elastic_quota_status",
            "Figures of a quota; CPU in milli-CPU.",
            labels=["name", "resource", "tree", "is_parent", "parent", "field"],
        )
        for quota in list(self._quotas().values()):
            _add_quota(status, quota)
        yield status
        queued = GaugeMetricFamily(
            "scheduler_job_queue_length", "Jobs that wait in the queue of a quota.", labels=["name"]
        )
        for name, count in list(self._queues().items()):
            queued.add_metric([name], count)
        yield queued


def job_size(members: int) -> str:
    """Return the class that a number of members is in: 0, 1-100, 101-200 … 1000+."""
    if members == 0:
        return "0"
    if members > _LARGEST:
        return f"{_LARGEST}+"
    upper = -(-members // _SIZE_STEP) * _SIZE_STEP
    return f"{upper - _SIZE_STEP + 1}-{upper}"


def _add_quota(family: GaugeMetricFamily, quota: QuotaGauges) -> None:
    figures = quota.figures
    fields = {
        "runtime": figures.runtime,
        "request": figures.request,
        "child-request": figures.child_request,
        "guaranteed": figures.guaranteed,
        "allocated": figures.allocated,
        "non-preemptible-request": figures.non_preemptible_request,
        "non-preemptible-used": figures.non_preemptible_used,
        "unschedulable-resource": quota.unschedulable,
        "used": figures.used,
        "min": figures.min,
        "max": figures.max,
        "sharedWeight": figures.weight,
    }
    is_parent = "true" if quota.is_parent else "false"
    for field, amounts in fields.items():
        for resource, amount in amounts.items():
            labels = [quota.name, resource, quota.tree, is_parent, quota.parent, field]
            family.add_metric(labels, amount)
