"""Objects of the cluster by kind, and the log of their changes.

Claims, volumes, classes, services, budgets …  Kept as they come, by kind and key.  ``version``
grows with each change of a kind, so a plugin's derived facts can say which state of the world they
were derived from.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from koordinator.api.meta import KubeObject
from koordinator.foundation.arrays import IntArray, extended
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.lazy_dataclass import dataclass

Kind = TypeVar("Kind", bound=KubeObject)

CAPACITY = 1 << 16
_AT_FIRST = 1 << 6


@dataclass(frozen=True, slots=True, eq=False)
class ObjectChange:
    """A change of an object that is assumed now and written later.

    ``amend`` is applied to whatever version of the object there is then.
    """

    kind: type[KubeObject]
    key: str
    #: returns the object as it shall be; raises ClusterError where that can't be any more
    amend: Callable[[Any], KubeObject]
    #: the object to create if there is none yet; ``amend`` is applied to it
    created: KubeObject | None = None
    deletes: bool = False  # the amended object is deleted then
    #: the version to show in place of a stored object that contradicts the assumed change
    beside: Callable[[Any], KubeObject] | None = None
    undo: "ObjectChange | None" = None  # what becomes of an object that was created for nothing


class ObjectTable:
    """The latest version of every object of the kinds that the scheduler watches."""

    def __init__(self, note: Callable[[KubeObject], None] = lambda _: None) -> None:
        """``note`` is called for every object that is put or dropped."""
        self._note = note
        self._by_kind: dict[type[KubeObject], dict[str, KubeObject]] = defaultdict(dict)
        #: by kind: grows with each change of an object of the kind; read only
        self.versions: dict[type[KubeObject], int] = defaultdict(int)
        self._changes: dict[tuple[type[KubeObject], str], list[ObjectChange]] = {}
        #: of objects with changes: as the cluster has them; None: not at all
        self._stored: dict[tuple[type[KubeObject], str], KubeObject | None] = {}

    def put(self, item: KubeObject) -> None:
        """Store a version of an object; assumed changes of it still apply."""
        key = type(item), item.key
        if key in self._changes:
            self._stored[key] = item
            item = self._amended(item)
        self._show(item)

    def _show(self, item: KubeObject) -> None:
        self._by_kind[type(item)][item.key] = item
        self.versions[type(item)] += 1
        self._note(item)

    def drop(self, item: KubeObject) -> None:
        """Forget an object."""
        key = type(item), item.key
        if key in self._changes:
            self._stored[key] = None
            created = self._created(key)
            if created is not None:
                self._show(created)
                return
        self._by_kind[type(item)].pop(item.key, None)
        self.versions[type(item)] += 1
        self._note(item)

    def assume(self, change: ObjectChange) -> None:
        """Show an object as it will be, until the change is withdrawn."""
        key = change.kind, change.key
        known = self.get(change.kind, change.key)
        self._stored.setdefault(key, known)
        self._changes.setdefault(key, []).append(change)
        shown = self._amended(known) if known is not None else self._created(key)
        if shown is not None:
            self._show(shown)

    def _created(self, key: tuple[type[KubeObject], str]) -> KubeObject | None:
        """Return an object that is not stored, as it will be once it has been created."""
        first = next((one.created for one in self._changes[key] if one.created is not None), None)
        return self._amended(first) if first is not None else None

    def withdraw(self, change: ObjectChange) -> None:
        """Assume a change no more; does nothing if it is not assumed."""
        key = change.kind, change.key
        left = [one for one in self._changes.get(key, ()) if one is not change]
        if len(left) == len(self._changes.get(key, ())):
            return
        stored = self._stored[key]
        if left:
            self._changes[key] = left
        else:
            del self._changes[key], self._stored[key]
        shown = self.get(change.kind, change.key)
        if stored is not None:
            self._show(self._amended(stored))
        elif shown is not None:  # it was created here alone
            self.drop(shown)

    def _amended(self, item: KubeObject) -> KubeObject:
        """Return a stored object with its assumed changes, except those that no longer apply."""
        for change in self._changes.get((type(item), item.key), ()):
            try:
                item = change.amend(item)
            except ClusterError:
                item = change.beside(item) if change.beside is not None else item
        return item

    def stored(self, kind: type[Kind], key: str) -> Kind | None:
        """Return an object as the cluster has it, so far as is known here."""
        if (kind, key) in self._stored:
            return self._stored[kind, key]  # type: ignore[return-value]  # (keyed by its type)
        return self.get(kind, key)

    def get(self, kind: type[Kind], key: str) -> Kind | None:
        """Return the object with that ``namespace/name`` (or name, if cluster-scoped)."""
        return self._by_kind[kind].get(key)  # type: ignore[return-value]  # (keyed by its type)

    def all(self, kind: type[Kind]) -> Iterator[Kind]:
        """Iterate over all objects of a kind, in the order in which they became known."""
        return iter(self._by_kind[kind].values())  # type: ignore[arg-type]  # (keyed by its type)

    @property
    def total_version(self) -> int:
        """Grows with every change of any object."""
        return sum(self.versions.values())

    def version(self, *kinds: type[KubeObject]) -> int:
        """Return a number that grows whenever an object of one of these kinds changes."""
        if len(kinds) == 1:
            return self.versions[kinds[0]]
        return sum(self.versions[kind] for kind in kinds)


class ChangeLog:
    """Bounded log of rows.  A reader keeps a position and later reads the rows after it."""

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
