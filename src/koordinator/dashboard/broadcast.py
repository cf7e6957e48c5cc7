"""Frames to many readers, each at its own speed.

One thread publishes; readers live in the event loop of the server.  Readers who may see the same
share a channel: a frame is encoded once for all of them.  Who is too slow loses the frames that
wait, and gets the whole again; nobody waits for a reader.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from koordinator.dashboard.access import EVERYTHING, ViewScope
from koordinator.dashboard.frames import FrameEncoder, Published
from koordinator.dashboard.overview import ClusterOverview
from koordinator.dashboard.redaction import Redactor
from koordinator.dashboard.timeline import Timeline
from koordinator.scheduler.snapshot import ClusterState

WAITING_FRAMES = 8  # of a reader, before it is given the whole instead
MOST_SCOPES = 64  # of readers that are connected


class OverviewReader:
    """What one reader gets; belongs to the event loop."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self.needs_full = True

    async def next(self, timeout_s: float) -> bytes | None:
        """Return the next frame; None if none comes in time."""
        if not self._frames:
            self._ready.clear()
            # Not wait_for, which makes a task each time: with many readers that is what costs.
            alarm = asyncio.get_running_loop().call_later(timeout_s, self._ready.set)
            try:
                await self._ready.wait()
            finally:
                alarm.cancel()
        return self._frames.popleft() if self._frames else None

    def put(self, frame: bytes) -> None:
        """Let a frame wait for the reader."""
        self._frames.append(frame)
        self._ready.set()

    def put_full(self, frame: bytes) -> None:
        """Let the whole wait for the reader, in place of all that waits."""
        self._frames.clear()
        self.needs_full = False
        self.put(frame)

    @property
    def is_behind(self) -> bool:
        """Whether too much waits for it."""
        return len(self._frames) >= WAITING_FRAMES


class _Channel:
    """The readers of one scope in one event loop; belongs to that, but for ``encoder``."""

    def __init__(self, scope: ViewScope, heading: Mapping[str, Any], timeline: Timeline) -> None:
        self.loop = asyncio.get_running_loop()
        self.encoder = FrameEncoder(scope, heading)  # of the publishing thread
        self.readers: set[OverviewReader] = set()
        self._timeline = timeline
        self._published: Published | None = None
        self._full: tuple[int, bytes] = (0, b"")

    def deliver(self, published: Published, frame: bytes) -> None:
        self._published = published
        for reader in self.readers:
            if reader.needs_full or reader.is_behind:
                reader.needs_full = True
                self.greet(reader)
            else:
                reader.put(frame)

    def greet(self, reader: OverviewReader) -> None:
        """Give a reader everything, if there is anything yet."""
        published = self._published
        if published is None:
            return
        if self._full[0] != published.number:
            self._full = (published.number, self.encoder.full(published, self._timeline))
        reader.put_full(self._full[1])


class Broadcast:
    """Takes overviews from one thread, gives frames to readers in event loops."""

    def __init__(
        self,
        heading: Mapping[str, Any],
        timeline: Timeline,
        on_reader: Callable[[], None] = lambda: None,
    ) -> None:
        """``heading`` is what every reader is told at first; each is told to ``on_reader``."""
        self._heading, self._timeline, self._on_reader = heading, timeline, on_reader
        self._lock = threading.Lock()
        self._channels: dict[tuple[int, ViewScope], _Channel] = {}  # by event loop and scope

    @property
    def readers(self) -> int:
        """How many there are."""
        return sum(len(channel.readers) for channel in self._all())

    def open(self, scope: ViewScope = EVERYTHING) -> OverviewReader | None:
        """Return a new reader, in its event loop; None if there are too many different scopes."""
        key = (id(asyncio.get_running_loop()), scope)
        with self._lock:
            channel = self._channels.get(key)
            if channel is None:
                if len(self._channels) >= MOST_SCOPES:
                    return None
                channel = self._channels[key] = _Channel(scope, self._heading, self._timeline)
        reader = OverviewReader()
        channel.readers.add(reader)
        channel.greet(reader)
        self._on_reader()
        return reader

    def close(self, scope: ViewScope, reader: OverviewReader) -> None:
        """Forget a reader, in its event loop."""
        key = (id(asyncio.get_running_loop()), scope)
        with self._lock:
            channel = self._channels.get(key)
            if channel is not None:
                channel.readers.discard(reader)
                if not channel.readers:
                    del self._channels[key]

    def publish(
        self,
        overview: ClusterOverview,
        remedies: Mapping[str, str],
        state: ClusterState | None = None,
    ) -> None:
        """Send an overview, and what ``state`` names privately, to all readers; returns at once."""
        for channel in self._all():
            scope = channel.encoder.scope
            redactor = Redactor.of(state, scope) if state else Redactor(scope, frozenset())
            told = remedies if scope.is_everything else {}
            published, frame = channel.encoder.next(overview, told, redactor)
            with suppress(RuntimeError):  # the server has ended meanwhile
                channel.loop.call_soon_threadsafe(channel.deliver, published, frame)

    def _all(self) -> list[_Channel]:
        with self._lock:
            return list(self._channels.values())
