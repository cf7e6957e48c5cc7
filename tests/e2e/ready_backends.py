"""Stand-in for a Service: a port whose connections go to a process that is ready."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count

from tests.e2e.manager_process import ManagerProcess

_CHUNK = 1 << 16
_LOOK_S = 0.1


class ReadyBackends:
    """Gives each new connection to the next manager that is ready; existing ones stay."""

    def __init__(self) -> None:
        self.managers: Sequence[ManagerProcess] = ()
        self._ready: Sequence[int] = ()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._turns = count()
        self._is_over = threading.Event()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @contextmanager
    def serving(self) -> Iterator["ReadyBackends"]:
        """Serve while the context lasts."""
        self._start(self._accept)
        self._start(self._look)
        try:
            yield self
        finally:
            self._is_over.set()
            for each in (self._listening, *self._open):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            for thread in self._threads:
                thread.join()

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _look(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            self._ready = [it.webhook_port for it in self.managers if it.get("/readyz") == "ok"]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self._start(self._connect, near)

    def _connect(self, near: socket.socket) -> None:
        """Connect a client to the next ready manager, until both sides have ended."""
        ready = self._ready
        with near, suppress(OSError, ZeroDivisionError):
            port = ready[next(self._turns) % len(ready)]
            with socket.create_connection(("127.0.0.1", port)) as far:
                self._open |= {near, far}
                answers = self._start(_forward, far, near)
                _forward(near, far)
                answers.join()
                self._open -= {near, far}


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
