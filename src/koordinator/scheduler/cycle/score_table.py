"""Matrices with the scores of many classes of pods, and the best of many nodes by their totals.

``total`` is ``(n,)``, ``UNFIT`` where the node does not take the pod.
"""

import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from koordinator.foundation.arrays import IntArray, Kernel
from koordinator.scheduler.contract import MAX_SCORE, spread_of

UNFIT = -1  # in place of a total: the node does not take the pod
_AT_FIRST = 16  # slots

_DIVIDED: Final = 4096  # raw scores for which division is done once, not per node


class Scores:
    """Results for a class of pods on all rows.

    ``totals`` are the weighted totals where a node takes the pod and ``UNFIT`` elsewhere;
    ``node_totals`` are totals over the plugins that read facts of nodes alone.
    """

    __slots__ = ("node_totals", "slot", "totals")

    def __init__(self) -> None:
        self.totals: IntArray = np.zeros(0, np.int64)
        self.node_totals: IntArray = np.zeros(0, np.int64)  # of many classes: don't write to it
        self.slot = -1  # of ``totals`` in a table; -1: they are not in it


class ScoreTable:
    """``totals`` of some evaluations, ``(slots, n_rows)``.

    The array of an evaluation with a slot is a view of its row here.
    """

    def __init__(self) -> None:
        self.totals: IntArray = np.zeros((0, 0), np.int64)
        self._owners: dict[int, Scores] = {}
        self._free: list[int] = []
        self._stacked: tuple[list[IntArray], IntArray] = ([], self.totals)

    def enter(self, scored: Scores) -> int:
        """Move the totals of an evaluation here; return its slot."""
        if scored.slot < 0:
            if len(scored.totals) != self.totals.shape[1]:
                self._start_over(len(scored.totals))
            if not self._free:
                self._grow()
            scored.slot = self._free.pop()
            self._owners[scored.slot] = scored
            self.totals[scored.slot] = scored.totals
            scored.totals = self.totals[scored.slot]
        return scored.slot

    def leave(self, scored: Scores) -> None:
        """Free the slot of an evaluation, if it has one; its totals are then stale."""
        if scored.slot >= 0:
            del self._owners[scored.slot]
            self._free.append(scored.slot)
            scored.slot = -1

    def put(self, scored: Scores, totals: IntArray) -> None:
        """Replace the totals of an evaluation, where they are."""
        if scored.slot >= 0 and len(totals) == self.totals.shape[1]:
            scored.totals[:] = totals
        else:
            self.leave(scored)
            scored.totals = totals

    def node_totals(self, scored: Sequence[Scores]) -> tuple[IntArray, IntArray]:
        """Return the different ``node_totals`` of evaluations, ``(u, n_rows)``, and which is whose.

        The matrix is kept until other arrays are stacked.
        """
        number: dict[int, int] = {}
        arrays: list[IntArray] = []
        whose = []
        for one in scored:
            known = number.get(id(one.node_totals))
            if known is None:
                known = number[id(one.node_totals)] = len(arrays)
                arrays.append(one.node_totals)
            whose.append(known)
        before, stacked = self._stacked
        if len(before) != len(arrays) or any(map(operator.is_not, before, arrays)):
            stacked = np.stack(arrays)
            self._stacked = arrays, stacked
        return stacked, np.array(whose, np.int64)

    def _start_over(self, rows: int) -> None:
        """Make room for arrays of another length; those here are of a number of nodes before."""
        for scored in self._owners.values():
            scored.slot = -1
        self._owners.clear()
        self._free.clear()
        self.totals = np.empty((0, rows), np.int64)

    def _grow(self) -> None:
        slots, rows = self.totals.shape
        more = max(slots, _AT_FIRST)
        wider = np.empty((slots + more, rows), np.int64)
        wider[:slots] = self.totals
        self.totals = wider
        self._free += range(slots + more - 1, slots - 1, -1)
        for slot, scored in self._owners.items():
            scored.totals = wider[slot]


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
