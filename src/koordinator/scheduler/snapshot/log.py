"""The log of changed rows, by which cached results are updated row by row."""

import numpy as np

from koordinator.foundation.arrays import IntArray, extended

CAPACITY = 1 << 16
_AT_FIRST = 1 << 6


class ChangeLog:
    """A bounded log of rows.  A reader keeps a position and later asks what came after it."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._most = 2 * capacity
        self._rows = np.zeros(min(_AT_FIRST, self._most), np.int64)
        self._start = 0  # position of _rows[0]
        self._length = 0
        self.position = 0  # number of changes ever logged
        self._last = np.zeros(0, np.int64)  # by row: the position after its last change

    def append(self, row: int) -> None:
        if self._length == len(self._rows):
            self._make_room(1)
        self._rows[self._length] = row
        self._length += 1
        self.position += 1
        if row >= len(self._last):
            self._free_headroom(row)
        self._last[row] = self.position

    def extend(self, rows: IntArray) -> None:
        if not len(rows):
            return
        self._free_headroom(int(rows.max()))
        self.position += len(rows)
        self._last[rows] = self.position
        if len(rows) > self._most // 2:  # every reader has to start over
            self._start += self._length + len(rows)
            self._length = 0
            return
        if self._length + len(rows) > len(self._rows):
            self._make_room(len(rows))
        self._rows[self._length : self._length + len(rows)] = rows
        self._length += len(rows)

    def last(self, row: int) -> int:
        """Return the position from which on the row has not changed."""
        return int(self._last[row]) if row < len(self._last) else 0

    def since(self, position: int) -> IntArray | None:
        """Return the rows changed after ``position``, with repeats.

        None when the log no longer reaches so far.
        """
        if position < self._start:
            return None
        return self._rows[position - self._start : self._length]

    def _free_headroom(self, row: int) -> None:
        if row >= len(self._last):
            self._last = extended(self._last, max(row + 1, 2 * len(self._last)) - len(self._last))

    def _make_room(self, more: int) -> None:
        """Have room for more rows, at most half of all: grow, or forget the older half."""
        needed = self._length + more
        if needed > self._most:
            self._drop_older_half()
        elif needed > len(self._rows):
            size = min(max(needed, 2 * len(self._rows)), self._most)
            self._rows = extended(self._rows, size - len(self._rows))

    def _drop_older_half(self) -> None:
        half = self._most // 2
        keep = self._length - half if self._length > half else 0
        kept = self._rows[self._length - keep : self._length]
        self._rows = np.zeros(self._most, np.int64)  # readers may still hold a slice of the old one
        self._rows[:keep] = kept
        self._start += self._length - keep
        self._length = keep
