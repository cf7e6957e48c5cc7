"""Statistics of experiments: mean, deviation, and confidence intervals of Student's t."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import atan, cos, pi, sin, sqrt, tan
from statistics import fmean, stdev
from typing import Final

CONFIDENCE: Final = 0.95
_LEAST = 2  # values that have a deviation
_HALVINGS: Final = 200  # more than the bits of a float


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """Mean of ``count`` values, their standard deviation, and the interval of the mean.

    Without at least two values there is neither deviation nor interval.
    """

    count: int
    mean: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None


def sample_statistics(values: Sequence[float]) -> SampleStatistics:
    """Return the statistics of independent values, with a 95 % confidence interval."""
    count = len(values)
    if not count:
        return SampleStatistics(0)
    mean = fmean(values)
    if count < _LEAST:
        return SampleStatistics(count, mean)
    deviation = stdev(values)
    half = t_quantile(count - 1) * deviation / sqrt(count)
    return SampleStatistics(count, mean, deviation, mean - half, mean + half)


@cache
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return the t with P(|T| < t) = confidence, for a whole number of degrees of freedom."""
    low, high = 0.0, pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _central_probability(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return sqrt(freedom) * tan((low + high) / 2)


def t_probability(t: float, freedom: int) -> float:
    """Return P(|T| < t) of Student's distribution."""
    return _central_probability(atan(t / sqrt(freedom)), freedom)


def _central_probability(angle: float, freedom: int) -> float:
    """Return P(|T| < sqrt(freedom) tan(angle)).

    The series is finite.  Source: Abramowitz and Stegun, Handbook of Mathematical Functions,
    26.7.3 and 26.7.4.
    """
    is_odd = freedom % 2 == 1
    power = cos(angle) if is_odd else 1.0
    term, total = power, power if freedom > 1 else 0.0
    for factor in range(2 if is_odd else 1, freedom - 2, 2):
        term *= factor / (factor + 1) * cos(angle) ** 2
        total += term
    if is_odd:
        return 2 / pi * (angle + sin(angle) * total)
    return sin(angle) * total
