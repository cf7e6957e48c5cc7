"""The arithmetic of device scores, for single devices and for the devices of many nodes.

Shapes: ``total`` and ``left`` are ``(capacity, n_minors, n_amounts)``, ``left`` negative where more
is taken than there is; ``may`` has a 1 per minor that may serve; ``asked`` and ``weights`` have an
entry per amount.
Source: koordinator pkg/scheduler/plugins/deviceshare/scoring.go, ``scoreNode``, ``scoreDevice``.
"""

from typing import Any

import numpy as np

from koordinator.domain.devices.amounts import IntArray
from koordinator.foundation.kernel import Kernel

_MAX_SCORE = 100


def percentages_left(
    total: IntArray, free: IntArray, asked: IntArray, weights: IntArray, most: bool
) -> IntArray:
    """Return ``(n,)`` scores of devices, or of nodes by the sums of their devices.

    ``total`` and ``free`` are ``(n, n_amounts)`` here.
    """
    used = np.where(total >= free, total - free + asked, total)
    part = np.minimum(used, total) if most else np.maximum(total - used, 0)
    each = part * _MAX_SCORE // np.maximum(total, 1)
    counted = weights * (total > 0)
    scores: IntArray = (each * counted).sum(axis=1) // np.maximum(counted.sum(axis=1), 1)
    return scores


def _node_scores(  # noqa: PLR0917 (numba takes no keywords)
    total: IntArray,
    left: IntArray,
    rows: IntArray,
    may: IntArray,
    asked: IntArray,
    weights: IntArray,
    most: bool,
) -> IntArray:
    minors = np.flatnonzero(may)
    totals = total[rows][:, minors].sum(axis=1)
    free = np.maximum(left[rows][:, minors], 0).sum(axis=1)
    return percentages_left(totals, free, asked, weights, most)


def _node_scores_loop(  # noqa: PLR0917 (numba takes no keywords)
    total: IntArray,
    left: IntArray,
    rows: IntArray,
    may: IntArray,
    asked: IntArray,
    weights: IntArray,
    most: bool,
) -> IntArray:
    out = np.zeros(len(rows), np.int64)
    for i in range(len(rows)):
        row = rows[i]
        points = 0
        counted = 0
        for amount in range(len(asked)):
            if weights[amount] == 0:
                continue
            capacity = 0
            free = 0
            for minor in range(len(may)):
                if may[minor]:
                    capacity += total[row, minor, amount]
                    free += max(left[row, minor, amount], 0)
            if capacity > 0:
                used = capacity - free + asked[amount] if capacity >= free else capacity
                part = min(used, capacity) if most else max(capacity - used, 0)
                points += weights[amount] * (part * 100 // capacity)
                counted += weights[amount]
        if counted > 0:
            out[i] = points // counted
    return out


def _signature(types: Any) -> Any:
    amounts = types.Array(types.int64, 3, "C", readonly=True)
    vector = types.Array(types.int64, 1, "A", readonly=True)
    return amounts, amounts, vector, vector, vector, vector, types.boolean


#: ``(k,)``: how full the devices that may serve on each of ``rows`` would be.
node_scores = Kernel(_node_scores, _node_scores_loop, _signature)
