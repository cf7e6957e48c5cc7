"""Limits of size and time per client, so that no client exhausts a server."""

import asyncio
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from http.client import HTTPConnection
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.examples import examples
from tests.unit.process.clients import PATIENCE_S, ask

from koordinator.foundation.clock import SystemClock
from koordinator.process.certificates import self_signed_context
from koordinator.process.connections import ConnectionLimits
from koordinator.process.http_server import LIMITS, HttpServer

BOUNDED = ConnectionLimits(connections=8, head_bytes=4096, url_bytes=512, headers=16)
STRICT = replace(BOUNDED, head_s=0.2, request_s=0.4)
PATIENT = ConnectionLimits(connections=8, head_bytes=4096, bodies_bytes=200_000)
GET = b"GET /x HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: x\r\n"
OTHER = "127.0.0.2"  # another address of this machine
LARGE = 32 << 20
ANSWERED = 400

Start = Callable[..., HttpServer]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the path and the length of the body."""
    body = await Request(scope, receive).body()
    text = "x" * LARGE if scope["path"] == "/large" else f"{scope['path']} {len(body)}"
    await PlainTextResponse(text)(scope, receive, send)


@pytest.fixture
def start() -> Iterator[Start]:
    """Start servers that are stopped afterwards."""
    started: list[HttpServer] = []

    def start_one(limits: ConnectionLimits, tls: ssl.SSLContext | None = None) -> HttpServer:
        server = HttpServer(echo, "127.0.0.1", 0, tls, limits=limits)
        server.start()
        started.append(server)
        return server

    yield start_one
    for server in started:
        server.stop()


def connected(server: HttpServer, source: str = "127.0.0.1") -> socket.socket:
    """Return a connection from an address of this machine."""
    there = ("127.0.0.1", server.port)
    return socket.create_connection(there, PATIENCE_S, source_address=(source, 0))


def answer_to(server: HttpServer, *parts: bytes) -> bytes:
    """Send parts, each for itself, and return all that comes until the server closes."""
    with connected(server) as client:
        with suppress(OSError):  # it may be cut while sending
            for part in parts:
                client.sendall(part)
        return all_of(client)


def all_of(client: socket.socket) -> bytes:
    """Return what comes until the server closes."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while chunk := client.recv(1 << 20):
            received += chunk
    return bytes(received)


@contextmanager
def many(server: HttpServer, count: int) -> Iterator[list[socket.socket]]:
    """Open connections from another address."""
    with ExitStack() as opened:
        yield [opened.enter_context(connected(server, OTHER)) for _ in range(count)]


def is_cut(client: socket.socket) -> bool:
    """Wait for the server to close a connection on which it has sent nothing."""
    client.settimeout(PATIENCE_S)
    try:
        return not client.recv(1)
    except ConnectionResetError:
        return True


def sent_until_cut(client: socket.socket, chunk: bytes, most: int = 64 << 20) -> int:
    """Send a chunk again and again; return how many bytes went out before the server closed."""
    client.settimeout(PATIENCE_S)
    sent = 0
    with suppress(OSError):
        while sent < most:
            sent += client.send(chunk)
    return sent


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (GET + b"X: " + b"a" * 5000, b"431 "),
        (GET + b"X: y\r\n" * 20 + b"\r\n", b"431 "),
        (b"GET /" + b"a" * 1000 + b" HTTP/1.1\r\n\r\n", b"414 "),
        (b"GET /" + b"a" * 100_000, b"414 "),
        (b"\r\n" * 5000, b"431 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400 "),
    ],
    ids=["long header", "many headers", "long path", "endless path", "empty lines", "TLS"],
)
def test_a_head_has_bounds(start: Start, head: bytes, status: bytes) -> None:
    """A larger head is refused with a status, and the connection is closed."""
    answer = answer_to(start(BOUNDED), head)

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    "begin",
    [
        GET + b"X: ",
        POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: ",
        POST + b"Transfer-Encoding: chunked\r\n\r\n3;",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0000000000000",
    ],
    ids=["header", "trailer", "chunk extension", "chunk size"],
)
def test_only_a_body_may_continue_without_end(start: Start, begin: bytes) -> None:
    """Bytes beyond the bound stay in the buffers of the kernel."""
    with connected(start(STRICT)) as client:
        client.sendall(begin)
        assert sent_until_cut(client, b"0" * 65536) < 32 << 20


@pytest.mark.slow
def test_half_a_head_is_waited_for_and_then_cut(start: Start) -> None:
    """Others are answered meanwhile, however many there are that don't go on."""
    server = start(STRICT)
    with many(server, 6) as halves:
        for half in halves:
            half.sendall(GET + b"X-a: ")

        assert ask(server.port, "/y").text == "/y 0"
        assert all(is_cut(half) for half in halves)


@pytest.mark.slow
def test_a_head_that_drips_is_cut_like_one_that_stops(start: Start) -> None:
    """The deadline covers the whole head and is not extended by another byte."""
    with connected(start(STRICT)) as client, suppress(OSError):
        client.settimeout(0.02)
        for byte in GET + b"X: " + b"y" * 100:
            client.sendall(bytes([byte]))
            with suppress(TimeoutError):
                assert not client.recv(1)
                return
        raise AssertionError("it was never cut")


def test_a_handshake_that_is_never_made_is_cut(start: Start) -> None:
    """A connection counts from its first packet, before its handshake."""
    server = start(STRICT, self_signed_context(["localhost"], SystemClock()))
    with connected(server) as silent, connected(server) as half:
        half.sendall(b"\x16\x03\x01\x02\x00")
        assert is_cut(silent)
        assert is_cut(half)


@pytest.mark.slow
def test_a_body_that_stops_is_cut(start: Start) -> None:
    """After the time for a whole request."""
    with connected(start(STRICT)) as client:
        client.sendall(POST + b"Content-Length: 100\r\n\r\nabc")
        assert is_cut(client)


@pytest.mark.slow
def test_client_that_does_not_read_the_answer_is_cut(start: Start) -> None:
    """A client cannot keep answers in memory by not reading them."""
    server = start(STRICT)
    with connected(server) as client:
        client.sendall(GET.replace(b"/x", b"/large") + b"\r\n")
        assert client.recv(1)  # and no more
        wait_until_all_are_cut(server)
        assert len(all_of(client)) < LARGE


def wait_until_all_are_cut(server: HttpServer) -> None:
    """Wait until the server has no connection; a client does not see this before it reads."""
    assert server._server is not None
    ends_s = time.monotonic() + PATIENCE_S
    while server._server._listener._all:
        assert time.monotonic() < ends_s
        time.sleep(0.01)


@pytest.mark.slow
def test_an_idle_connection_outlives_a_head_and_a_request(start: Start) -> None:
    """A client that comes back finds it open: what it sends is not lost in a closing connection."""
    limits = replace(BOUNDED, head_s=0.5, request_s=0.5)  # enough for a head on a busy machine
    connection = HTTPConnection("127.0.0.1", start(limits).port, timeout=PATIENCE_S)
    for _ in range(2):
        connection.request("POST", "/x", b"abc")
        assert connection.getresponse().read() == b"/x 3"
        threading.Event().wait(0.7)
    connection.close()


def test_idle_connections_outlive_those_of_go_and_prometheus() -> None:
    """Go closes after 90 s, Prometheus after 5 minutes: the client has to be the first."""
    assert LIMITS.idle_s > 300
    assert LIMITS.request_s > 30  # the longest timeout of a webhook


@pytest.mark.parametrize("begun", [b"", GET, GET + b"\r\n"], ids=["silent", "half", "idle"])
def test_a_flood_from_one_address_ends_its_own_connections(start: Start, begun: bytes) -> None:
    """Clients of other addresses are answered, and keep their open connections."""
    server = start(PATIENT)
    first = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    with closing(first), many(server, 40) as flood:
        first.request("GET", "/x")
        assert first.getresponse().read() == b"/x 0"
        kept = first.sock
        for each in flood:
            with suppress(OSError):  # it may be cut already
                each.sendall(begun)
                if begun.endswith(b"\r\n\r\n"):
                    each.recv(4096)

        assert ask(server.port, "/y").text == "/y 0"
        first.request("GET", "/x")
        assert first.getresponse().read() == b"/x 0"
        assert first.sock is kept


def test_bodies_have_a_bound_together(start: Start) -> None:
    """The connection with the largest body is closed; a small review of another passes."""
    server = start(PATIENT)
    with many(server, 4) as large, ThreadPoolExecutor(4) as pool:
        head = POST + b"Content-Length: 100000\r\n\r\n"
        sent = [pool.submit(each.sendall, head + b"x" * 90_000) for each in large]
        for each in sent:
            each.exception(PATIENCE_S)

        assert ask(server.port, "/y", method="POST", body="abc").text == "/y 3"
        wait_until_one_ends(large)
        cut = [each for each in large if ends_within(each, 0.1)]
    assert 0 < len(cut) < 4


def wait_until_one_ends(clients: Sequence[socket.socket]) -> None:
    """Wait until the server closes a connection; none of them has an answer."""
    readable, _, _ = select.select(clients, (), (), PATIENCE_S)
    assert readable


def ends_within(client: socket.socket, timeout_s: float) -> bool:
    client.settimeout(timeout_s)
    try:
        return not client.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.slow
def test_a_request_on_its_way_while_the_server_stops_is_answered() -> None:
    """The client of an idle connection gets its answer with Connection: close."""
    server = HttpServer(echo, "127.0.0.1", 0)
    server.start()
    port = server.port
    with connected(server) as client, ThreadPoolExecutor(1) as pool:
        client.sendall(GET + b"\r\n")
        first = b""
        while not first.endswith(b"/x 0"):
            first += client.recv(4096)
        assert b"connection: close" not in first
        ending = pool.submit(server.stop)
        while not refuses(port):
            threading.Event().wait(0.01)
        client.sendall(POST + b"Content-Length: 3\r\n\r\nabc")
        answer = all_of(client)
        ending.result(PATIENCE_S)

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
    assert answer.endswith(b"/x 3")


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.slow
def test_a_server_stops_although_a_client_holds_half_a_request() -> None:
    """After the grace for those that go on."""
    server = HttpServer(echo, "127.0.0.1", 0)
    server.start()
    with connected(server) as client:
        client.sendall(GET)
        assert ask(server.port, "/y").text == "/y 0"
        server.stop()
    assert "serving" not in [thread.name for thread in threading.enumerate()]


class OneAtATime:
    """Echo that fails if a connection has two requests under way."""

    def __init__(self) -> None:
        self._under_way: set[object] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = tuple(scope["client"])
        if client in self._under_way:
            raise AssertionError("a request was begun before the one ahead of it was answered")
        self._under_way.add(client)
        await asyncio.sleep(0)
        self._under_way.discard(client)  # the next request begins after the answer
        await echo(scope, receive, send)


@pytest.fixture(scope="module")
def lenient() -> Iterator[HttpServer]:
    """Run a server with the limits of production."""
    server = HttpServer(OneAtATime(), "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@settings(max_examples=examples(25), deadline=None)
@given(
    cuts=st.lists(st.integers(0, 400), max_size=4),
    bodies=st.lists(st.none() | st.integers(0, 70_000), min_size=1, max_size=5),
    chunked=st.booleans(),
    filler=st.sampled_from([b"x", b"\r\n", b"\n", b"GET / HTTP/1.1\r\n\r\n"]),
)
def test_pipelined_requests_are_answered_one_by_one_however_they_are_cut_into_packets(
    lenient: HttpServer,
    cuts: Sequence[int],
    bodies: Sequence[int | None],
    *,
    chunked: bool,
    filler: bytes,
) -> None:
    """Requests of one connection are all answered, whatever falls into one packet."""
    whole = b""
    for index, length in enumerate(bodies):
        last = b"Connection: close\r\n" if index == len(bodies) - 1 else b""
        content = (filler * 70_000)[: length or 0]
        if length is None:
            whole += GET + last + b"\r\n"
        elif chunked:
            body = b"%x\r\n%b\r\n" % (length, content) if length else b""
            trailer = b"X-Sum: 70000\r\n" if length % 2 else b""
            whole += POST + last + b"Transfer-Encoding: chunked\r\n\r\n" + body
            whole += b"0\r\n" + trailer + b"\r\n"
        else:
            whole += POST + last + b"Content-Length: %d\r\n\r\n" % length + content
    borders = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    parts = [whole[a:b] for a, b in pairwise(borders)]

    answer = answer_to(lenient, *parts)

    assert re.findall(rb"/x (\d+)", answer) == [b"%d" % (length or 0) for length in bodies]
    assert answer.count(b"HTTP/1.1 200 OK") == len(bodies)


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
def test_no_more_is_read_while_a_request_waits_for_its_answer(*, encrypted: bool) -> None:
    """A client that sends requests ahead fills the buffers of the kernel only.

    After each answer one request is read, not as much as fits into a buffer.
    """
    arrived, go_on = threading.Event(), threading.Event()
    begun: list[str] = []

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        if len(begun) > ANSWERED:
            arrived.set()
            await asyncio.to_thread(go_on.wait)
        await echo(scope, receive, send)

    tls = self_signed_context(["localhost"], SystemClock()) if encrypted else None
    server = HttpServer(waiting, "127.0.0.1", 0, tls)
    server.start()
    try:
        with connected(server) as client:
            sending = client
            if encrypted:
                trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
                sending = trusting.wrap_socket(client)
            sending.settimeout(0.2)
            sent, is_full = 0, False
            while sent < 24 << 20 and not is_full:
                try:
                    sent += sending.send((GET + b"\r\n") * 2000)
                except TimeoutError:
                    is_full = arrived.is_set()
            assert sent < 16 << 20
            assert len(begun) <= ANSWERED + 1
            sending.close()
    finally:
        go_on.set()
        server.stop()


def test_requests_sent_ahead_are_bounded_together() -> None:
    """The address that holds most is cut; a small request of another is answered."""
    go_on = threading.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/x":
            await asyncio.to_thread(go_on.wait)
        await echo(scope, receive, send)

    server = HttpServer(waiting, "127.0.0.1", 0, limits=PATIENT)
    server.start()
    try:
        with many(server, 4) as clients:
            for client in clients:
                client.sendall(GET + b"\r\n")
            for client in clients:
                client.settimeout(0.05)
                with suppress(OSError):
                    client.sendall((GET + b"\r\n") * 20_000)
            assert ask(server.port, "/y").text == "/y 0"
            wait_until_one_ends(clients)
            assert any(ends_within(client, 0.1) for client in clients)
    finally:
        go_on.set()
        server.stop()


@settings(max_examples=examples(25), deadline=None)
@given(noise=st.binary(min_size=1, max_size=3000))
def test_noise_is_refused_without_harm_to_other_clients(lenient: HttpServer, noise: bytes) -> None:
    """The next client is answered."""
    with connected(lenient) as client:
        client.sendall(noise + b"\r\n\r\n")
        assert ask(lenient.port, "/y").text == "/y 0"


def test_a_slow_application_is_not_taken_for_a_slow_client() -> None:
    """A connection with a request in progress is not closed to make room."""
    arrived, go_on = threading.Event(), threading.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            arrived.set()
            await asyncio.to_thread(go_on.wait)
        await echo(scope, receive, send)

    server = HttpServer(slow, "127.0.0.1", 0, limits=PATIENT)
    server.start()
    try:
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(ask, server.port, "/slow")
            assert arrived.wait(PATIENCE_S)
            with many(server, 20):
                assert ask(server.port, "/y").text == "/y 0"
                go_on.set()
                assert reply.result(PATIENCE_S).text == "/slow 0"
    finally:
        go_on.set()
        server.stop()
