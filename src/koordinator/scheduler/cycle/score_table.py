"""Matrices with the scores of many classes of pods, so that one compiled call reads them all."""

import numpy as np

from koordinator.foundation.arrays import IntArray

UNFIT = -1  # in place of a total: the node does not take the pod
_AT_FIRST = 16  # slots


class Scores:
    """Results for a class of pods on all rows, which may lie in a table.

    ``best`` is the weighted total where a node takes the pod and ``UNFIT`` elsewhere; ``fixed`` is
    the same for the plugins that read facts of nodes alone.
    """

    __slots__ = ("best", "fixed", "slot")

    def __init__(self) -> None:
        self.best: IntArray = np.zeros(0, np.int64)
        self.fixed: IntArray = np.zeros(0, np.int64)
        self.slot = -1  # in the table; -1: the arrays are not in it


class ScoreTable:
    """``best`` and ``fixed`` of some evaluations, ``(slots, n_rows)`` each.

    The arrays of an evaluation with a slot are views of its rows here.
    """

    def __init__(self) -> None:
        self.best: IntArray = np.zeros((0, 0), np.int64)
        self.fixed: IntArray = np.zeros((0, 0), np.int64)
        self._owners: dict[int, Scores] = {}
        self._free: list[int] = []

    def enter(self, scored: Scores) -> int:
        """Move the arrays of an evaluation here; return its slot."""
        if scored.slot < 0:
            if len(scored.best) != self.best.shape[1]:
                self._start_over(len(scored.best))
            if not self._free:
                self._grow()
            scored.slot = self._free.pop()
            self._owners[scored.slot] = scored
            self.best[scored.slot], self.fixed[scored.slot] = scored.best, scored.fixed
            self._show(scored)
        return scored.slot

    def leave(self, scored: Scores) -> None:
        """Free the slot of an evaluation, if it has one; its arrays are not current any more."""
        if scored.slot >= 0:
            del self._owners[scored.slot]
            self._free.append(scored.slot)
            scored.slot = -1

    def put(self, scored: Scores, best: IntArray, fixed: IntArray) -> None:
        """Replace the arrays of an evaluation, where they are."""
        if scored.slot >= 0 and len(best) == self.best.shape[1]:
            scored.best[:], scored.fixed[:] = best, fixed
        else:
            self.leave(scored)
            scored.best, scored.fixed = best, fixed

    def _show(self, scored: Scores) -> None:
        scored.best, scored.fixed = self.best[scored.slot], self.fixed[scored.slot]

    def _start_over(self, rows: int) -> None:
        """Make room for arrays of another length; those here are of a number of nodes before."""
        for scored in self._owners.values():
            scored.slot = -1
        self._owners.clear()
        self._free.clear()
        self.best, self.fixed = np.empty((2, 0, rows), np.int64)

    def _grow(self) -> None:
        slots, rows = self.best.shape
        more = max(slots, _AT_FIRST)
        for name in ("best", "fixed"):
            wider = np.empty((slots + more, rows), np.int64)
            wider[:slots] = getattr(self, name)
            setattr(self, name, wider)
        self._free += range(slots + more - 1, slots - 1, -1)
        for scored in self._owners.values():
            self._show(scored)
