"""Metrics of gangs and PodGroups, under the names of koord-scheduler and kube-scheduler 1.37.

Source: koordinator pkg/scheduler/metrics/metrics.go; pkg/scheduler/plugins/coscheduling;
kubernetes pkg/scheduler/metrics/metrics.go, profile_metrics.go.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from koordinator.api.kubescheduler import NO_GATES, FeatureGates
from koordinator.api.kubescheduler.gates import GENERIC_WORKLOAD, TOPOLOGY_PLACEMENTS
from koordinator.domain.gangs import GangCache
from koordinator.scheduler.loop.instruments import Counter, Histogram, exponential

PLACED = "gang is already succeed"  # label values of the original
NOT_PLACED = "all pending pods is already been attempted"
_SIZE_STEP, _LARGEST = 100, 1000
MOST_JOBS = 256  # latest jobs and results with a duration of their preemption
_BELOW_MINUTE_S = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 25.0, 30.0, 45.0)
_ATTEMPT_BUCKETS_S = (*_BELOW_MINUTE_S, 60.0, 120.0)


class PodGroupMetrics:
    """Attempts, placements and preemption of PodGroups; empty while their gates are off."""

    def __init__(self, gates: FeatureGates) -> None:
        seconds = exponential(0.001, 2, 15)
        self._gates = gates
        self._attempts = Counter(
            "podgroup_schedule_attempts",
            "Number of attempts to schedule pod groups, by the result.",
            ["result", "profile"],
        )
        self._attempt_seconds = Histogram(
            "podgroup_scheduling_attempt_duration_seconds",
            "Time of an attempt to schedule a pod group.",
            ["result", "profile"],
            seconds,
        )
        self._algorithm_seconds = Histogram(
            "podgroup_scheduling_algorithm_duration_seconds",
            "Time to decide on the members of a pod group.",
            [],
            seconds,
        )
        self._preemptions = Counter(
            "workload_preemption_attempts",
            "Number of attempts to preempt for pod groups, by the result.",
            ["result"],
        )
        self._victims = Histogram(
            "workload_preemption_victims",
            "Victims of one preemption for a pod group.",
            [],
            exponential(1, 2, 11),
        )
        self._placements = Counter(
            "generated_placements", "Number of placements to try for pod groups.", ["profile"]
        )
        self._evaluations = Counter(
            "placement_evaluations",
            "Number of placements tried for pod groups, by the result.",
            ["result", "profile"],
        )
        self._evaluation_seconds = Histogram(
            "placement_evaluation_duration_seconds",
            "Time to try one placement for a pod group.",
            ["result", "profile"],
            seconds,
        )

    def decided(self, took_s: float) -> None:
        """Record the decision on the members of a group."""
        self._algorithm_seconds.observe(took_s)

    def attempted(self, profile: str, result: str, took_s: float) -> None:
        """Record an attempt with its result."""
        self._attempts.inc(result, profile)
        self._attempt_seconds.observe(took_s, result, profile)

    def preempted(self, victims: int, *, succeeded: bool) -> None:
        """Record an attempt to preempt for a group."""
        self._preemptions.inc("Success" if succeeded else "Unschedulable")
        if victims:
            self._victims.observe(victims)

    def generated(self, profile: str, placements: int) -> None:
        """Record the placements to try for a group."""
        self._placements.inc(profile, times=placements)

    def tried(self, profile: str, took_s: float, *, feasible: bool) -> None:
        """Record a placement that was tried."""
        result = "feasible" if feasible else "infeasible"
        self._evaluations.inc(result, profile)
        self._evaluation_seconds.observe(took_s, result, profile)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics whose feature gate is on."""
        if GENERIC_WORKLOAD in self._gates:
            yield self._attempts.collect()
            yield self._attempt_seconds.collect()
            yield self._algorithm_seconds.collect()
            yield self._preemptions.collect()
            yield self._victims.collect()
        if TOPOLOGY_PLACEMENTS in self._gates:
            yield self._placements.collect()
            yield self._evaluations.collect()
            yield self._evaluation_seconds.collect()


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
            most_series=MOST_JOBS,
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

    def unwatch(self) -> None:
        """Scrape no gang caches."""
        self._caches = ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, and the number of waiting gang groups."""
        yield self._attempt_seconds.collect()
        yield self._preemption_seconds.collect()
        yield from self.pod_groups.collect()
        waiting = {group_id for gangs in self._caches for group_id in gangs.waiting_groups()}
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
