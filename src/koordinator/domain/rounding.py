"""Integer divisions over arrays, exactly as Go computes them."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

#: Below this, ``part * 100`` is exact in a double and ``part / whole`` is far enough from the next
#: integer (at least 1 / whole) that the quotient's rounding can't cross it.
_EXACT_BELOW = 1 << 45


def percent_floor(part: IntArray, whole: IntArray) -> IntArray:
    """Return ``part * 100 // whole`` for 0 <= part <= whole; 0 where whole is 0.

    Uses floating point where that is exact, because it is several times faster.
    """
    divisor = np.maximum(whole, 1)
    if divisor.max(initial=0) < _EXACT_BELOW:
        return (part * 100.0 / divisor).astype(np.int64)
    return part * 100 // divisor
