"""HTTP server of the copilot on a Unix socket, with the original's paths, fields and statuses.

Only the user that runs the copilot may open the socket.
"""

import json
import logging
import os
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from koordinator.api.codec import decode, encode_part
from koordinator.api.copilot import (
    CONTAINER_PATH,
    CONTAINERS_PATH,
    HEALTH_PATH,
    INFORMATION_PATH,
    KILL_BY_RESOURCE_PATH,
    KILL_PATH,
    CopilotInformation,
    CopilotKilled,
    CopilotKillRequest,
)
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.quantity import NANOS_PER_MILLI, Quantity
from koordinator.hadoop.amounts import BatchAmounts, batch_amounts
from koordinator.hadoop.port import YarnError
from koordinator.yarn.copilot.agent import YarnCopilot

log = logging.getLogger(__name__)

_LARGEST_BODY: Final = 64 << 10
_TIMEOUT_S: Final = 10.0
_MOST_CONNECTIONS: Final = 16
METRICS_PATH: Final = "/metrics"


class CopilotSocket:
    """Server that handles one request at a time; ``metrics`` returns the text of /metrics."""

    def __init__(self, path: Path, copilot: YarnCopilot, metrics: Callable[[], bytes]) -> None:
        self._path, self._copilot, self._metrics = path, copilot, metrics
        self._lock = threading.Lock()
        self._server: socketserver.BaseServer | None = None
        self._thread = threading.Thread(target=self._run, name="copilot", daemon=True)

    def start(self) -> None:
        """Start the server; a stale socket is replaced.

        Raises InputError if the socket cannot be created.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.is_socket():
                self._path.unlink()
            before = os.umask(0o177)
            try:
                self._server = _server(self._path, self._answer)
            finally:
                os.umask(before)
        except OSError as error:
            problem = f"cannot listen: {error.strerror or error}"
            raise InputError(problem, source=str(self._path)) from None
        self._thread.start()

    def stop(self) -> None:
        """Stop the server and remove the socket."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            with suppress(OSError):
                self._path.unlink()

    def _run(self) -> None:
        if self._server is not None:
            self._server.serve_forever(poll_interval=0.1)

    def _answer(self, method: str, target: str, body: bytes) -> tuple[HTTPStatus, bytes]:
        """Return status and body of a response."""
        with self._lock:
            try:
                return HTTPStatus.OK, self._handle(method, target, body)
            except InputError as error:
                return HTTPStatus.BAD_REQUEST, _text(error)
            except KeyError:
                return HTTPStatus.NOT_FOUND, _text(f"no such path: {target}")
            except (YarnError, HostError) as error:
                is_read = method == "GET"
                status = HTTPStatus.BAD_REQUEST if is_read else HTTPStatus.INTERNAL_SERVER_ERROR
                return status, _text(error)
            except Exception as error:
                log.exception("request failed", extra={"path": target})
                return HTTPStatus.INTERNAL_SERVER_ERROR, _text(error)

    def _handle(self, method: str, target: str, body: bytes) -> bytes:
        url, copilot = urlsplit(target), self._copilot

        def container() -> object:
            return copilot.container(parse_qs(url.query).get("containerID", [""])[0])

        def kill() -> object:
            killed = copilot.kill(decode(body, CopilotKillRequest).container_id)
            return CopilotKilled(items=(killed,))

        def kill_by_resource() -> object:
            request = decode(body, CopilotKillRequest)
            need = batch_amounts(request.resources)
            return _released(copilot.kill_by_resource(need, _why(request)))

        if (method, url.path) == ("GET", METRICS_PATH):
            return self._metrics()
        answers: dict[tuple[str, str], Callable[[], object]] = {
            ("GET", HEALTH_PATH): lambda: "ok",
            ("GET", INFORMATION_PATH): lambda: CopilotInformation(name="yarn", version="v1"),
            ("GET", CONTAINERS_PATH): copilot.containers,
            ("GET", CONTAINER_PATH): container,
            ("POST", KILL_PATH): kill,
            ("POST", KILL_BY_RESOURCE_PATH): kill_by_resource,
        }
        return encode_part(answers[method, url.path]())


def _released(amounts: BatchAmounts) -> dict[str, Quantity]:
    """Return the released amounts, with CPU in whole CPUs as in the original."""
    return {
        BATCH_CPU: Quantity(amounts.cpu_milli * NANOS_PER_MILLI),
        BATCH_MEMORY: Quantity.from_int(amounts.memory_bytes, binary=True),
    }


def _why(request: CopilotKillRequest) -> str:
    need = ", ".join(f"{name} {amount}" for name, amount in sorted(request.resources.items()))
    busy = [
        f"{name} {ratio:.0%} used"
        for name, ratio in (("CPU", request.node_cpu_ratio), ("memory", request.node_memory_ratio))
        if ratio > 0
    ]
    return "; ".join([f"to release {need}", *busy])


def _text(text: object) -> bytes:
    return json.dumps(str(text)).encode()


def _server(
    path: Path, answer: Callable[[str, str, bytes], tuple[HTTPStatus, bytes]]
) -> socketserver.BaseServer:
    places = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S

        def address_string(self) -> str:
            return "socket"

        def do_GET(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if not length.isdecimal() or int(length) > _LARGEST_BODY:
                problem = f"the body must not exceed {_LARGEST_BODY} bytes"
                self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _text(problem))
                return
            status, body = answer(self.command, self.path, self.rfile.read(int(length)))
            self._send(status, body)

        do_POST = do_GET  # noqa: N815 -- http.server's name

        def log_message(self, *_: object) -> None:
            pass

        def _send(self, status: HTTPStatus, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

        def process_request(self, request: object, client_address: object) -> None:
            """Handle a request unless the maximum number is in progress."""
            if not places.acquire(blocking=False):
                self.shutdown_request(request)  # type: ignore[arg-type]  # a socket
                return
            super().process_request(request, client_address)  # type: ignore[arg-type]  # as above

        def process_request_thread(self, request: object, client_address: object) -> None:
            try:
                super().process_request_thread(request, client_address)  # type: ignore[arg-type]  # as above
            finally:
                places.release()

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore clients that disconnect."""

    return Server(str(path), Handler)
