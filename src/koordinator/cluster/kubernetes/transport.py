"""HTTP transport to the API server.

Runs on the event loop of one cluster instance.  If a reused connection turns out to be closed,
aiohttp retries GET, PUT and DELETE once.

Source: k8s.io/client-go rest/request.go, rest/with_retry.go (which answers are worth a retry).
"""

import asyncio
import logging
import math
import os
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
import msgspec
import numpy as np
from yarl import URL

from koordinator.api.kube_version import KubeVersion
from koordinator.cluster.kubernetes.background import Backoff, TokenBucket
from koordinator.cluster.kubernetes.credentials import Access, Credentials
from koordinator.cluster.kubernetes.failures import (
    FencedError,
    ServerStatus,
    UnreachableError,
    error_of,
    read_status,
)
from koordinator.cluster.kubernetes.proxies import proxy_for
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ClusterError, InputError, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass

#: TCP and TLS together.
CONNECT_S = 3.0
_FIRST_DELAY_S, _LAST_DELAY_S = 0.1, 5.0
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}  # seconds, seconds, probes
_UNACKNOWLEDGED_S = 30.0
_PROBE_S = 0.5  # between requests to a server that can't be reached, with up to 50 % jitter
_LOOK_S = 0.1  # whether this process may still write, while a write is under way
#: Of the time that a write may be late: for the kernel to deliver it, and for the server to bind
#: a pod.  Of other writes the server may take all of it: connections are reset before.
_DELIVERY_SHARE = BINDING_SHARE = 0.45
_WORTH_A_RETRY = (500, 502, 503, 504)  # for requests that change nothing
_STREAM_BUFFER = 1 << 19  # bytes
_RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)  # struct linger: on, for no time
_NOT_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ClientProxyConnectionError,
    aiohttp.ConnectionTimeoutError,
)
_HOPELESS = (aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL)
_CLOSED = "Connection closed."  # message of aiohttp's StreamReader

log = logging.getLogger(__name__)


ObserveRequest = Callable[[str, str, str, float], None]  # verb, status or <error>, host, seconds


@dataclass(frozen=True, slots=True)
class Request:
    """One call of the API; ``path`` is encoded and has the query with it."""

    verb: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"
    accept: str = "application/json"

    def __str__(self) -> str:
        return f"{self.verb} {self.path.partition('?')[0]}"

    @property
    def changes_nothing(self) -> bool:
        return self.verb == "GET"


class _Version(msgspec.Struct):
    git_version: str = msgspec.field(name="gitVersion")


_READYZ = Request("GET", "/readyz")


@dataclass(frozen=True, slots=True)
class Reply:
    """Response of the server with any status.

    ``retry_after_s`` is set if the server rejected the request before it did any work.
    """

    code: int
    body: bytes
    retry_after_s: float | None = None

    @property
    def succeeded(self) -> bool:
        return self.code < HTTPStatus.MULTIPLE_CHOICES


@dataclass(frozen=True, slots=True, eq=False)
class _Sessions:
    """Sessions over the same connections; without a limit of lateness they are one."""

    connector: aiohttp.TCPConnector
    reading: aiohttp.ClientSession
    writing: aiohttp.ClientSession

    async def close(self) -> None:
        """Close all connections, without waiting for the server to agree; may be repeated."""
        await self.connector.close(abort_ssl=True)
        await asyncio.gather(self.reading.close(), self.writing.close())


class Transport:
    """Sends requests.  ``timeout_s`` is for a call with all its retries.

    With ``lateness_s`` no write is done later than so many seconds after ``may_write`` was last
    true: the kernel gives up a connection on which nothing is acknowledged for a part of it
    (TCP_USER_TIMEOUT; by default it would try for minutes), the server what it has not done within
    a time; and as soon as ``may_write`` is false, connections are reset, so that what is in
    the kernel's buffers is not sent any more.  So the time holds for a process that is stopped, as
    well; but not where the whole machine stands still between two packets.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        limiter: TokenBucket,
        may_write: Callable[[], bool],
        lateness_s: float | None = None,
        timeout_s: float,
        observe: ObserveRequest | None,
        user_agent: str,
        chance: np.random.Generator,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Must be called on the loop."""
        server = credentials.connection.server
        self.timeout_s = timeout_s
        self.chance = chance
        self._credentials = credentials
        self._limiter = limiter
        self._may_write = may_write
        self._observe = observe
        self._url = server.url
        self._is_away = False
        self._returned = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None
        self._host = urlsplit(server.url).netloc
        self._options: dict[str, Any] = {
            "proxy": server.proxy_url or proxy_for(server.url, environ),
            "server_hostname": server.tls_server_name or None,
            "allow_redirects": False,
        }
        self._headers = [
            ("User-Agent", user_agent),
            # Lists would be compressed: that costs both sides more time than a cluster's network.
            ("Accept-Encoding", "identity"),
        ]
        self._lateness_s = lateness_s
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._writes = 0  # under way
        self._watching: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Task[None]] = set()  # of connections that are being reset
        self._replaced: list[_Sessions] = []  # until they are closed
        self._tracing = aiohttp.TraceConfig()
        self._tracing.on_connection_create_end.append(self._reset_if_lease_lost)
        self._tracing.on_connection_reuseconn.append(self._reset_if_lease_lost)
        self._open_sessions()

    def server_time(self, usual_s: float, share: float = 1.0) -> str:
        """Return how long the server may work on a write, as it takes it in a query.

        ``share`` is of the time that a write may be late.
        """
        if self._lateness_s is None:
            return f"{math.ceil(usual_s)}s"
        return f"{math.floor(min(usual_s, self._lateness_s * share) * 1000)}ms"

    async def close(self) -> None:
        """Close all connections, without waiting for the server to agree."""
        for task in (self._watching, self._probing):
            if task is not None:
                task.cancel()
        # Tasks that are closing connections may have been cancelled.
        for each in (*self._replaced, self._sessions):
            await each.close()

    def _open_sessions(self) -> None:
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=60.0, socket_factory=self._new_socket
        )
        reading = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        writing = reading
        if self._lateness_s is not None:
            writing = aiohttp.ClientSession(
                connector=connector,
                connector_owner=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[self._tracing],
            )
        self._sessions = _Sessions(connector, reading, writing)

    def _new_socket(self, address: tuple[Any, ...]) -> socket.socket:
        timeout_s = _UNACKNOWLEDGED_S
        if self._lateness_s is not None:
            timeout_s = min(timeout_s, self._lateness_s * _DELIVERY_SHARE)
        made = _socket_with_keepalive(address, math.floor(timeout_s * 1000))
        self._sockets.add(made)
        return made

    async def _reset_if_lease_lost(self, *_: object) -> None:
        """Reset all connections if this process has lost its lease; called before each write."""
        if not self._may_write():
            self._reset()

    async def _watch_permission(self) -> None:
        while self._writes:
            await asyncio.sleep(_LOOK_S)
            if not self._may_write():
                self._reset()
                return

    def _reset(self) -> None:
        """Reset all connections; unsent data of the kernel is dropped."""
        for made in self._sockets:
            with suppress(OSError):  # closed already
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_WHEN_CLOSED)
        replaced = self._sessions
        self._replaced.append(replaced)
        self._sockets = WeakSet()
        self._open_sessions()

        async def end() -> None:
            await replaced.close()
            self._replaced.remove(replaced)

        ending = asyncio.get_running_loop().create_task(end())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def call(
        self, request: Request, *, patience_s: float | None = None, rate_limited: bool = True
    ) -> bytes:
        """Return the body of a successful answer, after ``patience_s`` seconds at most.

        Tries again what was certainly not done, and what changes nothing; raises what the last
        answer means.  Not ``rate_limited`` is not held back by the rate limit.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + (self.timeout_s if patience_s is None else patience_s)
        backoff = Backoff(_FIRST_DELAY_S, _LAST_DELAY_S, self.chance)
        while True:  # no variable holds an error, whose traceback refers to this frame
            try:
                reply = await self.attempt(
                    request, deadline_s - loop.time(), rate_limited=rate_limited
                )
            except UnreachableError as unreachable:
                is_safe = request.changes_nothing or not unreachable.sent
                delay_s = backoff.next_s() if is_safe and not unreachable.hopeless else math.inf
                if loop.time() + delay_s >= deadline_s:
                    raise
            else:
                if reply.succeeded:
                    return reply.body
                status = read_status(reply.body)
                delay_s = _delay(request, reply, status, backoff)
                if loop.time() + delay_s >= deadline_s:
                    raise self.error(request, reply.code, status)
            await self.pause(delay_s)

    async def pause(self, delay_s: float) -> None:
        """Wait before another attempt; end the wait early when a lost server can be reached again.

        While the server can't be reached, one request at a time probes it for all that wait.
        """
        if not self._is_away:
            await asyncio.sleep(delay_s)
            return
        if self._probing is None or self._probing.done():
            self._probing = asyncio.get_running_loop().create_task(self._probe())
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):  # wait_for of Python 3.11 may lose a cancellation
                await self._returned.wait()

    async def _probe(self) -> None:
        """Request /readyz until the server is ready, or rejects the request itself."""
        while self._is_away:
            await asyncio.sleep(_PROBE_S * (1 + self.chance.random() / 2))
            with suppress(ClusterError):
                reply = await self._send(_READYZ, await self._access(), CONNECT_S)
                if reply.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                    self._note_outage(None)

    async def server_version(self, patience_s: float | None = None) -> KubeVersion:
        """Return the minor release of the API server; wait ``patience_s`` at most.

        Raises NotFoundError for an answer without a version, which is final, ClusterError if there
        is no answer.
        """
        body = await self.call(Request("GET", "/version"), patience_s=patience_s)
        try:
            return KubeVersion.parse(decode_json(body, _Version).git_version)
        except (InputError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NotFoundError(
                f"GET /version: no version of Kubernetes in the answer: {error}"
            ) from None

    async def attempt(
        self, request: Request, timeout_s: float, *, rate_limited: bool = True
    ) -> Reply:
        """Send a request once, or twice if the first credentials were refused.

        Raises UnreachableError without an answer, FencedError if a write is not allowed any more.
        """
        if rate_limited:
            await self._limiter.take()
        access = await self._access()
        reply = await self._send(request, access, timeout_s)
        if reply.code == HTTPStatus.UNAUTHORIZED:
            newer = await asyncio.to_thread(self._credentials.renewed, access)
            if newer is not access:
                reply = await self._send(request, newer, timeout_s)
        return reply

    async def stream(self, request: Request, silence_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of the response as they arrive, after an empty one at its start.

        It ends when nothing came for ``silence_s`` seconds: an idle cluster and a connection that
        broke without a word look alike, and who opens the stream again finds out.  Raises as
        ``call``.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        access = await self._access()
        has_begun = False
        try:
            async with self._open(request, access, timeout, _STREAM_BUFFER) as response:
                if response.status != HTTPStatus.OK:
                    if response.status == HTTPStatus.UNAUTHORIZED:
                        await asyncio.to_thread(self._credentials.renewed, access)
                    with _closed_connections():
                        status = read_status(await response.read())
                    raise self.error(request, response.status, status)
                connection = response.connection
                has_begun = True
                try:
                    yield b""
                    with _closed_connections():
                        while chunk := await response.content.readany():
                            yield chunk
                finally:
                    # If the server isn't done: no TLS shutdown, whose answer would not be awaited.
                    if connection is not None and connection.transport is not None:
                        connection.transport.abort()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if has_begun and isinstance(error, aiohttp.SocketTimeoutError):
                log.debug("stream silent: ended", extra={"request": str(request)})
                return
            raise self._unreachable(request, error) from error

    def error(self, request: Request, code: int, status: ServerStatus) -> ClusterError:
        """Return the error of an unsuccessful response."""
        return error_of(code, status, str(request), self._credentials.connection.source)

    async def _access(self) -> Access:
        access = self._credentials.current()
        return await asyncio.to_thread(self._credentials.renewed) if access is None else access

    async def _send(self, request: Request, access: Access, timeout_s: float) -> Reply:
        if not request.changes_nothing and not self._may_write():
            raise FencedError(f"not sent: this process is no longer the leader ({request})")
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        code = "<error>"
        timeout = aiohttp.ClientTimeout(total=max(timeout_s, 0.001), sock_connect=CONNECT_S)
        is_fenced = not request.changes_nothing and self._lateness_s is not None
        self._writes += is_fenced
        if is_fenced and (self._watching is None or self._watching.done()):
            self._watching = loop.create_task(self._watch_permission())
        try:
            async with self._open(request, access, timeout) as response:
                with _closed_connections():
                    body = await response.read()
                code = str(response.status)
                if request is not _READYZ:  # a server that starts answers it with a failure
                    self._note_outage(None)
                return Reply(response.status, body, _seconds(response.headers.get("Retry-After")))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(request, error) from error
        finally:
            self._writes -= is_fenced
            if self._observe is not None:
                self._observe(request.verb, code, self._host, loop.time() - started_s)

    def _unreachable(self, request: Request, error: Exception) -> UnreachableError:
        """Record the outage; return the error for the request.

        ``error`` and its causes lose their tracebacks: variables of aiohttp in these refer to the
        error, and an outage would fill memory up to the next run of the garbage collector.
        """
        cause: BaseException | None = error
        while cause is not None:
            cause.__traceback__ = None
            cause = cause.__cause__ or cause.__context__
        unreachable = UnreachableError(
            f"no answer from the API server ({request}): {in_words(error)}",
            sent=not isinstance(error, _NOT_SENT),
            hopeless=isinstance(error, _HOPELESS),
        )
        self._note_outage(unreachable)
        return unreachable

    def _note_outage(self, error: UnreachableError | None) -> None:
        """Log once that the server can't be reached, and once that it can again."""
        if error is not None and not error.sent and not self._is_away:
            self._is_away = True
            self._returned.clear()
            extra = {"server": self._url, "error": str(error)}
            log.warning("API server cannot be reached: trying again", extra=extra)
        elif error is None and self._is_away:
            self._is_away = False
            self._returned.set()
            log.info("API server answers again", extra={"server": self._url})

    def _open(
        self,
        request: Request,
        access: Access,
        timeout: aiohttp.ClientTimeout,
        buffer: int = 1 << 16,
    ) -> Any:
        headers = [*self._headers, ("Accept", request.accept), *access.headers]
        if request.body:
            headers.append(("Content-Type", request.content_type))
        sessions = self._sessions
        session = sessions.reading if request.changes_nothing else sessions.writing
        return session.request(
            request.verb,
            URL(self._url + request.path, encoded=True),
            data=request.body or None,
            headers=headers,
            ssl=access.tls or True,
            timeout=timeout,
            read_bufsize=buffer,
            **self._options,
        )


def _delay(request: Request, reply: Reply, status: ServerStatus, backoff: Backoff) -> float:
    """Return after how many seconds to ask again, inf if the answer is final."""
    busy = reply.code == HTTPStatus.TOO_MANY_REQUESTS or reply.code in _WORTH_A_RETRY
    # Of an eviction, 429 is the answer: waiting is for who knows what else to evict.
    final = any(cause.reason == "DisruptionBudget" for cause in status.causes)
    if busy and reply.retry_after_s is not None and not final:
        return reply.retry_after_s
    if request.changes_nothing and reply.code in _WORTH_A_RETRY:
        return backoff.next_s()
    return math.inf


@contextmanager
def _closed_connections() -> Iterator[None]:
    """Raise ServerDisconnectedError where aiohttp raises RuntimeError for a closed connection.

    The reader of a response does so if this side closed the connection, as when leadership ends.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != _CLOSED:
            raise
        raise aiohttp.ServerDisconnectedError(_CLOSED) from error


def in_words(error: Exception) -> str:
    """Return what went wrong without the objects that aiohttp prints along with it."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error) or type(error).__name__
    address, cause = f"{error.host}:{error.port}", error.os_error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error  # type: ignore[assignment] # any exception
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"{address}: its certificate cannot be verified: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        reason: str = getattr(cause, "reason", None) or str(cause)
        return f"{address}: no TLS: {reason.lower().replace('_', ' ')}"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return f"{address}: {os.strerror(cause.errno)}"
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return f"{address}: {text}"


def _seconds(header: str | None) -> float | None:
    """Return the value of Retry-After; kube-apiserver never sends it as a date."""
    return float(header) if header and header.isdecimal() else None


def _socket_with_keepalive(address: tuple[Any, ...], unacknowledged_ms: int) -> socket.socket:
    """Return a socket that detects a lost peer.

    It fails when sent data is not acknowledged in ``unacknowledged_ms``, or after a minute of
    failed keepalive probes.
    """
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not on every system
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unacknowledged_ms)
    return made
