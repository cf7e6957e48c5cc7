"""The loop in which the network lives."""

import asyncio
import socket
import ssl
import struct

import pytest

from koordinator.cluster.kubernetes.background import Background

ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: a reset instead of a farewell


@pytest.mark.parametrize("farewell", [None, ABORT], ids=["closed", "reset"])
def test_a_connection_lost_before_tls_never_closes_another_one(farewell: bytes | None) -> None:
    """Its socket no longer refers to a descriptor, which may be given to the next connection."""

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

    network = Background("test")
    with socket.create_server(("127.0.0.1", 0)) as server:
        try:
            assert network.run(connect(server)) == -1
        finally:
            network.close(nothing)
