"""Integer divisions over arrays, exactly as Go computes them."""

import numpy as np

from koordinator.foundation.arrays import IntArray

#: Below this, ``part * 100`` is exact in a double and ``part / whole`` is far enough from the next
#: integer (at least 1 / whole) that the quotient's rounding can't cross it.
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
    """Return the nearest integer, away from zero where two are: ``math.Round`` of Go."""
    whole = int(number)
    if abs(number - whole) < 0.5:  # noqa: PLR2004 (half)
        return whole
    return whole + 1 if number > 0 else whole - 1
