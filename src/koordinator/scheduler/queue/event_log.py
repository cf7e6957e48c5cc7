"""Events that came while pods were in flight: one may have helped a pod that is then rejected.

Source: kubernetes pkg/scheduler/backend/queue/active_queue.go ``inFlightEvents``; the bound is
ours.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable

from koordinator.foundation.errors import BugError
from koordinator.scheduler.contract import ClusterEvent

CAPACITY = 1 << 14

#: An event, and the key of the only pod it is about (None: anyone)
LogEntry = tuple[ClusterEvent, str | None]


class EventLog:
    """The log of all attempts.  A reader keeps its position; unreadable entries are dropped."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._entries: list[LogEntry] = []
        self._start = 0  # position of _entries[0]
        self._capacity = capacity
        self._readers: OrderedDict[int, int] = OrderedDict()  # position -> how many, ascending

    def __len__(self) -> int:
        return len(self._entries)

    def counts(self) -> Counter[str]:
        """Return how many events are kept, by what metrics call them."""
        return Counter(event.label for event, _ in list(self._entries))

    def open(self, readers: int = 1) -> int:
        """Return the position from which that many new readers will ask."""
        position = self._start + len(self._entries)
        self._readers[position] = self._readers.get(position, 0) + readers
        return position

    def close(self, position: int, readers: int = 1) -> None:
        """Remove readers of a position."""
        self._readers[position] -= readers
        if self._readers[position] == 0:
            del self._readers[position]
            first = next(iter(self._readers), self._start + len(self._entries))
            self._drop_before(first)

    def append(self, event: ClusterEvent, target: str | None = None) -> None:
        """Record, if anyone is reading.  A full log loses its older half."""
        if not self._readers:
            return
        if len(self._entries) == self._capacity:
            self._drop_before(self._start + self._capacity // 2)
        self._entries.append((event, target))

    def since(self, position: int) -> list[LogEntry] | None:
        """Return what came after; None when part of it was lost."""
        if position < self._start:
            return None
        return self._entries[position - self._start :]

    def validate(self, positions: Iterable[int]) -> None:
        """Raise BugError unless these are the readers and nothing is kept that none needs."""
        readers = Counter(positions)
        if readers != self._readers:
            raise BugError(f"event log has readers {dict(self._readers)}. Counted {dict(readers)}.")
        if self._entries and self._start < min(readers, default=self._start + 1):
            raise BugError(f"event log keeps {len(self._entries)} events that no pod can need.")

    def _drop_before(self, position: int) -> None:
        if position > self._start:
            del self._entries[: position - self._start]
            self._start = position
