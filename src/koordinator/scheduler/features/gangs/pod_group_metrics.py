"""Metrics of PodGroups of scheduling.k8s.io, under the names of kube-scheduler 1.37.

Source: kubernetes pkg/scheduler/metrics/metrics.go, profile_metrics.go.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.kubescheduler.gates import GENERIC_WORKLOAD, TOPOLOGY_PLACEMENTS
from koordinator.scheduler.loop.instruments import Counter, Histogram, exponential

_PREEMPTOR: Final = "podgroup"


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
        self._preemption_seconds = Histogram(
            "preemption_evaluation_duration_seconds",
            "Time to choose the victims of a preemption for a pod group.",
            ["preemptor", "result"],
            exponential(0.001, 2, 16),
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

    def preempted(self, victims: int, took_s: float, *, found: bool) -> None:
        """Record an attempt to preempt for a group."""
        result = "Success" if found else "Unschedulable"
        self._preemptions.inc(result)
        self._preemption_seconds.observe(took_s, _PREEMPTOR, result)
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
            yield self._preemption_seconds.collect()
        if TOPOLOGY_PLACEMENTS in self._gates:
            yield self._placements.collect()
            yield self._evaluations.collect()
            yield self._evaluation_seconds.collect()
