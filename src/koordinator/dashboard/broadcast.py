"""Delivery of frames to many readers, each at its own speed.

One thread publishes; readers belong to the event loop of the server.  Readers with the same scope
share a channel, so a frame is encoded once for all of them.  The queued frames of a slow reader are
dropped, and its next read returns a full frame; a slow reader never blocks the publisher.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from koordinator.dashboard.access import EVERYTHING, NOTHING_PRIVATE, PrivateNames, ViewScope
from koordinator.dashboard.frames import SCOPES_PER_FRAME, FrameEncoder, SentState, SharedWork
from koordinator.dashboard.overview import ClusterOverview

MAX_QUEUED_FRAMES = 8  # of a reader; beyond it a full frame replaces the queue
MAX_READERS = 192  # of the server's 256 connections; the rest is for the readers' queries
MAX_READERS_PER_USER = 32

Delivery = tuple["_Channel", SentState, bytes]


class OverviewReader:
    """Frame queue of one reader; belongs to the event loop."""

    def __init__(self, channel: "_Channel") -> None:
        self._channel = channel
        self._frames: deque[bytes] = deque()
        self._needs_full = True
        self._ready = asyncio.Event()
        self._is_closed = False

    async def next(self, timeout_s: float) -> bytes | None:
        """Return the next frame as an event; None after the timeout or after ``close``."""
        if (frame := self._take()) is None and not self._is_closed:
            self._ready.clear()
            # wait_for would make a task for each call, the main cost with many readers.
            alarm = asyncio.get_running_loop().call_later(timeout_s, self._ready.set)
            try:
                await self._ready.wait()
            finally:
                alarm.cancel()
            frame = self._take()
        return frame

    def put(self, frame: bytes) -> None:
        """Queue a frame; replace the queue by a full frame when it exceeds its bound."""
        if self._needs_full or len(self._frames) >= MAX_QUEUED_FRAMES:
            self._needs_full = True
            self._frames.clear()
        else:
            self._frames.append(frame)
        self._ready.set()

    def close(self) -> None:
        """Mark the reader as disconnected and wake a pending ``next``."""
        self._is_closed = True
        self._ready.set()

    @property
    def is_closed(self) -> bool:
        """Whether the reader has disconnected."""
        return self._is_closed

    @property
    def queued(self) -> Sequence[bytes]:
        """The frames that have not been read."""
        return tuple(self._frames)

    def _take(self) -> bytes | None:
        if self._needs_full:
            full = self._channel.full()
            self._needs_full = full is None
            return full
        return self._frames.popleft() if self._frames else None


class _Channel:
    """Readers of one scope in one event loop.

    The event loop owns all attributes except ``encoder``.
    """

    def __init__(self, scope: ViewScope, heading: Mapping[str, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        #: Owned by the publishing thread.
        self.encoder = FrameEncoder(scope, heading)
        self.readers: set[OverviewReader] = set()
        self._published: SentState | None = None
        self._full: tuple[int, bytes] = (0, b"")

    def deliver(self, published: SentState, frame: bytes) -> None:
        self._published = published
        for reader in self.readers:
            reader.put(frame)

    def full(self) -> bytes | None:
        """Return a full frame with the state of the last one; None before the first."""
        published = self._published
        if published is None:
            return None
        if self._full[0] != published.number:
            self._full = (published.number, _event(self.encoder.full(published)))
        return self._full[1]


class Broadcast:
    """Publisher of overviews from one thread to readers in event loops."""

    def __init__(
        self, heading: Mapping[str, Any], on_reader: Callable[[], None] = lambda: None
    ) -> None:
        """``heading`` goes into every full frame; ``on_reader`` is called for each new reader."""
        self._heading, self._on_reader = heading, on_reader
        self._lock = threading.Lock()
        self._channels: dict[tuple[int, ViewScope], _Channel] = {}  # by event loop and scope
        self._owners: dict[OverviewReader, Hashable] = {}
        self._readers_by_owner: Counter[Hashable] = Counter()
        self._first_channel = 0

    @property
    def readers(self) -> int:
        """The number of connected readers."""
        return len(self._owners)

    def open(self, scope: ViewScope = EVERYTHING, owner: Hashable = None) -> OverviewReader | None:
        """Return a new reader; None if there are too many.  Call it in the reader's event loop.

        ``owner`` is the user who reads, if known.
        """
        key = (id(asyncio.get_running_loop()), scope)
        with self._lock:
            is_limited = owner is not None and self._readers_by_owner[owner] >= MAX_READERS_PER_USER
            if len(self._owners) >= MAX_READERS or is_limited:
                return None
            channel = self._channels.get(key)
            if channel is None:
                channel = self._channels[key] = _Channel(scope, self._heading)
            reader = OverviewReader(channel)
            channel.readers.add(reader)
            self._owners[reader] = owner
            self._readers_by_owner[owner] += 1
        self._on_reader()
        return reader

    def close(self, scope: ViewScope, reader: OverviewReader) -> None:
        """Remove a reader.  Call it in the reader's event loop."""
        key = (id(asyncio.get_running_loop()), scope)
        reader.close()
        with self._lock:
            channel = self._channels.get(key)
            if channel is None or reader not in channel.readers:
                return
            channel.readers.discard(reader)
            if not channel.readers:
                del self._channels[key]
            owner = self._owners.pop(reader)
            self._readers_by_owner[owner] -= 1
            if not self._readers_by_owner[owner]:
                del self._readers_by_owner[owner]

    def publish(
        self,
        overview: ClusterOverview,
        remedies: Mapping[str, str],
        names: PrivateNames = NOTHING_PRIVATE,
    ) -> None:
        """Send an overview to all readers, with the ``names`` outside their scope redacted.

        Does not wait for readers.
        """
        shared = SharedWork()
        deliveries: dict[asyncio.AbstractEventLoop, list[Delivery]] = {}
        with self._lock:
            channels = list(self._channels.values())
        # Only the first SCOPES_PER_FRAME scopes have their pods updated, so the start rotates.
        first = self._first_channel % max(len(channels), 1)
        self._first_channel += SCOPES_PER_FRAME
        channels = channels[first:] + channels[:first]
        for channel in channels:
            visible = remedies if channel.encoder.scope.is_everything else {}
            published, frame = channel.encoder.next(overview, visible, names, shared)
            delivery = (channel, published, _event(frame))
            deliveries.setdefault(channel.loop, []).append(delivery)
        for loop, batch in deliveries.items():
            with suppress(RuntimeError):  # the event loop has closed meanwhile
                loop.call_soon_threadsafe(_deliver, batch)


def _event(frame: bytes) -> bytes:
    return b"data: " + frame + b"\n\n"


def _deliver(deliveries: Sequence[Delivery]) -> None:
    for channel, published, event in deliveries:
        channel.deliver(published, event)
