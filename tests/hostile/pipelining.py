"""A client that sends requests without waiting for their answers."""

import socket
import ssl
import threading
from contextlib import suppress

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LONG_REQUEST = REQUEST[:-2] + b"X-Fill: " + b"a" * 28_000 + b"\r\n\r\n"
#: After so long without progress the server reads no more.
STALLED_S = 1.5
_CHUNK = 1 << 17


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
    """Send requests as fast as the answers are read; return how many bytes were sent."""
    connection.settimeout(30)
    reader = threading.Thread(target=_read_all, args=(connection,), daemon=True)
    reader.start()
    chunk = request * (_CHUNK // len(request) + 1)
    sent = 0
    with suppress(OSError):  # cut
        while sent < most:
            connection.sendall(chunk)
            sent += len(chunk)
        connection.shutdown(socket.SHUT_RDWR)
    reader.join(30)
    return sent


def _read_all(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(1 << 16):
            pass
