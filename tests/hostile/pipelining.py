"""A client that sends requests without waiting for their answers."""

import select
import socket
import ssl
from contextlib import suppress

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LONG_REQUEST = REQUEST[:-2] + b"X-Fill: " + b"a" * 28_000 + b"\r\n\r\n"
#: After so long without progress the server reads no more.
STALLED_S = 1.5
_CHUNK = 1 << 17
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def encrypted(connection: socket.socket) -> socket.socket:
    """Speak TLS on a connection, with a server of whatever certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


def send_unread(connection: socket.socket, most: int, request: bytes = REQUEST) -> int:
    """Send requests and read no answer; return how many bytes the server and the kernel took."""
    chunk = request * (_CHUNK // len(request) + 1)
    connection.settimeout(STALLED_S)
    sent = 0
    with suppress(OSError):  # it reads no more, or has cut the connection
        while sent < most:
            sent += connection.send(chunk)
    return sent


def send_all(connection: socket.socket, most: int, request: bytes = LONG_REQUEST) -> int:
    """Send requests as fast as the answers are read; return how many bytes were sent.

    One thread does both: two threads in one TLS connection can crash the interpreter.
    """
    connection.settimeout(0)
    chunk = memoryview(request * (_CHUNK // len(request) + 1))
    sent = 0
    with suppress(OSError):  # cut
        while sent < most:
            readable, writable, _ = select.select([connection], [connection], [], 30)
            if not readable and not writable:
                raise TimeoutError
            with suppress(*_NOT_YET):
                sent += connection.send(chunk[sent % len(chunk) :])
            with suppress(*_NOT_YET):
                while connection.recv(1 << 16):
                    pass
                break  # ended by the server
    return sent
