"""Histograms and counters that cost next to nothing until a scrape reads them."""

import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return bucket bounds that grow by a factor, each from the one before it.

    Repeated multiplication rounds as in the originals, so that the ``le`` labels are equal.
    Source: client_golang prometheus/histogram.go ``ExponentialBuckets``.
    """
    return tuple(accumulate([factor] * (count - 1), mul, initial=start))


class Histogram:
    """Observations by labels.  Counting one is a look-up and a bisection; adding up waits.

    With ``most_series`` a new series takes the place of the oldest one: for labels that have names
    of objects.
    """

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        *,
        most_series: int = sys.maxsize,
    ) -> None:
        self._family = (f"scheduler_{name}", text, labels)
        self._bounds, self._most_series = bounds, most_series
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str, times: int = 1) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            if len(self._counts) >= self._most_series:
                oldest = next(iter(self._counts))
                del self._counts[oldest], self._sums[oldest]
            self._sums[labels] = 0.0
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
        counts[bisect_left(self._bounds, value)] += times
        self._sums[labels] += value * times

    @property
    def sums(self) -> Mapping[tuple[str, ...], float]:
        """Sums of the observed values, by labels."""
        return self._sums

    def collect(self) -> Metric:
        name, text, labels = self._family
        family = HistogramMetricFamily(name, text, labels=labels)
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, counts in list(self._counts.items()):
            sum_value = self._sums.get(values)
            if sum_value is not None:  # another thread may have removed the series
                buckets = list(zip(bounds, accumulate(counts), strict=True))
                family.add_metric(values, buckets, sum_value)
        return family


class Counter:
    """Events by labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._family = (f"scheduler_{name}", text, labels)
        self._counts: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def inc(self, *labels: str, times: int = 1) -> None:
        self._counts[labels] = self._counts.get(labels, 0) + times

    def collect(self) -> Metric:
        name, text, labels = self._family
        family = CounterMetricFamily(name, text, labels=labels)
        for values, count in list(self._counts.items()):
            family.add_metric(values, count)
        return family
