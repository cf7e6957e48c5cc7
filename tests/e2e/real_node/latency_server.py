"""A server for pods: each request takes so much CPU time, whatever else runs.

``latency_server.py PORT MILLISECONDS`` answers every byte that it reads with one; needs the
standard library alone.
"""

import selectors
import socket
import sys
import time

_ROUND = 2000


def _work(seconds: float) -> None:
    """Take CPU time, as this thread is charged for it."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        sum(range(_ROUND))


def serve(port: int, seconds: float) -> None:
    """Answer for ever, one request at a time."""
    listener = socket.create_server(("", port), backlog=128)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, selectors.EVENT_READ, connection)
                continue
            data = key.data.recv(1)
            if not data:
                selector.unregister(key.data)
                key.data.close()
                continue
            _work(seconds)
            key.data.sendall(data)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]) / 1000)
