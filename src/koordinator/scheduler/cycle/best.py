"""The best of many nodes by their totals, in compiled loops.

``total`` is ``(n,)``, ``UNFIT`` where the node does not take the pod.
"""

from typing import Any, Final

import numpy as np

from koordinator.foundation.arrays import IntArray, Kernel
from koordinator.scheduler.contract import MAX_SCORE, spread_of
from koordinator.scheduler.cycle.score_table import UNFIT

_DIVIDED: Final = 4096  # raw scores for which division is done once, not per node


def _spread_onto(total: IntArray, raw: IntArray, weight: int, reverse: bool) -> IntArray:
    rows = np.flatnonzero(total != UNFIT)
    out = total.copy()
    out[rows] += weight * spread_of(raw[rows], reverse=reverse)
    return out


def _spread_onto_loop(total: IntArray, raw: IntArray, weight: int, reverse: bool) -> IntArray:
    out = np.empty(len(total), np.int64)
    top = 0
    for row in range(len(total)):
        if total[row] != UNFIT:
            top = max(top, raw[row])
    few = top < _DIVIDED
    table = np.zeros(top + 1 if few else 1, np.int64)
    for score in range(len(table)):
        scaled = score * MAX_SCORE // top if top > 0 else 0
        table[score] = weight * (MAX_SCORE - scaled if reverse else scaled)
    for row in range(len(total)):
        score = raw[row]
        if total[row] == UNFIT:
            out[row] = UNFIT
        elif few and score >= 0:
            out[row] = total[row] + table[score]
        else:
            scaled = score * MAX_SCORE // top if top > 0 else score
            out[row] = total[row] + weight * (MAX_SCORE - scaled if reverse else scaled)
    return out


def _best_row(total: IntArray, rank: IntArray) -> int:
    rows = np.flatnonzero(total == total.max(initial=UNFIT))
    if not len(rows) or total[rows[0]] == UNFIT:
        return UNFIT
    return int(rows[np.argmin(rank[rows])])


def _best_row_loop(total: IntArray, rank: IntArray) -> int:
    best = UNFIT
    for row in range(len(total)):
        if total[row] == UNFIT:
            continue
        ahead = best == UNFIT or total[row] > total[best]
        if ahead or (total[row] == total[best] and rank[row] < rank[best]):
            best = row
    return best


def _best_spread(total: IntArray, raw: IntArray, weight: int, reverse: bool, rank: IntArray) -> int:
    return _best_row(_spread_onto(total, raw, weight, reverse), rank)


def _best_spread_loop(
    total: IntArray, raw: IntArray, weight: int, reverse: bool, rank: IntArray
) -> int:
    top = 0
    for row in range(len(total)):
        top = max(top, raw[row] if total[row] != UNFIT else 0)
    few = top < _DIVIDED
    table = np.zeros(top + 1 if few else 1, np.int64)
    for score in range(len(table)):
        scaled = score * MAX_SCORE // top if top > 0 else 0
        table[score] = weight * (MAX_SCORE - scaled if reverse else scaled)
    best, highest = UNFIT, 0
    for row in range(len(total)):
        if total[row] == UNFIT:
            continue
        score = raw[row]
        if few and score >= 0:
            points = total[row] + table[score]
        else:
            scaled = score * MAX_SCORE // top if top > 0 else score
            points = total[row] + weight * (MAX_SCORE - scaled if reverse else scaled)
        if best == UNFIT or points > highest or (points == highest and rank[row] < rank[best]):
            best, highest = row, points
    return best


def _vector(types: Any) -> Any:
    return types.Array(types.int64, 1, "A", readonly=True)


def _dense(types: Any) -> Any:
    return types.Array(types.int64, 1, "C", readonly=True)


#: ``(n,)``: the totals with weighted relative scores added, as ``contract.spread_of`` the raw ones
#: of the nodes that take the pod.
spread_onto = Kernel(
    _spread_onto,
    _spread_onto_loop,
    lambda t: (_vector(t), _vector(t), t.int64, t.boolean),
)
#: The row with the highest total, of equal ones that with the lowest rank; ``UNFIT`` if there is
#: none.
best_row = Kernel(_best_row, _best_row_loop, lambda t: (_vector(t), _vector(t)))
#: ``best_row`` of what ``spread_onto`` returns, without writing it down.
best_spread = Kernel(
    _best_spread,
    _best_spread_loop,
    lambda t: (_dense(t), _dense(t), t.int64, t.boolean, _dense(t)),
)
