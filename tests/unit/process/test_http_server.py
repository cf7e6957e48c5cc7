"""A server in a thread."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.unit.process.clients import PATIENCE_S, ask, certificate_of

from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.process import http_server
from koordinator.process.certificates import self_signed_context
from koordinator.process.http_server import HttpServer


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(scope["path"])(scope, receive, send)


@pytest.fixture
def servers() -> Iterator[list[HttpServer]]:
    """Servers that are stopped afterwards."""
    started: list[HttpServer] = []
    yield started
    for server in started:
        server.stop()


def test_server_responds_once_started(servers: list[HttpServer]) -> None:
    """Port 0 means any that is free."""
    servers.append(HttpServer(hello, "localhost", 0))
    servers[0].start()

    assert ask(servers[0].port, "/x").text == "/x"


def test_server_uses_tls(servers: list[HttpServer]) -> None:
    """A client that trusts the certificate verifies name and signature."""
    servers.append(
        HttpServer(hello, "localhost", 0, self_signed_context(["localhost"], SystemClock()))
    )
    servers[0].start()
    port = servers[0].port

    assert ask(port, "/x", trusted=certificate_of(port)).text == "/x"


def test_answers_are_sent_without_delay(servers: list[HttpServer]) -> None:
    """Head and body are two writes: held back until the first is acknowledged they cost 40 ms."""
    servers.append(
        HttpServer(hello, "localhost", 0, self_signed_context(["localhost"], SystemClock()))
    )
    servers[0].start()
    certificate = certificate_of(servers[0].port)

    def response_s() -> float:
        began_s = time.monotonic()
        ask(servers[0].port, "/x", trusted=certificate)
        return time.monotonic() - began_s

    # A busy machine takes longer, but not every time; one that holds back is never faster.
    assert any(response_s() < 0.035 for _ in range(500))


def test_any_address_is_any_of_both_versions(servers: list[HttpServer]) -> None:
    """As in Go, where a cluster of IPv6 nodes can keep the default --bind-address."""
    servers.append(HttpServer(hello, "0.0.0.0", 0))  # noqa: S104 -- what is tested
    servers[0].start()
    addresses = ["127.0.0.1"] + (["::1"] if socket.has_dualstack_ipv6() else [])

    for address in addresses:
        socket.create_connection((address, servers[0].port), timeout=PATIENCE_S).close()


@pytest.mark.parametrize("address", ["localhost", "not an address"])
def test_error_of_listening_names_the_address(servers: list[HttpServer], address: str) -> None:
    """The text names address and port."""
    servers.append(HttpServer(hello, "localhost", 0))
    servers[0].start()
    second = HttpServer(hello, address, servers[0].port)

    with pytest.raises(InputError, match=f"cannot listen on {address}:{servers[0].port}: "):
        second.start()


def test_stopped_server_frees_thread_and_port() -> None:
    """A client that is still connected keeps neither the thread nor the port."""
    server = HttpServer(hello, "localhost", 0)
    server.start()
    port = server.port
    connection = HTTPConnection("localhost", port, timeout=PATIENCE_S)
    connection.request("GET", "/")
    connection.getresponse().read()
    server.stop()
    connection.close()

    assert "serving" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("localhost", port), timeout=PATIENCE_S)


def test_a_request_under_way_is_answered_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape is not cut off by a roll-out."""
    monkeypatch.setattr(http_server, "GRACE_S", PATIENCE_S)
    monkeypatch.setattr(http_server, "STOPPED_WITHIN_S", 2 * PATIENCE_S)
    arrived, go_on = threading.Event(), threading.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        arrived.set()
        await asyncio.to_thread(go_on.wait)
        await hello(scope, receive, send)

    server = HttpServer(slow, "localhost", 0)
    server.start()
    port = server.port
    with ThreadPoolExecutor(2) as pool:
        reply = pool.submit(ask, port, "/x")
        assert arrived.wait(PATIENCE_S)
        began = time.monotonic()
        ending = pool.submit(server.stop)
        go_on.set()

        assert reply.result(PATIENCE_S).text == "/x"
        ending.result(PATIENCE_S)
        assert time.monotonic() - began < PATIENCE_S
