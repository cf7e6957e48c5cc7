"""Series of samples in a ring buffer."""

import numpy as np

from koordinator.koordlet.metrics.aggregate import Aggregate


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
