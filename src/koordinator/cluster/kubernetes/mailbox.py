"""Mailbox between the network thread and its reader, and the base of tasks that fill it.

When it is full, the network thread stops reading, which slows down the server.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque

from koordinator.cluster.kubernetes.pages import ListPage, VersionList
from koordinator.foundation.errors import BugError, KoordinatorError
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Lines:
    """Events of a watch as the server sent them, one JSON text each."""

    texts: list[bytes]


@dataclass(frozen=True, slots=True)
class WatchRefusal:
    """End of the items: the task has failed for good."""

    error: KoordinatorError


Item = ListPage | Lines | VersionList | WatchRefusal


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
        """Add an item even if the mailbox is full."""
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
        case ListPage(body=body):
            return len(body)
        case Lines(texts=texts):
            return sum(map(len, texts))
    return 0


class Follower(ABC):
    """Runs until stopped; must be started on a loop.

    ``_refresh`` counts the requests to catch up; each page carries the number of the latest.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._refresh = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._report_fault)

    def refresh(self) -> None:
        """Make up for events that are not delivered yet; the answer has this call's number."""
        self._refresh += 1
        self.relist()

    def relist(self) -> None:
        """List again at once."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Stop the task."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    @abstractmethod
    async def _run(self) -> None: ...

    def _report_fault(self, ended: "asyncio.Task[None]") -> None:
        """Raise an unexpected exception in the reader of the mailbox, which would wait forever."""
        if not ended.cancelled() and (error := ended.exception()) is not None:
            fault = BugError(f"{type(self).__name__} broke down: {error!r}")
            self._mailbox.put_at_once(WatchRefusal(fault))
