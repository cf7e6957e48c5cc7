"""Store of all series of a node, by metric and owner, and aggregation of samples.

Source: koordinator pkg/koordlet/metriccache, whose TSDB the rings replace; util.go,
``fieldPercentileOfMetricList``, ``fieldAvgOfMetricList``, ``fieldLastOfMetricList``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from koordinator.foundation.arrays import FloatArray
from koordinator.foundation.errors import BugError
from koordinator.koordlet.metrics.names import PER_POD, Metric


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Samples of a time window in order of time; both arrays have shape (n_samples,)."""

    times_s: FloatArray
    values: FloatArray

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.values)

    @property
    def span_s(self) -> float:
        """Time from the first to the last sample; 0 for fewer than two."""
        return float(self.times_s[-1] - self.times_s[0]) if self.count else 0.0

    def average(self) -> float:
        """Return the mean.  Raises BugError without samples."""
        self._check_not_empty()
        return float(self.values.mean())

    def last(self) -> float:
        """Return the newest value.  Raises BugError without samples."""
        self._check_not_empty()
        return float(self.values[-1])

    def percentile(self, share: float) -> float:
        """Return the sorted sample with the 1-based number max(floor(n * share), 1).

        ``share`` is in (0, 1].  The product has single precision, as in the original: 95 % of 20
        samples is the nineteenth.  Raises BugError without samples.
        """
        self._check_not_empty()
        index = max(int(np.float32(self.count) * np.float32(share)) - 1, 0)
        return float(np.partition(self.values, index)[index])

    def _check_not_empty(self) -> None:
        if not self.count:
            raise BugError("no samples to aggregate")


class MetricSeries:
    """Ring of up to ``capacity`` samples; when full, the newest replaces the oldest.

    The ring grows by doubling, so that the series of a short-lived pod stays small.
    """

    __slots__ = ("_capacity", "_count", "_next", "_times_s", "_values")

    _FIRST_SIZE = 16

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        size = min(capacity, self._FIRST_SIZE)
        self._times_s = np.empty(size)
        self._values = np.empty(size)
        self._next = 0
        self._count = 0

    @property
    def last_s(self) -> float:
        """Time of the newest sample; minus infinity without samples."""
        return float(self._times_s[self._next - 1]) if self._count else -np.inf

    def append(self, time_s: float, value: float) -> None:
        """Add a sample; drop it unless it is newer than the last one."""
        if time_s <= self.last_s:
            return
        if self._count == len(self._values) < self._capacity:
            self._grow()
        self._times_s[self._next] = time_s
        self._values[self._next] = value
        self._next = (self._next + 1) % len(self._values)
        self._count = min(self._count + 1, len(self._values))

    def between(self, start_s: float, end_s: float) -> Aggregate:
        """Return the samples with ``start_s`` <= time <= ``end_s``."""
        times_s, values = self._in_order()
        low = int(np.searchsorted(times_s, start_s, side="left"))
        high = int(np.searchsorted(times_s, end_s, side="right"))
        return Aggregate(times_s[low:high], values[low:high])

    def last(self) -> float:
        """Return the newest value; NaN without samples."""
        return float(self._values[self._next - 1]) if self._count else float("nan")

    def _in_order(self) -> tuple[np.ndarray, np.ndarray]:
        if self._count < len(self._values):
            return self._times_s[: self._count], self._values[: self._count]
        return np.roll(self._times_s, -self._next), np.roll(self._values, -self._next)

    def _grow(self) -> None:
        times_s, values = self._in_order()
        size = min(2 * len(values), self._capacity)
        self._times_s = np.empty(size)
        self._values = np.empty(size)
        self._times_s[: self._count] = times_s
        self._values[: self._count] = values
        self._next = self._count


MAX_SAMPLES = 12 * 3600  # half a day of seconds: the original keeps no more


class MetricStore:
    """Samples of the last ``retention_s`` seconds, with at most one per ``interval_s``.

    Series of pods and containers keep ``pod_retention_s`` seconds.  A series without a sample for
    that time is dropped.
    """

    def __init__(
        self, retention_s: float, interval_s: float, pod_retention_s: float | None = None
    ) -> None:
        self._interval_s = interval_s
        self._retention_s = retention_s
        self._pod_retention_s = retention_s if pod_retention_s is None else pod_retention_s
        self._series: dict[tuple[Metric, str], MetricSeries] = {}
        self.refused = 0  #: number of implausible samples so far

    def add(self, metric: Metric, owner: str, time_s: float, value: float) -> None:
        """Add a sample; refuse a value that is negative or not finite."""
        if not 0 <= value < math.inf:
            self.refused += 1
            return
        series = self._series.get((metric, owner))
        if series is None:
            seconds = self._seconds(metric)
            capacity = min(math.ceil(seconds / self._interval_s) + 1, MAX_SAMPLES)
            series = self._series[metric, owner] = MetricSeries(capacity)
        series.append(time_s, value)

    def between(self, metric: Metric, owner: str, start_s: float, end_s: float) -> Aggregate | None:
        """Return the samples of a window, both ends included; None if there are none."""
        series = self._series.get((metric, owner))
        if series is None:
            return None
        aggregate = series.between(start_s, end_s)
        return aggregate if aggregate.count else None

    def last(self, metric: Metric, owner: str, since_s: float) -> float | None:
        """Return the newest sample; None if it is older than ``since_s``."""
        series = self._series.get((metric, owner))
        if series is None or series.last_s < since_s:
            return None
        return series.last()

    def owners(self, metric: Metric) -> Iterator[str]:
        """Yield the owners with a series of a metric; safe while another thread adds some."""
        return (owner for kind, owner in tuple(self._series) if kind is metric)

    def expire(self, now_s: float) -> None:
        """Drop the series whose samples are all too old."""
        idle = [
            key
            for key, series in self._series.items()
            if series.last_s < now_s - self._seconds(key[0])
        ]
        for key in idle:
            del self._series[key]

    def _seconds(self, metric: Metric) -> float:
        return self._pod_retention_s if metric in PER_POD else self._retention_s

    def __len__(self) -> int:
        return len(self._series)
