"""The history of changes and the watches that read it.

Every write is one event and one resourceVersion, so versions are positions in the log.  A watch is
a cursor into it: a write costs the same with none and with many of them.
"""

from collections.abc import Callable, Sequence

from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.foundation.errors import GoneError, InvalidError


class EventLog:
    """All changes in order.  The newest are kept: at least ``limit``, at most twice as many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: list[WatchEvent] = []
        self._forgotten = 0  # the newest version that is no longer kept

    @property
    def version(self) -> int:
        """The resourceVersion of the last write; 0 before the first."""
        return self._forgotten + len(self._events)

    def append(self, event: WatchEvent) -> None:
        self._events.append(event)
        if len(self._events) > 2 * self._limit:
            self._forgotten += len(self._events) - self._limit
            del self._events[: -self._limit]

    def after(self, version: int) -> Sequence[WatchEvent]:
        """Return the events after a version.  Raises GoneError if some are no longer kept."""
        if version < self._forgotten:
            raise GoneError(f"too old resource version: {version} ({self._forgotten}); list again")
        return self._events[version - self._forgotten :]


def parse_version(text: str, newest: int) -> int:
    """Return the number.  Raises InvalidError for one that no answer ever had."""
    if not text.isdecimal():
        raise InvalidError(f"resourceVersion: found {text!r}; accepted is one from a list or watch")
    if int(text) > newest:
        raise InvalidError(f"Too large resource version: {text}, current: {newest}")
    return int(text)


class MemoryWatch:
    """A cursor into the log that sees some kinds.  Implements ``port.Watch``.

    ``initial`` comes first.  ``refresh`` runs before every look at the log: it writes what is
    derived from other objects.
    """

    def __init__(
        self,
        log: EventLog,
        kind_types: Sequence[type[KubeObject]],
        since: int,
        initial: Sequence[WatchEvent],
        refresh: Callable[[], None],
    ) -> None:
        log.after(since)  # too old: say so now
        self._log = log
        self._kind_types = frozenset(kind_types)
        self._version = since
        self._initial = list(initial)
        self._refresh = refresh
        self._open = True

    @property
    def resource_version(self) -> str | None:
        return None if self._initial else str(self._version)

    def poll(self) -> list[WatchEvent]:
        if not self._open:
            return []
        self._refresh()
        fresh = self._log.after(self._version)
        events, self._initial = self._initial, []
        kind_types = self._kind_types
        events.extend([event for event in fresh if type(event.object) in kind_types])
        self._version = self._log.version
        return events

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002 -- the port's; nothing to wait for
        if not self._open:
            return False
        self._refresh()
        try:
            fresh = self._log.after(self._version)
        except GoneError:
            return True
        return bool(self._initial) or any(type(e.object) in self._kind_types for e in fresh)

    def close(self) -> None:
        self._open = False
        self._initial = []


def snapshot_events(objects: Sequence[KubeObject], version: int) -> list[WatchEvent]:
    """Return an ADDED event per object and the bookmark that ends them."""
    end = KubeObject(metadata=ObjectMeta(resource_version=str(version)))
    return [
        *(WatchEvent(EventType.ADDED, obj) for obj in objects),
        WatchEvent(EventType.BOOKMARK, end),
    ]
