"""An HTTP server in a thread, with TLS or without.

What it serves is an ASGI application: ``endpoints.application``, usually behind a ``Guard``.
"""

import asyncio
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from koordinator.foundation.errors import BugError, InputError
from koordinator.process.connections import ConnectionLimits, Listener

GRACE_S = 5  # for requests under way when the server stops, as in kube-scheduler
STOPPED_WITHIN_S = 2 * GRACE_S
LIMITS = ConnectionLimits()

_TICK_S: Final = 0.1  # as uvicorn
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 -- what to listen on is the user's choice
_HEADERS = [("cache-control", "no-cache, private"), ("x-content-type-options", "nosniff")]


def is_loopback(address: str) -> bool:
    """Return whether only this machine, or this pod, reaches a server with this address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class HttpServer:
    """Serves from ``start`` to ``stop``, once.

    ``address`` 0.0.0.0 or :: is every address of both IP versions, as in Go.  ``port`` 0 takes a
    free one.  Without ``tls`` it is plain HTTP.  ``periodic`` is called ten times a second in the
    thread of the server, which is the thread of the application: it must neither wait nor raise.
    With ``client_names``, the certificate of a client must have one of these common names; ``tls``
    must request it.
    """

    def __init__(
        self,
        app: ASGIApp,
        address: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        limits: ConnectionLimits = LIMITS,
        periodic: Callable[[], None] | None = None,
        client_names: Collection[str] = (),
    ) -> None:
        self._address, self._requested_port = address, port
        self._tls, self._limits, self._client_names = tls, limits, client_names
        self._socket: socket.socket | None = None
        self._periodic = periodic
        self._server: _BoundedServer | None = None
        self._config = uvicorn.Config(
            app,
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=_HEADERS,
            timeout_keep_alive=int(limits.idle_s),
            timeout_graceful_shutdown=GRACE_S,
        )
        self._thread = threading.Thread(target=self._run, name="serving", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on; only after ``start``."""
        if self._socket is None:
            raise BugError("the port of a server that was not started")
        port: int = self._socket.getsockname()[1]
        return port

    def start(self) -> None:
        """Begin to serve: connections are accepted when this returns.

        Raises InputError if the address can't be listened on.
        """
        try:
            self._socket = self._listen()
            # Connections inherit it.  asyncio would set it, but not for sockets made like this one.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, OverflowError) as error:
            address = f"{self._address}:{self._requested_port}"
            raise InputError(f"cannot listen on {address}: {error}") from None
        listener = Listener(self._socket, self._tls, self._limits, self._client_names)
        self._server = _BoundedServer(self._config, listener, self._periodic)
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting connections, answer pending requests within ``GRACE_S``, and return.

        Each response has the header ``Connection: close``.
        """
        if self._server is not None:
            self._server.end()
            self._thread.join(STOPPED_WITHIN_S)

    def _listen(self) -> socket.socket:
        if self._address in _ANY_ADDRESS and socket.has_dualstack_ipv6():
            anywhere = ("::", self._requested_port)
            return socket.create_server(anywhere, family=socket.AF_INET6, dualstack_ipv6=True)
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        return socket.create_server((self._address, self._requested_port), family=family)

    def _run(self) -> None:
        if self._server is not None and self._socket is not None:
            self._server.run([self._socket])


class _BoundedServer(uvicorn.Server):
    """uvicorn's server with a ``Listener`` of ours, as asyncio's counts no connections."""

    def __init__(
        self, config: uvicorn.Config, listener: Listener, periodic: Callable[[], None] | None
    ) -> None:
        super().__init__(config)
        self._listener, self._periodic = listener, periodic
        self._wake: Callable[[], object] = lambda: None
        self._ending = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 -- the listener has it
        self.servers = [self._listener]  # type: ignore[list-item]  # closes as asyncio's does
        self._listener.open(self.config, self.server_state)
        loop = asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(self._ending.set)
        self.started = True

    def end(self) -> None:
        """End the loop now instead of at its next tick; in any thread."""
        self.should_exit = True
        with suppress(RuntimeError):  # the loop has ended
            self._wake()

    async def main_loop(self) -> None:
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + 1) % 864_000  # a day
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._ending.wait()

    async def on_tick(self, counter: int) -> bool:
        if self._periodic is not None:
            self._periodic()
        self._listener.cut_overdue()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._listener.cut_all()
