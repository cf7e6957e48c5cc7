"""Curves from utilization to score, as configuration files draw them.

Source: kubernetes pkg/scheduler/framework/plugins/helper/shape_score.go.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.rules.rounding import percent_floor

#: (requested, capacity), both (n,) -> score, (n,)
Curve = Callable[[IntArray, IntArray], IntArray]


def piecewise(points: Sequence[tuple[int, int]]) -> Curve:
    """Return the curve through (utilization percent, score), flat outside, truncating in between.

    More requested than there is counts as full, and so does a capacity of 0.
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
