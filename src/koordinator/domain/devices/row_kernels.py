"""The arithmetic of devices on many nodes: what has enough, how full they would be.

Shapes: ``total`` and ``left`` are ``(capacity, n_minors, n_amounts)``, ``left`` negative where more
is taken than there is; ``may`` has a 1 per minor that may serve; ``asked`` and ``weights`` have an
entry per amount.
Source: koordinator pkg/scheduler/plugins/deviceshare/scoring.go, ``scoreNode``, ``scoreDevice``.
"""

from typing import Any

import numpy as np

from koordinator.domain.devices.amounts import IntArray
from koordinator.foundation.kernel import Kernel

MOST_BITS = 62  # devices of a type whose set is one number to the loop
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


def _device_masks(left: IntArray, holders: IntArray, rows: IntArray, asked: IntArray) -> IntArray:
    bits = 1 << np.arange(left.shape[1])
    fit = np.logical_and.reduce(left[rows] >= asked, axis=2) @ bits
    return np.stack([fit, (holders[rows] > 0) @ bits]).astype(np.int64)


def _device_masks_loop(
    left: IntArray, holders: IntArray, rows: IntArray, asked: IntArray
) -> IntArray:
    out = np.zeros((2, len(rows)), np.int64)
    for i in range(len(rows)):
        row = rows[i]
        for minor in range(left.shape[1]):
            fits = True
            for amount in range(len(asked)):
                if left[row, minor, amount] < asked[amount]:
                    fits = False
            if fits:
                out[0, i] |= 1 << minor
            if holders[row, minor] > 0:
                out[1, i] |= 1 << minor
    return out


def _mask_signature(types: Any) -> Any:
    return (
        types.Array(types.int64, 3, "C", readonly=True),
        types.Array(types.int64, 2, "C", readonly=True),
        types.Array(types.int64, 1, "A", readonly=True),
        types.Array(types.int64, 1, "A", readonly=True),
    )


#: ``(2, k)``: the devices with enough left, and those that somebody holds, as masks.
device_masks = Kernel(_device_masks, _device_masks_loop, _mask_signature)


def _signature(types: Any) -> Any:
    amounts = types.Array(types.int64, 3, "C", readonly=True)
    vector = types.Array(types.int64, 1, "A", readonly=True)
    return amounts, amounts, vector, vector, vector, vector, types.boolean


#: ``(k,)``: how full the devices that may serve on each of ``rows`` would be.
node_scores = Kernel(_node_scores, _node_scores_loop, _signature)
