"""Connections of a server, with bounds on number, duration and size for each client.

A connection has one request under way: what a client sends beyond it is neither parsed nor read
until that one is answered (``BoundedConnection.data_received``).

``Listener`` accepts them and counts from the first packet on, handshakes included.  Each is a
``BoundedConnection``: uvicorn's HTTP protocol with bounds on what a client may send and how long it
may take.  Where a resource runs short, a connection of the address with the most is closed: a flood
from one address does not close connections of the API server or of a kubelet.
"""

import asyncio
import logging
import re
import socket
import ssl
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from enum import IntEnum
from http import HTTPStatus
from typing import Any

import httptools
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

_ACCEPT_AGAIN_S = 1.0  # after running out of file descriptors
_WARN_AGAIN_S = 60.0
#: Among the ``extensions`` of an ASGI scope: names in the client's verified certificate.
CLIENT_NAMES = "koordinator.client_names"
#: Among the ``extensions`` of an ASGI scope: an object with a ``ConnectionState`` as ``state``.
CONNECTION = "koordinator.connection"
_TLS_SHUTDOWN_TIMEOUT_S = 5.0  # for a client to agree to the end of TLS
#: A request ends with an empty line, unless its Content-Length gives its end.
_EMPTY_LINE = re.compile(rb"\n\r?\n")
_LINE_END = re.compile(rb"\n")
_NOTHING = memoryview(b"")
_CONTENT_LENGTH = b"content-length"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of the connections of one client, and of all together."""

    connections: int = 64  # asyncio keeps 256 KiB for each that speaks TLS
    #: For the handshake and the head of a request, as nothing of it is worth anything before.
    head_s: float = 10.0
    #: For the rest: a slow body, the answer, and a client that reads it slowly.  An admission
    #: review is given 30 s at most.
    request_s: float = 60.0
    #: Between two requests.  Go clients keep connections for 90 s and Prometheus for 300 s; the
    #: server must not be the first to close, since a POST that crosses the end is not sent again.
    idle_s: float = 330.0
    head_bytes: int = 32 << 10  # request line and headers, and the bytes between two bodies
    url_bytes: int = 8 << 10
    headers: int = 100
    #: Bodies that are being received or judged, and requests sent ahead of an answer, of all
    #: connections together.
    bodies_bytes: int = 32 << 20
    #: After ``stop``: how long who is connected may still begin a request that was on its way.
    linger_s: float = 0.5


class Phase(IntEnum):
    """Phase of a connection; the lower, the less is lost when it is closed."""

    IDLE = 0
    HEAD = 1  # or the handshake before it
    BODY = 2
    ANSWER = 3


@dataclass(slots=True)
class ConnectionState:
    """State of the connection of a request, for applications."""

    is_lost: bool = False


class _PausableFlow(FlowControl):
    """Flow control in which an application can't resume reading while requests are held back."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.holds_requests = False

    def resume_reading(self) -> None:
        if not self.holds_requests:
            super().resume_reading()


class BoundedConnection(HttpToolsProtocol):
    """One connection, from being accepted to its end.

    What exceeds the limits is answered with 400, 414 or 431 and closed, what takes too long is cut.
    """

    flow: _PausableFlow

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        listener: "Listener",
        accepted: socket.socket,
        peer: str,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(config, state, app_state={}, _loop=loop)
        self.peer = peer
        self.phase = Phase.HEAD
        self._body_bytes = 0  # of the request in progress
        self.since_s = loop.time()  # of the phase
        self.deadline_s = self.since_s + listener.limits.head_s
        self._socket = accepted
        self._listener = listener
        self._limits = listener.limits
        self._stray_bytes = 0  # since the parser last made something whole of what came
        self._progressed = False
        self._header_count = 0
        self._refusal = HTTPStatus.BAD_REQUEST
        self._stops = False
        self._client_names: frozenset[str] = frozenset()
        self._ahead = _NOTHING  # requests that were sent ahead of an answer, not parsed yet
        self._body_left = 0  # bytes of the body to come, if the request has a Content-Length
        self._running = 0  # calls of the application that have not returned
        self._state = ConnectionState()

    # -- events of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _PausableFlow(transport)
        self._client_names = names_of_client(transport)
        if not self._listener.admits(transport):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._state.is_lost = True
        self._hold(_NOTHING)
        if self._running:
            self.phase = Phase.ANSWER
        else:
            self._listener.forget(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came, but no request before the one ahead of it is answered."""
        if self._ahead or self._awaits_answer:
            self._hold(memoryview(bytes(self._ahead) + data))
        else:
            self._parse(memoryview(data))

    def _parse(self, data: memoryview) -> None:
        self._unset_keepalive_if_required()
        while data and self.parser is not None and not self.transport.is_closing():
            if self._awaits_answer:
                self._hold(data)
                return
            piece = data[: self._piece_length(data)]
            data = data[len(piece) :]
            self._progressed = False
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                self.cycle.keep_alive = False  # nothing else is spoken here
                return
            except httptools.HttpParserError:
                self._refuse(self._refusal)
                return
            self._stray_bytes = 0 if self._progressed else self._stray_bytes + len(piece)
            if self._stray_bytes >= self._limits.head_bytes:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _piece_length(self, data: memoryview) -> int:
        """Return how much can be parsed at once without a second request being begun."""
        headroom = self._limits.head_bytes - self._stray_bytes
        if self._body_left:
            return min(headroom, self._body_left)
        # An empty line may have begun in the last piece.
        end = (_LINE_END if data[0] in b"\r\n" else _EMPTY_LINE).search(data, 0, headroom)
        return end.end() if end else headroom

    def _hold(self, data: memoryview) -> None:
        """Keep data for later, and read no more meanwhile."""
        more = len(data) - len(self._ahead)
        self._ahead = data
        self._listener.count_bytes(more)
        self.flow.holds_requests = bool(data)
        if data:
            self.flow.pause_reading()

    def _parse_ahead(self) -> None:
        """Parse requests that were sent ahead, now that there is an answer."""
        if self._awaits_answer or not self._ahead:
            return
        data = self._ahead
        self._hold(_NOTHING)
        self._parse(data)
        if not self._ahead and not self.transport.is_closing():
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Call the application; the connection counts until that is over, open or not."""
        task = self.loop.create_task(cycle.run_asgi(app))
        self._running += 1
        self.tasks.add(task)
        task.add_done_callback(self._on_call_over)

    def _on_call_over(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._running -= 1
        if self._state.is_lost and not self._running:
            self._listener.forget(self)

    def shutdown(self) -> None:
        """Answer what has begun or is on its way, telling the client to go elsewhere, and close."""
        self._stops = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        self.loop.call_later(self._limits.linger_s, self._close_if_idle)

    # -- events of the parser; one that raises ends the connection

    def on_message_begin(self) -> None:
        if self._awaits_answer:
            raise BugError("a request was begun before the one ahead of it is answered")
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: {"state": self._state}}
        if self._client_names:
            self.scope["extensions"][CLIENT_NAMES] = {"names": self._client_names}
        self._header_count = self._body_left = 0
        self._refusal = HTTPStatus.BAD_REQUEST
        if self.phase is Phase.IDLE:
            self._enter(Phase.HEAD, self._limits.head_s)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._limits.url_bytes:
            self._refusal = HTTPStatus.REQUEST_URI_TOO_LONG
            raise ValueError(self._refusal.phrase)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > self._limits.headers:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise ValueError(self._refusal.phrase)
        if self.phase is Phase.HEAD and name.lower() == _CONTENT_LENGTH:
            self._body_left = int(value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._progressed = True
        if self.phase is Phase.HEAD:
            self._enter(Phase.BODY, self._limits.request_s)
        super().on_headers_complete()
        if self._stops:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        self._body_left = max(self._body_left - len(body), 0)
        if not self.cycle.response_complete:
            self._body_bytes += len(body)
            self._listener.count_bytes(len(body))
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._progressed = True
        self._body_left = 0
        super().on_message_complete()
        if self.phase is Phase.BODY:
            self.phase = Phase.ANSWER
            if self.cycle.response_complete:
                self._enter(Phase.IDLE)

    def on_response_complete(self) -> None:
        received, self._body_bytes = self._body_bytes, 0
        self._listener.count_bytes(-received)
        if self.phase is Phase.ANSWER:
            self._enter(Phase.IDLE)
        super().on_response_complete()
        if self._ahead:
            self.loop.call_soon(self._parse_ahead)

    # -- for the listener

    @property
    def is_overdue(self) -> bool:
        """Whether the client has had its time; idle ones are uvicorn's to close."""
        if self._state.is_lost or (self.phase is Phase.IDLE and not self._has_unsent):
            return False
        return self.loop.time() >= self.deadline_s

    def cut(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.transport.abort()
        else:  # the handshake that is under way fails, and closes what it has opened
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def buffered_bytes(self) -> int:
        """Size of the body of the current request, and of bytes sent before its response."""
        return self._body_bytes + len(self._ahead)

    @property
    def is_receiving(self) -> bool:
        """Whether the client is still sending the buffered request, so that no response is lost."""
        return bool(self._ahead) or (self.phase is Phase.BODY and self._body_bytes > 0)

    def release(self) -> None:
        """Stop counting the buffered bytes."""
        count = self.buffered_bytes
        self._body_bytes, self._ahead = 0, _NOTHING
        self._listener.count_bytes(-count)

    @property
    def _awaits_answer(self) -> bool:
        return self.phase is Phase.ANSWER

    @property
    def _has_unsent(self) -> bool:
        return self.transport.is_closing() or self.transport.get_write_buffer_size() > 0

    def _enter(self, phase: Phase, limit_s: float | None = None) -> None:
        self.phase = phase
        self.since_s = self.loop.time()
        if limit_s is not None:
            self.deadline_s = self.since_s + limit_s

    def _refuse(self, status: HTTPStatus) -> None:
        log.debug("request refused", extra={"peer": self.peer, "status": int(status)})
        if self.cycle is None or self.cycle.response_complete:  # not into another answer
            body = f"{status.phrase}\n".encode()
            head = b"content-type: text/plain\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head % len(body) + body)
        self.transport.close()

    def _close_if_idle(self) -> None:
        if self.phase in {Phase.IDLE, Phase.HEAD} and not self.transport.is_closing():
            self.transport.close()


def names_of_client(transport: asyncio.BaseTransport) -> frozenset[str]:
    """Return the client's names in its verified certificate; none without one."""
    shown = transport.get_extra_info("peercert") or {}
    return frozenset(
        value for part in shown.get("subject", ()) for key, value in part if key == "commonName"
    )


class Listener:
    """Accepts the connections of one listening socket, in the thread of its event loop.

    With ``client_names``, the certificate of a client must have one of these common names.
    """

    def __init__(
        self,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
        limits: ConnectionLimits,
        client_names: Collection[str] = (),
    ) -> None:
        self.limits = limits
        self._listening = listening
        self._tls = tls
        self._client_names = frozenset(client_names)
        self._all: set[BoundedConnection] = set()
        self._buffered_bytes = 0
        self._server: tuple[uvicorn.Config, ServerState] | None = None  # while open
        self._openings: set[asyncio.Task[None]] = set()
        self._quiet_until_s = 0.0

    def open(self, config: uvicorn.Config, state: ServerState) -> None:
        """Begin to accept."""
        self._listening.setblocking(False)
        self._server = (config, state)
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more connections; open ones stay, except handshakes."""
        self._server = None
        asyncio.get_running_loop().remove_reader(self._listening)
        for connection in tuple(self._all):
            if connection.transport is None:
                connection.cut()

    async def wait_closed(self) -> None:
        """Return at once, as there is nothing to wait for."""

    def cut_overdue(self) -> None:
        """End connections whose client has had its time; to be called several times a second."""
        for connection in tuple(self._all):
            if connection.transport is not None and connection.is_overdue:
                log.debug("connection cut: it took too long", extra={"peer": connection.peer})
                connection.cut()

    def cut_all(self) -> None:
        """End every connection."""
        for connection in tuple(self._all):
            connection.cut()

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Return whether the certificate of the client has an accepted name."""
        if not self._client_names:
            return True
        names = names_of_client(transport)
        if names & self._client_names:
            return True
        extra = {"found": sorted(names), "accepted": sorted(self._client_names)}
        self._warn("client refused: its certificate has another name", extra)
        return False

    def forget(self, connection: BoundedConnection) -> None:
        """Count a connection no longer."""
        if connection in self._all:
            self._all.remove(connection)
            connection.release()

    def count_bytes(self, count: int) -> None:
        """Count bytes that are held; while they are too many, end the largest receiver's."""
        self._buffered_bytes += count
        while self._buffered_bytes > self.limits.bodies_bytes:
            by_peer = Counter[str]()
            for connection in self._all:
                by_peer[connection.peer] += connection.buffered_bytes
            receiving = [each for each in self._all if each.is_receiving]
            if not receiving:
                return
            largest = max(receiving, key=lambda each: (by_peer[each.peer], each.buffered_bytes))
            self._warn("connection cut: requests take too much memory", {"peer": largest.peer})
            largest.release()
            largest.cut()

    def _accept(self) -> None:
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # such as too many open files
            self._warn("connection not accepted", {"error": str(error)})
            loop.remove_reader(self._listening)
            loop.call_later(_ACCEPT_AGAIN_S, self._accept_again)
            return
        accepted.setblocking(False)
        try:
            peer = str(accepted.getpeername()[0])
        except OSError:  # closed already
            accepted.close()
            return
        if len(self._all) >= self.limits.connections and not self._free_headroom(peer):
            accepted.close()
            return
        connection = BoundedConnection(*self._server, self, accepted, peer)
        self._all.add(connection)
        opening = loop.create_task(self._open(connection, accepted))
        self._openings.add(opening)
        opening.add_done_callback(self._openings.discard)

    def _accept_again(self) -> None:
        if self._server is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    async def _open(self, connection: BoundedConnection, accepted: socket.socket) -> None:
        timeouts: dict[str, Any] = {}
        if self._tls is not None:
            timeouts["ssl_handshake_timeout"] = self.limits.head_s
            timeouts["ssl_shutdown_timeout"] = _TLS_SHUTDOWN_TIMEOUT_S
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, **timeouts
            )
        except OSError as error:
            log.debug("no handshake", extra={"peer": connection.peer, "error": str(error)})
            self.forget(connection)

    def _free_headroom(self, peer: str) -> bool:
        """Close a connection of the address with the most, to admit one of ``peer``.

        Return False if no other address has as many connections as ``peer``.
        """
        count = Counter(each.peer for each in self._all)
        disposable = [
            each
            for each in self._all
            if each.phase is not Phase.ANSWER and count[each.peer] >= count[peer]
        ]
        if not disposable:
            return False
        least = max(disposable, key=lambda each: (count[each.peer], -each.phase, -each.since_s))
        self._warn("connection cut: there are too many", {"peer": least.peer})
        self.forget(least)
        least.cut()
        return True

    def _warn(self, message: str, extra: dict[str, Any]) -> None:
        """Log a warning at most once a minute, so that a flood does not fill the log."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + _WARN_AGAIN_S
            log.warning(message, extra=extra)
