"""Upper bounds of the pods of a class that fit, while the cluster changes.

The requests of pods bound how many of them fit a node, independent of all other filters.  A *line*
holds this bound of each row for one class, with the current pods or without all less important
ones.  It starts from the known result of every row; changed rows are updated from requests alone.
The bound of several classes is that of a pod with the smallest request of each resource among them.
"""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from koordinator.domain.network import OUTSIDE
from koordinator.foundation.arrays import BoolArray, IntArray, extended
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.snapshot import ClusterState

#: Above this number of changed rows, amounts of less important pods are counted on use.
MOST_ROWS = 1024
MOST_CELLS = 1 << 20  # lines x columns x rows that are counted at once
UNBOUNDED = 1 << 40
PER_ROW = 1 << 24  # where nothing that is requested limits the number
KEEP_BYTES = 1 << 26  # that lines may take; then all are forgotten
KEEP_LINES = 1 << 12  # for lines
_VOID = object()  # the versions of a line that has to be counted again

#: A kind of pods, and the priority below which pods are left out; None: all are there.
Line = tuple[Hashable, int | None]
CountArray = npt.NDArray[np.int32]


class HeadroomTable:
    """The lines of all kinds that were asked about."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._clear()

    def _clear(self) -> None:
        self._generation = self._state.classes.generation
        self._position = (0, 0)
        self._numbers: dict[Line, int] = {}
        self._versions: list[Hashable] = []
        self._worlds: list[int | None] = [None]  # each with a priority below which pods don't count
        self._taken: dict[int, IntArray] = {}  # by that priority: (n_columns, n_rows)
        self._world_of = np.zeros(0, np.int64)  # (n_lines,), places in the list
        self._amounts = np.zeros((0, 0), np.int64)  # (n_lines, n_columns); 0: not limited
        self._columns = np.zeros(0, np.int64)  # those that limit any line
        self._fits: CountArray = np.zeros((0, 0), np.int32)  # (capacity, n_rows)
        self._totals = np.zeros(0, np.int64)  # (n_lines,)

    def number(self, line: Line, versions: Hashable) -> int | None:
        """Return which line it is, up to date; None if it is not known as of these versions."""
        self._advance()
        number = self._numbers.get(line)
        return None if number is None or self._versions[number] != versions else number

    def total(self, number: int) -> int:
        """Return how many pods fit on all rows."""
        return int(self._totals[number])

    def by_row(self, number: int) -> CountArray:
        """Return how many pods fit on each row.  Don't write to it."""
        counts: CountArray = self._fits[number]
        return counts

    def put(self, line: Line, versions: Hashable, amounts: IntArray, fits: IntArray) -> int:
        """Keep what is known of a kind now, ``(n_rows,)``; return which line it is."""
        self._advance()
        number = self._numbers.get(line)
        if number is None:
            if self._fits.nbytes > KEEP_BYTES or len(self._numbers) >= KEEP_LINES:
                self._clear()
                self._advance()
            number = self._add(line, amounts)
        self._versions[number] = versions
        self._fits[number] = fits
        self._totals[number] = fits.sum()
        return number

    def estimate(
        self, line: Line, versions: Hashable, amounts: IntArray, accepted: BoolArray
    ) -> int:
        """Keep what requests say of a kind on the rows that accept one such pod."""
        self._advance()
        columns, below = np.flatnonzero(amounts), line[1]
        free = self._free(np.arange(len(accepted)), columns)
        if below is not None:
            free += self._taken_below(below)[columns]
        most = (np.maximum(free, 0) // amounts[columns][:, None]).min(axis=0, initial=PER_ROW)
        return self.put(line, versions, amounts, np.where(accepted, most, 0))

    def _add(self, line: Line, amounts: IntArray) -> int:
        number = self._numbers[line] = len(self._numbers)
        self._versions.append(None)
        if line[1] not in self._worlds:
            self._worlds.append(line[1])
        self._world_of = np.append(self._world_of, self._worlds.index(line[1]))
        known = _widened(self._amounts, number, len(amounts))
        self._amounts = np.vstack([known, amounts])
        self._columns = np.flatnonzero(self._amounts.any(axis=0))
        if number == len(self._fits):
            self._fits = extended(self._fits, max(number, 8))
        self._totals = np.append(self._totals, 0)
        return number

    # -- what changes ------------------------------------------------------------------------

    def _advance(self) -> None:
        """Bring every line up to date."""
        if self._state.classes.generation != self._generation:
            self._clear()  # lines of kinds without pods would stay
        state = self._state
        position = (state.usage_log.position, state.node_log.position)
        if position == self._position:
            return
        logs = (state.usage_log, state.node_log)
        since = [log.since(was) for log, was in zip(logs, self._position, strict=True)]
        changed = [rows for rows in since if rows is not None]
        if len(changed) < len(logs):
            self._clear()
        self._fits = _widened(self._fits, len(self._fits), len(state.nodes))
        self._position = position
        if not self._numbers:
            self._taken.clear()
            return
        rows = np.array(sorted({row for rows in changed for row in rows.tolist()}), np.int64)
        if len(rows) > MOST_ROWS:
            # Lines about worlds without some pods are rebuilt on demand, if they are used again.
            self._taken.clear()
            for line, number in self._numbers.items():
                if line[1] is not None:
                    self._versions[number] = _VOID
        at_once = max(1, MOST_CELLS // (len(self._numbers) * max(len(self._columns), 1)))
        for start in range(0, len(rows), at_once):
            self._follow(rows[start : start + at_once])

    def _follow(self, rows: IntArray) -> None:
        """Recount these rows."""
        lines, columns = len(self._numbers), self._columns
        free = self._free(rows, columns)
        worlds = np.repeat(free[None], len(self._worlds), axis=0)  # (n_worlds, n_columns, n_rows)
        for world, below in enumerate(self._worlds):
            if below is not None and below in self._taken:
                taken = self._taken_below(below)
                taken[:, rows] = self._count_taken(rows, below)
                worlds[world] += taken[columns][:, rows]
        np.maximum(worlds, 0, out=worlds)
        amounts = self._amounts[:, columns, None]
        most = worlds[self._world_of] // np.maximum(amounts, 1) + (amounts == 0) * PER_ROW
        fits = most.min(axis=1, initial=PER_ROW) * self._state.nodes.alive[rows]
        self._totals += fits.sum(axis=1) - self._fits[:lines, rows].sum(axis=1)
        self._fits[:lines, rows] = fits

    def _free(self, rows: IntArray, columns: IntArray) -> IntArray:
        nodes = self._state.nodes
        at = np.ix_(columns, rows)
        return np.asarray(nodes.allocatable[at] - nodes.requested[at])

    def _taken_below(self, below: int) -> IntArray:
        """Return ``(n_columns, n_rows)``: amounts of pods of lower priority; kept from then on."""
        count, known = len(self._state.nodes), self._taken.get(below)
        if known is None:
            known = self._count_taken(np.arange(count), below)
        self._taken[below] = _widened(known, len(self._state.axis), count)
        return self._taken[below]

    def _count_taken(self, rows: IntArray, below: int) -> IntArray:
        pods = self._state.pods
        taken = np.zeros((len(self._state.axis), len(rows)), np.int64)
        for index in np.flatnonzero(pods.lowest_priority[rows] < below).tolist():
            sums: dict[int, int] = {}
            for placed in pods.on_row[rows[index]].values():
                if placed.priority < below:
                    for column, amount in placed.pod_class.demand:
                        sums[column] = sums.get(column, 0) + amount
            taken[list(sums), index] = list(sums.values())
        return taken


def _widened(amounts: npt.NDArray[Any], lines: int, rows: int) -> npt.NDArray[Any]:
    """Return the table with more lines and rows if there are, 0 in them."""
    missing = (lines - amounts.shape[0], rows - amounts.shape[1])
    return np.pad(amounts, [(0, more) for more in missing]) if any(missing) else amounts


@dataclass(frozen=True, slots=True)
class HeadroomBound:
    """The room for pods of some kinds together, at most, as of now."""

    table: HeadroomTable
    kinds: Hashable
    versions: Hashable  # of the plugins; known results are void when they differ
    amounts: Callable[[], IntArray]  # (n_columns,) what each such pod requests at least
    accepted: Callable[
        [int | None], BoolArray
    ]  # (n_rows,) with the pods that are there, or without

    def most(self, below: int | None = None, of_row: IntArray | None = None) -> int:
        """Return how many fit, in a world without pods below a priority if there is one.

        With the number of each row's domain, ``(n_rows,)``, it is about the best domain.
        """
        if of_row is None:
            return self.table.total(self._line(below))
        return int(self.in_domains(below, of_row).max(initial=0))

    def in_domains(self, below: int | None, of_row: IntArray) -> IntArray:
        """Return how many fit in each domain, ``(n_domains,)``; ``below`` as of ``most``."""
        fits, inside = self.table.by_row(self._line(below)), of_row != OUTSIDE
        counts: IntArray = np.bincount(of_row[inside], fits[inside]).astype(np.int64)
        return counts

    def _line(self, below: int | None) -> int:
        line = (self.kinds, below)
        number = self.table.number(line, self.versions)
        if number is not None:
            return number
        return self.table.estimate(line, self.versions, self.amounts(), self.accepted(below))

    def note(self, fits: IntArray) -> None:
        """Note how many of the one kind each row takes, ``(n_rows,)``, as things are."""
        self.table.put((self.kinds, None), self.versions, self.amounts(), fits)
