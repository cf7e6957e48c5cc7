"""Metrics of gangs, under the names of koord-scheduler.

Source: koordinator pkg/scheduler/metrics/metrics.go; pkg/scheduler/plugins/coscheduling.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from koordinator.api.kubescheduler import NO_GATES, FeatureGates
from koordinator.domain.gangs import GangCache
from koordinator.scheduler.features.gangs.pod_group_metrics import PodGroupMetrics
from koordinator.scheduler.loop.instruments import Histogram, exponential

PLACED = "gang is already succeed"  # label values of the original
NOT_PLACED = "all pending pods is already been attempted"
_SIZE_STEP, _LARGEST = 100, 1000
_BELOW_MINUTE_S = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 25.0, 30.0, 45.0)
_ATTEMPT_BUCKETS_S = (*_BELOW_MINUTE_S, 60.0, 120.0)


class GangMetrics:
    """Collector that the scheduler's thread updates and any thread may scrape."""

    def __init__(self, registry: CollectorRegistry, gates: FeatureGates = NO_GATES) -> None:
        self.pod_groups = PodGroupMetrics(gates)
        self._attempt_seconds = Histogram(
            "gang_schedule_cycle_duration_seconds",
            "Time to decide all members of a gang group without a node.",
            ["reason", "job_size"],
            _ATTEMPT_BUCKETS_S,
        )
        self._preemption_seconds = Histogram(
            "job_preemption_duration_seconds",
            "Time of preemption attempts for whole jobs.",
            ["jobName", "result"],
            exponential(0.001, 2, 20),
        )
        self._caches: Sequence[GangCache] = ()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return nothing; names are not checked before the first scrape."""
        return ()

    def gang_decided(self, size: int, took_s: float, *, placed: bool) -> None:
        """Record an attempt with ``size`` members to place."""
        reason = PLACED if placed else NOT_PLACED
        self._attempt_seconds.observe(took_s, reason, job_size(size))

    def preempted(self, job: str, result: str, took_s: float) -> None:
        """Record a preemption attempt for a whole job."""
        self._preemption_seconds.observe(took_s, job, result)

    def watch(self, caches: Sequence[GangCache]) -> None:
        """Set the gang caches to scrape."""
        self._caches = caches

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, and the number of waiting gang groups."""
        yield self._attempt_seconds.collect()
        yield self._preemption_seconds.collect()
        yield from self.pod_groups.collect()
        waiting = {
            gang.terms.group_id
            for gangs in self._caches
            for gang in list(gangs.gangs.values())
            if gang.terms is not None and gang.waiting
        }
        yield GaugeMetricFamily(
            "scheduler_waiting_gang_group_number",
            "Gang groups with members that have a node and wait for others.",
            value=len(waiting),
        )


def job_size(members: int) -> str:
    """Return the size class of a number of members: 0, 1-100, 101-200 … 1000+."""
    if members == 0:
        return "0"
    if members > _LARGEST:
        return f"{_LARGEST}+"
    upper = -(-members // _SIZE_STEP) * _SIZE_STEP
    return f"{upper - _SIZE_STEP + 1}-{upper}"
