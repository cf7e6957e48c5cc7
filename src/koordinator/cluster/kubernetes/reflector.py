"""Reflector of one kind: list, then watch, until it is stopped.

Only the fields that a resumed watch needs are decoded.  A broken stream is resumed at its last
resource version; if the API server answers that it is too old, the kind is listed again.
Source: k8s.io/client-go tools/cache/reflector.go.
"""

import asyncio
import logging
from contextlib import aclosing
from dataclasses import replace

import msgspec

from koordinator.cluster.kubernetes.background import Backoff
from koordinator.cluster.kubernetes.failures import (
    ForbiddenError,
    ServerStatus,
    UnreachableError,
)
from koordinator.cluster.kubernetes.mailbox import Follower, Lines, Mailbox, WatchRefusal
from koordinator.cluster.kubernetes.pages import ListPage, ListQuery, Pager, list_versions
from koordinator.cluster.kubernetes.resources import AbsentKinds, with_query
from koordinator.cluster.kubernetes.transport import Request, Transport
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import (
    ClusterError,
    GoneError,
    InvalidError,
    NotFoundError,
)
from koordinator.foundation.lazy_dataclass import dataclass

_FIRST_DELAY_S, _LAST_DELAY_S = 0.8, 30.0
_ABSENT_S = 30.0  # between looks for a kind that is not installed
_LEAST_S, _MOST_S = 300, 600  # how long the server shall keep a stream open
_REOPENED_AFTER_S = 2.0  # of a stream, when a refresh has compared versions
_SHORT_S = 1.0  # a stream that ended sooner and brought nothing counts as a failure
#: Failures in a row at one place after which the server may not know that place.  A server that
#: can't be reached rejects no place.
_STALE_AFTER = 3
_EMPTY = b'{"items":[]}'
_BOOKMARK, _ERROR = b'{"type":"BOOKMARK"', b'{"type":"ERROR"'

log = logging.getLogger(__name__)


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Versioned(msgspec.Struct):
    object: _Object


class _Error(msgspec.Struct):
    object: ServerStatus


@dataclass(slots=True)
class _Place:
    """Resource version of the last event or list; empty before the first list."""

    version: str = ""


class Reflector(Follower):
    """List and watch of one kind.

    After ``silence_s`` without an event the watch is opened again: the server sends a bookmark
    every minute, but none while the cluster is idle, so that silence is no failure.
    """

    def __init__(
        self,
        transport: Transport,
        selection: ListQuery,
        mailbox: Mailbox,
        *,
        page_size: int,
        silence_s: float,
        absent: AbsentKinds,
        comparisons: asyncio.Semaphore,
    ) -> None:
        super().__init__(mailbox)
        self._transport = transport
        self._selection = selection
        self._page_size = page_size
        self._silence_s = silence_s
        self._absent = absent
        self._comparisons = comparisons
        self._comparing: asyncio.Task[None] | None = None
        self._place = _Place()
        self._streaming: _Place | None = None  # of the open stream
        self._backoff = Backoff(_FIRST_DELAY_S, _LAST_DELAY_S, transport.chance)
        self._absent_since_refresh: int | None = (
            None  # None: the kind is installed, or this is unknown
        )
        self._was_listed = False
        self._failures = 0  # in a row
        self._refusals = 0  # of these, those in which the server was reached

    def refresh(self) -> None:
        """As in the base; an open stream is not interrupted, only versions are listed."""
        self._refresh += 1
        if self._streaming is not self._place:
            self.relist()
            return
        if self._comparing is not None:
            self._comparing.cancel()
        self._comparing = asyncio.create_task(self._list_versions())
        self._comparing.add_done_callback(self._report_fault)

    def relist(self) -> None:
        """As in the base, on a new connection."""
        self.stop()
        self._place = _Place()
        self.start()

    def stop(self) -> None:
        """As in the base."""
        super().stop()
        if self._comparing is not None and self._comparing is not asyncio.current_task():
            self._comparing.cancel()

    async def _list_versions(self) -> None:
        """Hand over the versions of all objects; then open the stream again.

        No event may have been missing though the connection broke without a word.
        """
        place = self._place
        try:
            async with self._comparisons:
                versions = await list_versions(self._transport, self._selection, self._refresh)
        except ClusterError:
            self.relist()
            return
        await self._mailbox.put(versions)
        await asyncio.sleep(_REOPENED_AFTER_S * (1 + self._transport.chance.random()))
        if self._streaming is place is self._place and self._task is not None:
            # It continues at the place that the old task leaves at its end.
            self._task.add_done_callback(self._start_again)
            self._task.cancel()

    def _start_again(self, ended: asyncio.Task[None]) -> None:
        if self._task is ended:  # neither stopped nor listing meanwhile
            self.start()

    async def _run(self) -> None:
        place = self._place
        while True:
            try:
                if not place.version:
                    place.version = await self._list()
                await self._read_stream(place)
                continue
            except NotFoundError:
                place.version = ""
                await self._publish_empty_list()
                delay_s = _ABSENT_S
            except GoneError:
                place.version = ""
                delay_s = self._backoff.next_s() if self._failures else 0.0
                self._failures += 1
            except ClusterError as error:
                if self._is_refused(error):
                    await self._mailbox.put(WatchRefusal(error))
                    return
                delay_s = self._after_failure(error)
                if self._refusals >= _STALE_AFTER:
                    place.version = ""
            await self._transport.pause(delay_s)

    async def _list(self) -> str:
        """Hand over the pages of a list and return its version."""
        pager = Pager(self._transport, self._selection, self._page_size)
        page = None
        while page is None or page.next_page:
            page = await pager.next(page)
            await self._mailbox.put(replace(page, refresh=self._refresh))
        self._was_listed = True
        self._absent_since_refresh = None
        return page.resource_version

    async def _read_stream(self, place: _Place) -> None:
        """Deliver events until the stream ends; ``place`` has the last version afterwards."""
        loop = asyncio.get_running_loop()
        opened_s, last, rest = loop.time(), b"", b""
        request = self._stream_request(place)
        try:
            async with aclosing(self._transport.stream(request, self._silence_s)) as chunks:
                async for chunk in chunks:
                    if not chunk:
                        self._streaming = place
                        if self._failures:
                            log.info(
                                "watch resumed", extra={"kind": self._selection.kind_type.KIND}
                            )
                        continue
                    *lines, rest = (rest + chunk).split(b"\n")
                    error = lines.pop() if lines and lines[-1].startswith(_ERROR) else b""
                    if lines:
                        await self._deliver(lines)
                        last = lines[-1]  # a cancelled task has not delivered them
                    if error:
                        raise self._error_in(error)
        finally:
            if self._streaming is place:
                self._streaming = None
            if last:
                place.version = _version_of(last)
        if not last and loop.time() - opened_s < _SHORT_S:
            raise ClusterError("the stream ended at once")
        self._failures = self._refusals = 0
        self._backoff.reset()

    def _stream_request(self, place: _Place) -> Request:
        selection = self._selection
        path = with_query(
            selection.path,
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=place.version,
            timeoutSeconds=int(self._transport.chance.integers(_LEAST_S, _MOST_S)),
            labelSelector=selection.labels,
            fieldSelector=selection.fields,
        )
        return Request("GET", path)

    async def _deliver(self, lines: list[bytes]) -> None:
        self._failures = self._refusals = 0
        self._backoff.reset()
        changes = [line for line in lines if not line.startswith(_BOOKMARK)]
        if changes:
            await self._mailbox.put(Lines(changes))

    def _error_in(self, line: bytes) -> ClusterError:
        status = decode_json(line, _Error).object
        request = Request("WATCH", self._selection.path)
        return self._transport.error(request, status.code or 500, status)

    def _is_refused(self, error: ClusterError) -> bool:
        """Return whether the API server rejects the field selector."""
        is_invalid = isinstance(error, InvalidError) and not isinstance(error, ForbiddenError)
        return is_invalid and bool(self._selection.fields) and not self._was_listed

    async def _publish_empty_list(self) -> None:
        """Hand over an empty list, once."""
        if self._absent_since_refresh is None:
            self._absent.add(self._selection.kind_type)
        if self._absent_since_refresh != self._refresh:
            self._absent_since_refresh = self._refresh
            await self._mailbox.put(ListPage(_EMPTY, is_first=True, refresh=self._refresh))

    def _after_failure(self, error: ClusterError) -> float:
        self._failures += 1
        if not isinstance(error, UnreachableError) or error.sent:
            self._refusals += 1
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        extra = {"kind": self._selection.kind_type.KIND, "error": str(error)}
        log.log(level, "watch interrupted: trying again", extra=extra)
        return self._backoff.next_s()


def _version_of(line: bytes) -> str:
    """Return the version at which the watch can resume; empty requires a new list."""
    try:
        return decode_json(line, _Versioned).object.metadata.resource_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
