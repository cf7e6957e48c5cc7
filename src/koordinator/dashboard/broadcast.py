"""Frames to many readers, each at its own speed.

One thread publishes; readers live in the event loop of the server.  Readers who may see the same
share a channel: a frame is encoded once for all of them.  Who is too slow loses the frames that
wait, and gets the whole once it reads again; nobody waits for a reader.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from koordinator.dashboard.access import EVERYTHING, ViewScope
from koordinator.dashboard.frames import SCOPES_AT_ONCE, FrameEncoder, Published, SharedWork
from koordinator.dashboard.overview import ClusterOverview
from koordinator.dashboard.redaction import NOTHING_PRIVATE, PrivateNames

WAITING_FRAMES = 8  # of a reader, before it is given the whole instead
MOST_READERS = 192  # that are connected; there are 256 connections, and readers ask questions, too
MOST_READERS_OF_ONE = 32  # person, in as many tabs

Delivery = tuple["_Channel", Published, bytes]


class OverviewReader:
    """What one reader gets; belongs to the event loop."""

    def __init__(self, channel: "_Channel") -> None:
        self._channel = channel
        self._frames: deque[bytes] = deque()
        self._needs_full = True
        self._ready = asyncio.Event()
        self._is_gone = False

    async def next(self, timeout_s: float) -> bytes | None:
        """Return the next frame as an event; None if none comes in time, or nobody reads."""
        if (frame := self._take()) is None and not self._is_gone:
            self._ready.clear()
            # Not wait_for, which makes a task each time: with many readers that is what costs.
            alarm = asyncio.get_running_loop().call_later(timeout_s, self._ready.set)
            try:
                await self._ready.wait()
            finally:
                alarm.cancel()
            frame = self._take()
        return frame

    def put(self, frame: bytes) -> None:
        """Let a frame wait for the reader; too many make way for the whole, made once it reads."""
        if self._needs_full or len(self._frames) >= WAITING_FRAMES:
            self._needs_full = True
            self._frames.clear()
        else:
            self._frames.append(frame)
        self._ready.set()

    def leave(self) -> None:
        """Let whoever waits for a frame wait no more."""
        self._is_gone = True
        self._ready.set()

    @property
    def is_gone(self) -> bool:
        """Whether nobody reads any more."""
        return self._is_gone

    @property
    def waiting(self) -> Sequence[bytes]:
        """The frames that wait for it."""
        return tuple(self._frames)

    def _take(self) -> bytes | None:
        if self._needs_full:
            full = self._channel.full()
            self._needs_full = full is None
            return full
        return self._frames.popleft() if self._frames else None


class _Channel:
    """The readers of one scope in one event loop; belongs to that, but for ``encoder``."""

    def __init__(self, scope: ViewScope, heading: Mapping[str, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.encoder = FrameEncoder(scope, heading)  # of the publishing thread
        self.readers: set[OverviewReader] = set()
        self._published: Published | None = None
        self._full: tuple[int, bytes] = (0, b"")

    def deliver(self, published: Published, frame: bytes) -> None:
        self._published = published
        for reader in self.readers:
            reader.put(frame)

    def full(self) -> bytes | None:
        """Return everything as of the last frame; None if there was none yet."""
        published = self._published
        if published is None:
            return None
        if self._full[0] != published.number:
            self._full = (published.number, _event(self.encoder.full(published)))
        return self._full[1]


class Broadcast:
    """Takes overviews from one thread, gives frames to readers in event loops."""

    def __init__(
        self, heading: Mapping[str, Any], on_reader: Callable[[], None] = lambda: None
    ) -> None:
        """``heading`` is what every reader is told at first; each is told to ``on_reader``."""
        self._heading, self._on_reader = heading, on_reader
        self._lock = threading.Lock()
        self._channels: dict[tuple[int, ViewScope], _Channel] = {}  # by event loop and scope
        self._owners: dict[OverviewReader, Hashable] = {}
        self._of_one: Counter[Hashable] = Counter()
        self._turn = 0

    @property
    def readers(self) -> int:
        """How many there are."""
        return len(self._owners)

    def open(self, scope: ViewScope = EVERYTHING, owner: Hashable = None) -> OverviewReader | None:
        """Return a new reader, in its event loop; None if there are too many.

        ``owner`` is the person who reads, if that is known.
        """
        key = (id(asyncio.get_running_loop()), scope)
        with self._lock:
            is_one_too_many = owner is not None and self._of_one[owner] >= MOST_READERS_OF_ONE
            if len(self._owners) >= MOST_READERS or is_one_too_many:
                return None
            channel = self._channels.get(key)
            if channel is None:
                channel = self._channels[key] = _Channel(scope, self._heading)
            reader = OverviewReader(channel)
            channel.readers.add(reader)
            self._owners[reader] = owner
            self._of_one[owner] += 1
        self._on_reader()
        return reader

    def close(self, scope: ViewScope, reader: OverviewReader) -> None:
        """Forget a reader, in its event loop."""
        key = (id(asyncio.get_running_loop()), scope)
        reader.leave()
        with self._lock:
            channel = self._channels.get(key)
            if channel is None or reader not in channel.readers:
                return
            channel.readers.discard(reader)
            if not channel.readers:
                del self._channels[key]
            owner = self._owners.pop(reader)
            self._of_one[owner] -= 1
            if not self._of_one[owner]:
                del self._of_one[owner]

    def publish(
        self,
        overview: ClusterOverview,
        remedies: Mapping[str, str],
        names: PrivateNames = NOTHING_PRIVATE,
    ) -> None:
        """Send an overview to all readers, without the ``names`` that are not for them.

        Returns at once.
        """
        shared = SharedWork()
        deliveries: dict[asyncio.AbstractEventLoop, list[Delivery]] = {}
        with self._lock:
            channels = list(self._channels.values())
        first = self._turn % max(len(channels), 1)
        self._turn += SCOPES_AT_ONCE  # not the same ones come first, and have their pods looked for
        channels = channels[first:] + channels[:first]
        for channel in channels:
            told = remedies if channel.encoder.scope.is_everything else {}
            published, frame = channel.encoder.next(overview, told, names, shared)
            delivery = (channel, published, _event(frame))
            deliveries.setdefault(channel.loop, []).append(delivery)
        for loop, all_of_it in deliveries.items():
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(_deliver, all_of_it)


def _event(frame: bytes) -> bytes:
    return b"data: " + frame + b"\n\n"


def _deliver(deliveries: Sequence[Delivery]) -> None:
    for channel, published, event in deliveries:
        channel.deliver(published, event)
