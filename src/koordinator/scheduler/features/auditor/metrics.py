"""Metrics of the auditor, under the names of koord-scheduler.

Source: koordinator pkg/scheduler/frameworkext/workloadauditor/metrics.go.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from koordinator.scheduler.features.auditor.workload_life import (
    LifeMeasure,
    LifeOutcome,
    WorkloadEvent,
)
from koordinator.scheduler.loop.instruments import Counter, Histogram, exponential

#: Number of label combinations with their own series; further ones share one.
MOST_SERIES: Final = 1000
OTHER: Final = "other"
_PREFIX = "workload_auditor_"
_SECONDS = exponential(0.1, 2, 15)
_TEXTS: Final = {
    LifeMeasure.REPEATED: "Nominations of workloads that were nominated before.",
    LifeMeasure.INVALIDATED: "Nominations that were invalidated.",
    LifeMeasure.RESCHEDULED_S: "Time from the end of the last victim to the next result.",
    LifeMeasure.RETRIES: "Attempts during a preemption before all victims had terminated.",
    LifeMeasure.VICTIMS_DELETED_S: "Time from a nomination to the termination of the last victim.",
    LifeMeasure.INTERRUPTED_S: "Time from a nomination to the event that interrupted it.",
    LifeMeasure.INTERVAL_S: "Time between two events of a schedulable workload.",
}
_BOUNDS: Final = {
    LifeMeasure.RETRIES: tuple(float(n) for n in range(20)),
    LifeMeasure.INTERVAL_S: exponential(0.1, 2, 20),
}


class AuditorMetrics:
    """Collector that the scheduler's thread updates and any thread may scrape."""

    def __init__(self, registry: CollectorRegistry, labels: Sequence[str]) -> None:
        """``labels`` of all series, ``priority`` first; series of methods have their own."""
        names = [*labels]
        self._counters = {
            measure: Counter(_PREFIX + measure, _TEXTS[measure], names)
            for measure in (LifeMeasure.REPEATED, LifeMeasure.INVALIDATED)
        }
        self._histograms = {
            measure: Histogram(
                _PREFIX + measure, _TEXTS[measure], names, _BOUNDS.get(measure, _SECONDS)
            )
            for measure in LifeMeasure
            if measure not in self._counters
        }
        self._events = Histogram(
            f"{_PREFIX}scheduling_events_before_outcome",
            "Events of a workload until it starts or is deleted.",
            [*names, "event_type", "outcome"],
            tuple(float(n) for n in range(30)),
        )
        self._methods = Histogram(
            f"{_PREFIX}record_method_duration_seconds",
            "Duration of one record call.",
            ["method"],
            exponential(0.000001, 4, 10),
        )
        self._known: set[tuple[str, ...]] = set()
        registry.register(self)

    def series(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the metric labels for a workload."""
        if labels not in self._known:
            if len(self._known) >= MOST_SERIES:
                return (labels[0], *(OTHER for _ in labels[1:]))
            self._known.add(labels)
        return labels

    def observe(self, labels: tuple[str, ...], measure: LifeMeasure, value: float) -> None:
        """Record a measure."""
        counter = self._counters.get(measure)
        if counter is not None:
            counter.inc(*labels)
        else:
            self._histograms[measure].observe(value, *labels)

    def ended(
        self, labels: tuple[str, ...], counts: Iterable[tuple[WorkloadEvent, int]], how: LifeOutcome
    ) -> None:
        """Record the event counts of a workload that started or was deleted."""
        for event, count in counts:
            self._events.observe(count, *labels, event, how)

    def took(self, method: str, seconds: float) -> None:
        """Record the duration of a record call."""
        self._methods.observe(seconds, method)

    def describe(self) -> Iterable[Metric]:
        """Return nothing; names are not checked before the first scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        for counter in self._counters.values():
            yield counter.collect()
        for histogram in (*self._histograms.values(), self._events):
            yield histogram.collect()
        yield self._methods.collect()
