"""The loop in which the network lives."""

import asyncio
import gc
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any
from unittest.mock import Mock

import pytest

from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes.background import EventLoopThread, SocketLoop
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import ApiServer, Connection, Identity
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.foundation.clock import SystemClock
from koordinator.process.certificates import self_signed_context

ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: a reset instead of a farewell
PATIENCE_S = 60.0
MUCH = b"x" * (16 << 20)  # more than the buffers of both kernels hold


@pytest.mark.parametrize("farewell", [None, ABORT], ids=["closed", "reset"])
def test_a_connection_lost_before_tls_never_closes_another_one(farewell: bytes | None) -> None:
    """The lost socket has no descriptor any more, which the next connection may have got."""

    async def connect(server: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, server.getsockname())
        accepted, _ = server.accept()
        if farewell:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, farewell)
        accepted.close()
        with pytest.raises(ConnectionResetError):
            await loop.create_connection(
                asyncio.Protocol, ssl=ssl.create_default_context(), server_hostname="x", sock=sock
            )
        return sock.fileno()

    async def nothing() -> None:
        pass

    network = EventLoopThread("test")
    with socket.create_server(("127.0.0.1", 0)) as server:
        try:
            assert network.run(connect(server)) == -1
        finally:
            network.close(nothing)


@cache
def server_tls() -> ssl.SSLContext:
    return self_signed_context(("localhost",), SystemClock())


def accept(connection: socket.socket) -> None:
    """Answer nothing."""


def die_in_handshake(connection: socket.socket) -> None:
    connection.recv(1)
    connection.shutdown(socket.SHUT_RDWR)


def shake_hands(connection: socket.socket) -> None:
    """Complete the TLS handshake, and read nothing afterwards."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = server_tls().wrap_bio(incoming, outgoing, server_side=True)
    while True:
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            connection.sendall(outgoing.read())
            incoming.write(connection.recv(1 << 16))
        else:
            connection.sendall(outgoing.read())
            return


def half_close(connection: socket.socket) -> None:
    shake_hands(connection)
    connection.shutdown(socket.SHUT_WR)


class OtherSide:
    """A server that serves one connection with ``behave``, then leaves it open."""

    def __init__(self, behave: Callable[[socket.socket], None]) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.is_over = threading.Event()
        self.behaved = threading.Event()
        self._behave = behave
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self.is_over.set()
        with suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            connection, _ = self.listening.accept()
            with connection:
                with suppress(OSError):
                    self._behave(connection)
                self.behaved.set()
                self.is_over.wait()


@contextmanager
def other_side(behave: Callable[[socket.socket], None]) -> Iterator[OtherSide]:
    server = OtherSide(behave)
    try:
        yield server
    finally:
        server.close()


async def tls_connection(server: OtherSide) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, server.listening.getsockname())
    transport, _ = await loop.create_connection(
        asyncio.Protocol, ssl=context, server_hostname="localhost", sock=sock
    )
    return transport


async def stay_open(server: OtherSide) -> None:
    transport = await tls_connection(server)
    transport.write(b"x")


async def shut_down(server: OtherSide) -> None:
    transport = await tls_connection(server)
    transport.close()


async def shut_down_with_unsent_data(server: OtherSide) -> None:
    transport = await tls_connection(server)
    transport.write(MUCH)
    transport.close()


@pytest.mark.parametrize(
    ("behave", "connect"),
    [
        (accept, stay_open),
        (die_in_handshake, stay_open),
        (shake_hands, stay_open),
        (shake_hands, shut_down),
        (shake_hands, shut_down_with_unsent_data),
        (half_close, stay_open),
        (half_close, shut_down),
        (half_close, shut_down_with_unsent_data),
    ],
)
def test_loop_closes_with_a_connection_in_any_state(
    behave: Callable[[socket.socket], None],
    connect: Callable[[OtherSide], Coroutine[Any, Any, None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The connection belongs to no session; no warning is raised and nothing is logged."""

    async def nothing() -> None:
        pass

    network = EventLoopThread("test")
    with other_side(behave) as server:
        begun = network.start(connect(server))
        assert server.behaved.wait(PATIENCE_S)
        if connect is not stay_open:
            begun.exception(PATIENCE_S)
        network.close(nothing)
        del begun
        gc.collect()

    assert network.is_closed
    assert caplog.messages == []


@pytest.mark.parametrize("behave", [accept, die_in_handshake, shake_hands, half_close])
def test_cluster_closes_while_its_watch_connects(
    behave: Callable[[socket.socket], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The watch has no answer yet, and the server leaves in the handshake or never answers."""
    clock = SystemClock()
    with other_side(behave) as server:
        port = server.listening.getsockname()[1]
        connection = Connection(
            ApiServer(f"https://127.0.0.1:{port}", verified=False), Identity(), "test"
        )
        cluster = KubernetesCluster(Credentials(connection, clock), clock)
        cluster.watch([Pod])
        assert server.behaved.wait(PATIENCE_S)
        cluster.close()
        gc.collect()

    assert [it for it in caplog.records if it.name == "asyncio"] == []


def test_writes_over_a_transport_that_an_error_closed_are_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """``is_closing`` is true only of a transport that was asked to close."""
    loop, transport = SocketLoop(), Mock(**{"is_closing.return_value": False})
    context = {
        "message": "Fatal error on SSL protocol",
        "exception": RuntimeError(
            f"unable to perform operation on {transport!r}; the handler is closed"
        ),
        "protocol": object(),
        "transport": transport,
    }
    try:
        loop.call_exception_handler(context)
        assert not caplog.records

        loop.call_exception_handler({**context, "exception": RuntimeError("another one")})
        assert len(caplog.records) == 1
    finally:
        loop.close()


@pytest.mark.parametrize("error", [AttributeError("'NoneType'"), RuntimeError("is closed")])
def test_late_reads_of_a_lost_connection_are_not_reported(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The TLS layer of uvloop reads or writes once more, and has no transport then."""
    loop = SocketLoop()
    context = {"message": "Fatal error on SSL protocol", "exception": error, "protocol": object()}
    try:
        loop.call_exception_handler({**context, "transport": None})
        assert not caplog.records

        loop.call_exception_handler({"message": "callback failed", "exception": error})
        assert len(caplog.records) == 1
    finally:
        loop.close()
