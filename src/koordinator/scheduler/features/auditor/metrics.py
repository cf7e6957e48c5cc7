"""What the auditor measures, under the names of koord-scheduler.

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

#: So many combinations of labels have series of their own; all further ones share one.
MOST_SERIES: Final = 1000
OTHER: Final = "other"
_PREFIX = "workload_auditor_"
_SECONDS = exponential(0.1, 2, 15)
_TEXTS: Final = {
    LifeMeasure.REPEATED: "Nominations of workloads that were nominated before.",
    LifeMeasure.INVALIDATED: "Nominations that came to nothing.",
    LifeMeasure.RESCHEDULED_S: "Time from the end of the last victim to the next result.",
    LifeMeasure.RETRIES: "Attempts in a preemption while victims were still there.",
    LifeMeasure.VICTIMS_GONE_S: "Time from a nomination to the end of the last victim.",
    LifeMeasure.INTERRUPTED_S: "Time from a nomination to what ended the preemption before.",
    LifeMeasure.INTERVAL_S: "Time between two events of a workload that may be tried.",
}
_BOUNDS: Final = {
    LifeMeasure.RETRIES: tuple(float(n) for n in range(20)),
    LifeMeasure.INTERVAL_S: exponential(0.1, 2, 20),
}


class AuditorMetrics:
    """Told by the scheduler's thread only; a collector of prometheus-client, asked by any."""

    def __init__(self, registry: CollectorRegistry, labels: Sequence[str]) -> None:
        """``labels`` of all series but the method's, the first of them ``priority``."""
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
            "Events of a workload by the time that it starts or goes.",
            [*names, "event_type", "outcome"],
            tuple(float(n) for n in range(30)),
        )
        self._methods = Histogram(
            f"{_PREFIX}record_method_duration_seconds",
            "Time to take note of one thing.",
            ["method"],
            exponential(0.000001, 4, 10),
        )
        self._known: set[tuple[str, ...]] = set()
        registry.register(self)

    def series(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the labels that such a workload is counted under."""
        if labels not in self._known:
            if len(self._known) >= MOST_SERIES:
                return (labels[0], *(OTHER for _ in labels[1:]))
            self._known.add(labels)
        return labels

    def observe(self, labels: tuple[str, ...], measure: LifeMeasure, value: float) -> None:
        """Count one measure."""
        counter = self._counters.get(measure)
        if counter is not None:
            counter.inc(*labels)
        else:
            self._histograms[measure].observe(value, *labels)

    def ended(
        self, labels: tuple[str, ...], counts: Iterable[tuple[WorkloadEvent, int]], how: LifeOutcome
    ) -> None:
        """Count the events of a workload that has started or gone."""
        for event, count in counts:
            self._events.observe(count, *labels, event, how)

    def took(self, method: str, seconds: float) -> None:
        """Note how long something took that was noted."""
        self._methods.observe(seconds, method)

    def describe(self) -> Iterable[Metric]:
        """Return nothing to check names against before the first scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield what has been counted."""
        for counter in self._counters.values():
            yield counter.collect()
        for histogram in (*self._histograms.values(), self._events):
            yield histogram.collect()
        yield self._methods.collect()
