"""A run of identical pods, placed in one pass with the outcome of placing them one by one.

For plugins that evaluate each node alone, the score of a node after j more such pods does not
depend on the other nodes: it is a *trajectory*.  Taking the best node again and again is a merge of
trajectories.  An entry is taken when its node is the best, and a node whose score rises with a pod
is taken again immediately, so the order is by the running minimum of each trajectory, best first,
ties by rank and then by j.
"""

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.cycle.evaluation import Evaluation
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.scheduler.snapshot import Snapshot

FIRST_BLOCK = 4


def merge_run(evaluation: Evaluation, snapshot: Snapshot, rank: IntArray, count: int) -> IntArray:
    """Return the rows that ``count`` pods go to, in order; fewer when the nodes are full before.

    ``evaluation`` must be up to date, of a linear program whose relative scores (if any) are flat.
    """
    best = evaluation.best
    rows = np.flatnonzero(best != UNFIT)
    if len(rows) > count:  # the others stay behind the first ``count`` heads whatever happens
        order = np.lexsort((rank[rows], -best[rows]))
        rows = rows[order[:count]]
    if not len(rows):
        return rows
    taken = _Trajectories(evaluation, snapshot, rows)
    while True:
        low, node, step = taken.entries()
        order = np.lexsort((step, rank[rows[node]], -low))[:count]
        open_ended = taken.exhausted(node[order])
        if not len(open_ended):
            return rows[node[order]]
        taken.extend(open_ended)


class _Trajectories:
    """Running minima of ``best`` per row, computed in blocks that double."""

    def __init__(self, evaluation: Evaluation, snapshot: Snapshot, rows: IntArray) -> None:
        self._evaluation, self._snapshot, self._rows = evaluation, snapshot, rows
        self._known = np.ones(len(rows), np.int64)  # entries computed per row
        self._ended = np.zeros(len(rows), bool)  # the row takes no more than that
        self._last = evaluation.best[rows].copy()
        self._low = [self._last.copy()]
        self._node = [np.arange(len(rows))]
        self._step = [np.zeros(len(rows), np.int64)]

    def entries(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return (running minimum, index of the row, pods taken before) of everything computed."""
        return np.concatenate(self._low), np.concatenate(self._node), np.concatenate(self._step)

    def exhausted(self, chosen: IntArray) -> IntArray:
        """Return the rows all of whose entries are chosen although they could go on."""
        used = np.bincount(chosen, minlength=len(self._rows))
        return np.flatnonzero((used == self._known) & ~self._ended)

    def extend(self, which: IntArray) -> None:
        """Compute another block for some rows."""
        block = max(FIRST_BLOCK, int(self._known[which].max()))
        times = self._known[which][:, None] + np.arange(block)
        scores = self._evaluation.trajectory(
            self._snapshot, np.repeat(self._rows[which], block), times.ravel()
        ).reshape(len(which), block)
        fits = np.logical_and.accumulate(scores != UNFIT, axis=1)
        low = np.minimum.accumulate(np.minimum(scores, self._last[which][:, None]), axis=1)
        self._low.append(low[fits])
        self._node.append(np.repeat(which, block).reshape(fits.shape)[fits])
        self._step.append(times[fits])
        taken = fits.sum(axis=1)
        self._known[which] += taken
        self._ended[which] = taken < block
        self._last[which] = np.where(
            taken > 0, low[np.arange(len(which)), taken - 1], self._last[which]
        )
