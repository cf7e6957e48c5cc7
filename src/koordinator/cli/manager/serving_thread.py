"""Thread that starts an HTTPS server of the manager, and then refreshes its certificate.

The server starts as soon as it has a certificate; until then a refresh is tried again and again.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from koordinator.foundation.errors import ClusterError, InputError
from koordinator.process.http_server import STOPPED_WITHIN_S, HttpServer

REFRESH_S: Final = 60.0
RETRY_S: Final = 5.0  # after a refresh that failed, or that is to be repeated soon

log = logging.getLogger(__name__)


class ServingThread:
    """Repeated refresh of a server's certificate and registration, from ``start`` until cleanup."""

    def __init__(self, name: str, refresh: Callable[[], bool]) -> None:
        """``refresh`` returns False where it is to be repeated soon."""
        self.stopping = threading.Event()
        self._name, self._refresh = name, refresh
        self._server: HttpServer | None = None
        self._thread = threading.Thread(target=self._run, name=f"{name}-server", daemon=True)

    def start(self, cleanup: ExitStack, shutdown_delay_s: float = 0.0) -> None:
        """Start; the cleanup stops the server, which serves ``shutdown_delay_s`` longer."""
        cleanup.callback(self._stop, shutdown_delay_s)
        self._thread.start()

    def serve(self, server: HttpServer) -> None:
        """Start the server; a refresh calls it once."""
        server.start()
        self._server = server
        log.info("serving %s", self._name, extra={"port": server.port})

    def _stop(self, shutdown_delay_s: float) -> None:
        if shutdown_delay_s and self._server is not None:
            delay = {"s": shutdown_delay_s}
            log.info("serving %s for the shutdown delay", self._name, extra=delay)
            self.stopping.wait(shutdown_delay_s)
        self.stopping.set()
        self._thread.join(STOPPED_WITHIN_S)
        if self._server is not None:
            self._server.stop()

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                pause_s = REFRESH_S if self._refresh() else RETRY_S
            except (ClusterError, InputError) as error:
                text = "certificate or registration of %s could not be refreshed"
                log.warning(text, self._name, extra={"error": str(error)})
                pause_s = RETRY_S
            self.stopping.wait(pause_s)
