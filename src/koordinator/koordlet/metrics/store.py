"""Store of all series of a node, by metric and owner.

Source: koordinator pkg/koordlet/metriccache; the rings take the place of its TSDB.
"""

import math
from collections.abc import Iterator

from koordinator.koordlet.metrics.aggregate import Aggregate
from koordinator.koordlet.metrics.names import PER_POD, Metric
from koordinator.koordlet.metrics.series import MetricSeries

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
