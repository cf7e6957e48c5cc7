"""An HTTP server in a thread, with TLS or without.

What it serves is an ASGI application: ``endpoints.application``, usually behind a ``Guard``.
"""

import socket
import ssl
import threading

import uvicorn
from starlette.types import ASGIApp

from koordinator.foundation.errors import BugError, InputError

GRACE_S = 5  # for requests under way when the server stops, as in kube-scheduler
STOPPED_WITHIN_S = 2 * GRACE_S

_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 -- what to listen on is the user's choice
_HEADERS = [("cache-control", "no-cache, private"), ("x-content-type-options", "nosniff")]


class Server:
    """Serves from ``start`` to ``stop``, once.

    ``address`` 0.0.0.0 or :: is every address of both IP versions, as in Go.  ``port`` 0 takes a
    free one.  Without ``tls`` it is plain HTTP.
    """

    def __init__(
        self, app: ASGIApp, address: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        self._address, self._asked_port = address, port
        self._socket: socket.socket | None = None
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="httptools",
                loop="asyncio",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=_HEADERS,
                timeout_graceful_shutdown=GRACE_S,
                ssl_context_factory=None if tls is None else lambda *_: tls,
            )
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
            where = f"{self._address}:{self._asked_port}"
            raise InputError(f"can't listen on {where}: {error}") from None
        self._thread.start()

    def stop(self) -> None:
        """Take no more requests, let those under way end within ``GRACE_S``, and return."""
        self._server.should_exit = True
        self._thread.join(STOPPED_WITHIN_S)

    def _listen(self) -> socket.socket:
        if self._address in _ANY_ADDRESS and socket.has_dualstack_ipv6():
            anywhere = ("::", self._asked_port)
            return socket.create_server(anywhere, family=socket.AF_INET6, dualstack_ipv6=True)
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        return socket.create_server((self._address, self._asked_port), family=family)

    def _run(self) -> None:
        if self._socket is not None:
            self._server.run([self._socket])
