"""What is measured of gangs, under the names of koord-scheduler.

Source: koordinator pkg/scheduler/metrics/metrics.go; pkg/scheduler/plugins/coscheduling.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from koordinator.domain.gangs import GangCache
from koordinator.scheduler.loop.instruments import Histogram, exponential

PLACED = "gang is already succeed"  # reasons for the end of a gang's attempt, as the original's
NOT_PLACED = "all pending pods is already been attempted"
_SIZE_STEP, _LARGEST = 100, 1000
_BELOW_MINUTE_S = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 25.0, 30.0, 45.0)
_ATTEMPT_BUCKETS_S = (*_BELOW_MINUTE_S, 60.0, 120.0)


class GangMetrics:
    """Told by the scheduler's thread only; a collector of prometheus-client, asked by any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempt_seconds = Histogram(
            "gang_schedule_cycle_duration_seconds",
            "Time to decide on all members of a gang group that need a place.",
            ["reason", "job_size"],
            _ATTEMPT_BUCKETS_S,
        )
        self._preemption_seconds = Histogram(
            "job_preemption_duration_seconds",
            "Time of looking for room for a whole job.",
            ["jobName", "result"],
            exponential(0.001, 2, 20),
        )
        self._books: Sequence[GangCache] = ()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return nothing to check names against before the first scrape."""
        return ()

    def gang_decided(self, size: int, took_s: float, *, placed: bool) -> None:
        """Count the attempt of a gang group with so many members to place."""
        reason = PLACED if placed else NOT_PLACED
        self._attempt_seconds.observe(took_s, reason, job_size(size))

    def preempted(self, job: str, result: str, took_s: float) -> None:
        """Count an attempt to make room for a whole job."""
        self._preemption_seconds.observe(took_s, job, result)

    def watch(self, caches: Sequence[GangCache]) -> None:
        """Show these gangs with every scrape."""
        self._books = caches

    def collect(self) -> Iterator[Metric]:
        """Yield what has been counted, and how many gangs wait."""
        yield self._attempt_seconds.collect()
        yield self._preemption_seconds.collect()
        waiting = {
            gang.terms.group_id
            for gangs in self._books
            for gang in list(gangs.gangs.values())
            if gang.terms is not None and gang.waiting
        }
        yield GaugeMetricFamily(
            "scheduler_waiting_gang_group_number",
            "Gang groups some of whose members have places and wait.",
            value=len(waiting),
        )


def job_size(members: int) -> str:
    """Return the class that a number of members is in: 0, 1-100, 101-200 … 1000+."""
    if members == 0:
        return "0"
    if members > _LARGEST:
        return f"{_LARGEST}+"
    upper = -(-members // _SIZE_STEP) * _SIZE_STEP
    return f"{upper - _SIZE_STEP + 1}-{upper}"
