"""Integer divisions over arrays as Go computes them, and curves from utilization to score.

Source: kubernetes pkg/scheduler/framework/plugins/helper/shape_score.go.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from koordinator.foundation.arrays import IntArray

#: Below this bound ``part * 100`` is exact in a double, and the quotient is so far from the next
#: integer (at least 1 / whole) that rounding can't cross it.
EXACT_BELOW = 1 << 45


def percent_floor(part: IntArray, whole: IntArray) -> IntArray:
    """Return ``part * 100 // whole`` for 0 <= part <= whole; 0 where whole is 0.

    Uses floating point where that is exact, because it is several times faster.
    """
    divisor = np.maximum(whole, 1)
    if divisor.max(initial=0) < EXACT_BELOW:
        return (part * 100.0 / divisor).astype(np.int64)
    return part * 100 // divisor


def round_half_away(number: float) -> int:
    """Return the nearest integer, ties away from zero: ``math.Round`` of Go."""
    whole = int(number)
    if abs(number - whole) < 0.5:  # noqa: PLR2004 (half)
        return whole
    return whole + 1 if number > 0 else whole - 1


#: (requested, capacity), both (n,) -> score, (n,)
Curve = Callable[[IntArray, IntArray], IntArray]


def piecewise(points: Sequence[tuple[int, int]]) -> Curve:
    """Return the curve through (utilization percent, score), constant outside, truncating between.

    Requests above capacity and a capacity of 0 count as full utilization.
    """

    def curve(requested: IntArray, capacity: IntArray) -> IntArray:
        full = (capacity == 0) | (requested > capacity)
        x = np.where(full, 100, percent_floor(np.minimum(requested, capacity), capacity))
        out = np.full(len(x), points[-1][1], np.int64)
        for (x0, y0), (x1, y1) in reversed(list(itertools.pairwise(points))):
            rise = (y1 - y0) * (x - x0)
            step = np.where(rise < 0, -(-rise // (x1 - x0)), rise // (x1 - x0))
            out = np.where(x <= x1, y0 + step, out)
        return np.where(x <= points[0][0], points[0][1], out)

    return curve
