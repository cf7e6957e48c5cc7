"""Bounded queue between the network thread and the thread of the caller.

When it is full, the network thread stops reading, which slows down the server.
"""

import asyncio
import threading
from collections import deque
from dataclasses import dataclass

from koordinator.cluster.kubernetes.pages import Page
from koordinator.foundation.errors import KoordinatorError


@dataclass(frozen=True, slots=True)
class Lines:
    """Events of a watch as the server sent them, one JSON text each."""

    texts: list[bytes]


@dataclass(frozen=True, slots=True)
class WatchRefusal:
    """The end: what was asked will never be answered."""

    error: KoordinatorError


Item = Page | Lines | WatchRefusal


class Mailbox:
    """Items in order, at most about ``limit_bytes`` of them.  ``wakeup`` is set when one comes."""

    def __init__(self, limit_bytes: int, wakeup: threading.Event) -> None:
        """Must be called on the loop of the network side."""
        self._loop = asyncio.get_running_loop()
        self._limit_bytes = limit_bytes
        self._wakeup = wakeup
        self._lock = threading.Lock()
        self._items: deque[Item] = deque()
        self._buffered_bytes = 0
        self._headroom = asyncio.Event()
        self._headroom.set()

    async def put(self, item: Item) -> None:
        """Wait for room, then add."""
        await self._headroom.wait()
        self.put_at_once(item)

    def put_at_once(self, item: Item) -> None:
        """Add, room or not."""
        with self._lock:
            self._items.append(item)
            self._buffered_bytes += _size(item)
            if self._buffered_bytes >= self._limit_bytes:
                self._headroom.clear()
        self._wakeup.set()

    def take(self) -> Item | None:
        """Remove and return the oldest item; None if there is none.  For the caller's thread."""
        with self._lock:
            if not self._items:
                return None
            item = self._items.popleft()
            was_full = self._buffered_bytes >= self._limit_bytes
            self._buffered_bytes -= _size(item)
            has_headroom = was_full and self._buffered_bytes < self._limit_bytes
        if has_headroom and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._headroom.set)
        return item

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self._items)


def _size(item: Item) -> int:
    match item:
        case Page(body=body):
            return len(body)
        case Lines(texts=texts):
            return sum(map(len, texts))
    return 0
