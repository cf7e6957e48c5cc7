"""The changes that open watches have yet to see.

Every write is one event and one resourceVersion, so versions are positions in the log.  A watch is
a cursor into it: a write costs the same with none and with many of them.  What every open watch has
returned is forgotten.
"""

from collections.abc import Callable, Mapping, Sequence
from weakref import WeakSet

from koordinator.api.meta import KubeObject
from koordinator.cluster.memory.fields import FieldRequirement
from koordinator.cluster.port import NO_TRANSFORMS, EventType, Transform, WatchEvent

_BOOKMARK = WatchEvent(EventType.BOOKMARK, KubeObject())
_TRIM = 1 << 6  # events that all have seen are dropped this many at a time

Selection = Mapping[type[KubeObject], Sequence[FieldRequirement]]


class WatchLog:
    """Ordered log of changes that an open watch may still read."""

    def __init__(self) -> None:
        self._events: list[WatchEvent] = []
        self._forgotten = 0  # the newest version that is no longer kept
        self._readers: WeakSet[MemoryWatch] = (
            WeakSet()
        )  # weak: a watch without references reads no more

    @property
    def version(self) -> int:
        """The resourceVersion of the last write; 0 before the first."""
        return self._forgotten + len(self._events)

    def append(self, event: WatchEvent) -> None:
        self._events.append(event)
        if len(self._events) >= _TRIM and not self._readers:
            self.trim()

    def after(self, version: int) -> Sequence[WatchEvent]:
        """Return the events after a version that the caller was registered for."""
        return self._events[version - self._forgotten :]

    def kind_after(self, version: int) -> type[KubeObject]:
        """Return the kind of the object that was written next."""
        return type(self._events[version - self._forgotten].object)

    def register(self, reader: "MemoryWatch") -> None:
        """Keep what comes from now on until this reader has seen it."""
        self._readers.add(reader)

    def leave(self, reader: "MemoryWatch") -> None:
        self._readers.discard(reader)
        self.trim()

    def trim(self) -> None:
        """Forget what all readers have seen, if there is much."""
        if len(self._events) < _TRIM:
            return
        for reader in self._readers:
            reader.pass_over()
        seen = min((reader.version for reader in self._readers), default=self.version)
        if seen - self._forgotten >= _TRIM:
            del self._events[: seen - self._forgotten]
            self._forgotten = seen


class MemoryWatch:
    """A cursor into the log that sees some kinds.  Implements ``port.Watch``.

    ``initial`` comes first.  ``refresh`` runs before every look at the log: it writes what is
    derived from other objects.
    """

    def __init__(
        self,
        log: WatchLog,
        selection: Selection,
        initial: Sequence[WatchEvent],
        refresh: Callable[[], None],
        transforms: Mapping[type[KubeObject], Transform] = NO_TRANSFORMS,
    ) -> None:
        self.version = log.version
        self._log = log
        self._selection = selection
        self._initial = list(initial)
        self._refresh, self._transforms = refresh, transforms
        self._bookmarks = 0
        self._open = True
        log.register(self)

    def poll(self) -> Sequence[WatchEvent]:
        if not self._open:
            return []
        self._refresh()
        fresh = self._log.after(self.version)
        events, self._initial = self._initial, []
        selection = self._selection
        if any(selection.values()):
            events.extend([kept for event in fresh if (kept := self._selected(event)) is not None])
        else:
            events.extend([event for event in fresh if type(event.object) in selection])
        self.version = self._log.version
        self._log.trim()
        if self._transforms:
            events = [self._transformed(event) for event in events]
        events += [_BOOKMARK] * self._bookmarks
        self._bookmarks = 0
        return events

    def pass_over(self) -> None:
        """Go past the next events as long as they are of no kind that is watched."""
        log = self._log
        while self.version < log.version and log.kind_after(self.version) not in self._selection:
            self.version += 1

    def refresh(self) -> None:
        self._bookmarks += 1  # the log itself is never behind

    def has_changes(self) -> bool:
        """Return whether ``poll`` would return something."""
        if not self._open:
            return False
        self._refresh()
        return bool(self._initial or self._bookmarks) or any(
            self._selected(event) is not None for event in self._log.after(self.version)
        )

    def close(self) -> None:
        if self._open:
            self._open = False
            self._initial = []
            self._log.leave(self)

    def _transformed(self, event: WatchEvent) -> WatchEvent:
        transform = self._transforms.get(type(event.object))
        if transform is None:
            return event
        before = event.previous
        return WatchEvent(
            event.type,
            transform(event.object),
            transform(before) if before is not None else None,
        )

    def _selected(self, event: WatchEvent) -> WatchEvent | None:
        """Return the change as one sees it who sees only objects that match."""
        requirements = self._selection.get(type(event.object))
        if requirements is None:
            return None
        if not requirements:
            return event
        before = event.previous if event.type is not EventType.DELETED else event.object
        matched = before is not None and all(r.holds(before) for r in requirements)
        matches = event.type is not EventType.DELETED and all(
            r.holds(event.object) for r in requirements
        )
        if matched and matches:
            return event
        if matches:
            return WatchEvent(EventType.ADDED, event.object)
        return WatchEvent(EventType.DELETED, event.object) if matched else None


def snapshot_events(objects: Sequence[KubeObject]) -> list[WatchEvent]:
    """Return an ADDED event per object and the bookmark that ends them."""
    return [
        *(WatchEvent(EventType.ADDED, obj) for obj in objects),
        _BOOKMARK,
    ]
