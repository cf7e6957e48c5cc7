"""All series of a node, by what is measured and whose it is.

Source: koordinator pkg/koordlet/metriccache; the rings take the place of its TSDB.
"""

import math
from collections.abc import Iterator

from koordinator.koordlet.metrics.aggregate import Aggregate
from koordinator.koordlet.metrics.names import PER_POD, Metric
from koordinator.koordlet.metrics.series import MetricSeries

MAX_SAMPLES = 12 * 3600  # half a day of seconds: the original keeps no more


class MetricStore:
    """Samples of the last ``retention_s`` seconds, taken no more often than ``interval_s``.

    Of pods and containers, of which there are many, ``pod_retention_s``.  A series that got nothing
    for so long is dropped: its pod is gone.
    """

    def __init__(
        self, retention_s: float, interval_s: float, pod_retention_s: float | None = None
    ) -> None:
        self._interval_s = interval_s
        self._retention_s = retention_s
        self._pod_retention_s = retention_s if pod_retention_s is None else pod_retention_s
        self._series: dict[tuple[Metric, str], MetricSeries] = {}
        self.refused = 0  #: absurd samples so far

    def add(self, metric: Metric, owner: str, time_s: float, value: float) -> None:
        """Keep a sample; what no quantity can be, below 0 or not finite, is refused."""
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
        found = series.between(start_s, end_s)
        return found if found.count else None

    def last(self, metric: Metric, owner: str, since_s: float) -> float | None:
        """Return the newest sample unless it is older than ``since_s``."""
        series = self._series.get((metric, owner))
        if series is None or series.last_s < since_s:
            return None
        return series.last()

    def owners(self, metric: Metric) -> Iterator[str]:
        """Yield whose series of a kind there are; another thread may add some meanwhile."""
        return (owner for kind, owner in tuple(self._series) if kind is metric)

    def expire(self, now_s: float) -> None:
        """Drop the series all of whose samples are too old."""
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
