"""Axes with round ticks, and long series made short enough to draw."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from koordinator.simulator.numerals import NumberUnit

FloatArray = NDArray[np.float64]
RowArray = NDArray[np.int64]

_DAY_S = 86_400
_SHORTEST_S = 0.001
_DURATION_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3_600 * n for n in (1, 2, 3, 6, 12)),
    *(_DAY_S * n for n in (1, 2, 5, 10, 20, 30, 60, 90, 180, 365)),
)


@dataclass(frozen=True, slots=True)
class Axis:
    """A stretch of numbers, low < high, with texts at some of them."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def place(self, values: FloatArray) -> FloatArray:
        """Return where the values lie: 0 at the low end, 1 at the high end."""
        placed: FloatArray = (values - self.low) / (self.high - self.low)
        return placed


SHARES = Axis(0.0, 1.0, tuple((n / 4, f"{25 * n}%") for n in range(5)))


def value_axis(top: float, unit: NumberUnit) -> Axis:
    """Return an axis from 0 to the first tick at or above ``top``."""
    least = 0.01 if unit is NumberUnit.SHARE else 1.0
    step = _step(max(top, least) / 4, unit)
    n_ticks = math.ceil(max(top, least) / step - 1e-9)
    return Axis(
        0.0,
        n_ticks * step,
        tuple((n * step, unit.tick(n * step, step)) for n in range(n_ticks + 1)),
    )


def time_axis(span_s: float, most_intervals: int = 6) -> Axis:
    """Return an axis from 0 to ``span_s``, which need not be a tick; a second if there is none."""
    high = span_s if span_s >= _SHORTEST_S else 1.0
    step = _step(high / most_intervals, NumberUnit.SECONDS)
    ticks = (n * step for n in range(int(high / step + 1e-9) + 1))
    return Axis(0.0, high, tuple((t, NumberUnit.SECONDS.tick(t, step)) for t in ticks))


def _step(least: float, unit: NumberUnit) -> float:
    """Return the first round step at or above ``least``."""
    if unit is NumberUnit.SECONDS and 1 <= least <= _DURATION_STEPS_S[-1]:
        return float(next(s for s in _DURATION_STEPS_S if s >= least))
    if unit in (NumberUnit.COUNT, NumberUnit.RATE):
        least = max(least, 1)
    magnitude = 10.0 ** math.floor(math.log10(least))
    return next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= least * (1 - 1e-9))


def kept_rows(series: FloatArray, limit: int = 600) -> RowArray:
    """Return the rows to draw of ``series[n_series, n]``, ascending, at most ``limit``.

    The first and the last row stay, and of every stretch of rows the least and the greatest
    value of each series.  NaN is no value.  ``limit`` is at least 2 + 2 * n_series.
    """
    n_series, n = series.shape
    if n <= limit:
        return np.arange(n)
    n_stretches = (limit - 2) // (2 * n_series)
    kept = {0, n - 1}
    for rows in np.array_split(np.arange(n), n_stretches):
        for values in series[:, rows]:
            if not np.isnan(values).all():
                kept.update((int(rows[np.nanargmin(values)]), int(rows[np.nanargmax(values)])))
    return np.array(sorted(kept))
