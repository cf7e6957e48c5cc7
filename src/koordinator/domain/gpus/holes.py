"""What the free part of a partly used GPU is worth to the shares still to come.

Covering program: cut whole GPUs, as few as possible, and the holes that exist into the share sizes
expected.  Its dual prices say what a share of each size costs; a hole is worth the best filling at
these prices.  Fillings are generated when they pay (Gilmore and Gomory 1961), so many sizes do no
harm.
"""

import math
from collections.abc import Mapping

import numpy as np

from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import FloatArray, IntArray
from koordinator.foundation.linear_program import LinearProgram

#: A filling: the sizes in it, with repetition.
Filling = tuple[int, ...]

_TOLERANCE = 1e-7
_MAX_ROUNDS = 100


class HoleWorth:
    """Worth of holes.  Keeps the fillings of the last optimum: the next one is near."""

    def __init__(self) -> None:
        self._known: dict[int, set[Filling]] = {}

    def solve(self, demand: Mapping[int, float], holes: Mapping[int, int]) -> FloatArray:
        """Return the worth of 0..1000 free milli in whole GPUs, ``(1001,)``, rising, at most 1.

        ``demand`` is the expected number of shares by size, ``holes`` the number of partly used
        GPUs by free milli.  All zero where nothing is expected.
        """
        sizes = np.array(sorted(size for size, count in demand.items() if count > 0), np.int64)
        if len(sizes) == 0:
            return np.zeros(WHOLE_GPU + 1)
        program = _Covering(sizes, demand, {h: n for h, n in holes.items() if h >= sizes[0]})
        for size in sizes.tolist():
            program.add(WHOLE_GPU, (size,) * (WHOLE_GPU // size))
        for hole, fillings in self._known.items():
            for filling in fillings:
                program.add(hole, filling)
        worth = program.solve()
        self._known = program.used()
        share: FloatArray = worth / max(worth[WHOLE_GPU], 1.0)
        return share


class _Covering:
    """The covering program: rows are sizes, then holes."""

    def __init__(
        self, sizes: IntArray, demand: Mapping[int, float], holes: Mapping[int, int]
    ) -> None:
        self._sizes, self._holes = sizes, list(holes)
        self._row = {size: row for row, size in enumerate(sizes.tolist())}
        self._hole_row = {hole: len(sizes) + i for i, hole in enumerate(holes)}
        needed = [-demand[size] for size in sizes.tolist()]
        self._program = LinearProgram(np.array([*needed, *holes.values()], float))
        self._columns: dict[tuple[int, Filling], None] = {}
        self._amounts = np.zeros(0)

    def add(self, hole: int, filling: Filling) -> bool:
        """Add a column; False if it is there already, or speaks of a hole or size that isn't."""
        known = (hole, filling) in self._columns
        if known or (hole != WHOLE_GPU and hole not in self._hole_row):
            return False
        if any(size not in self._row for size in filling):
            return False
        counts: dict[int, float] = {}
        for size in filling:
            counts[self._row[size]] = counts.get(self._row[size], 0.0) - 1.0
        if hole != WHOLE_GPU:
            counts[self._hole_row[hole]] = 1.0
        self._columns[hole, filling] = None
        self._program.add_column(
            -1.0 if hole == WHOLE_GPU else 0.0,
            np.array(list(counts), np.int64),
            np.array(list(counts.values())),
        )
        return True

    def solve(self) -> FloatArray:
        """Return ``(1001,)`` the worth of a hole by its size at the optimal prices."""
        worth = np.zeros(WHOLE_GPU + 1)
        for _ in range(_MAX_ROUNDS):
            solution = self._program.solve()
            self._amounts = solution.amounts
            knapsack = Knapsack(self._sizes, solution.prices[: len(self._sizes)])
            worth = knapsack.worth
            paid = {hole: float(solution.prices[row]) for hole, row in self._hole_row.items()}
            better = [
                hole
                for hole, price in {WHOLE_GPU: 1.0, **paid}.items()
                if worth[hole] > price + _TOLERANCE
            ]
            added = [self.add(hole, knapsack.filling(hole)) for hole in better]
            if not any(added):
                break
        return worth

    def used(self) -> dict[int, set[Filling]]:
        """Return the fillings in the last optimum by hole."""
        used: dict[int, set[Filling]] = {}
        for (hole, filling), amount in zip(self._columns, self._amounts.tolist(), strict=False):
            if amount > 0:
                used.setdefault(hole, set()).add(filling)
        return used


class Knapsack:
    """The most valuable filling of every hole of 0..1000 milli, sizes repeated at will."""

    def __init__(self, sizes: IntArray, prices: FloatArray) -> None:
        """``sizes`` ascending, in 1..1000; prices >= 0."""
        self._unit = math.gcd(WHOLE_GPU, *sizes.tolist())
        self._sizes = sizes
        steps = sizes // self._unit
        cells = WHOLE_GPU // self._unit
        best = np.zeros(cells + 1)
        self._last = np.full(cells + 1, -1)  # the size put in last; -1: as one unit less
        fitting = np.searchsorted(steps, np.arange(cells + 1), side="right")
        for cell in range(1, cells + 1):
            count = int(fitting[cell])
            best[cell] = best[cell - 1]
            if count:
                values = best[cell - steps[:count]] + prices[:count]
                choice = int(values.argmax())
                if values[choice] > best[cell]:
                    best[cell] = values[choice]
                    self._last[cell] = choice
        #: (1001,) the value of the best filling
        self.worth: FloatArray = np.repeat(best, self._unit)[: WHOLE_GPU + 1]

    def filling(self, hole: int) -> Filling:
        """Return the best filling of a hole, ascending."""
        cell, chosen = hole // self._unit, []
        while cell > 0:
            if self._last[cell] < 0:
                cell -= 1
            else:
                size = int(self._sizes[self._last[cell]])
                chosen.append(size)
                cell -= size // self._unit
        return tuple(sorted(chosen))
