"""Copilot: the agent on a node that lists and ends the YARN containers of one NodeManager.

It is an HTTP server on a Unix socket, with the original's paths, fields and statuses.  Only the
user that runs the copilot may open the socket.  It kills the processes in the container's cgroup;
without cgroups it has the ResourceManager signal the container, if one is configured.

Source: yarn-copilot pkg/copilot-agent.
"""

import json
import logging
import os
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

from koordinator.api.codec import decode, encode_part
from koordinator.api.copilot import (
    CONTAINER_PATH,
    CONTAINERS_PATH,
    HEALTH_PATH,
    INFORMATION_PATH,
    KILL_BY_RESOURCE_PATH,
    KILL_PATH,
    CopilotContainer,
    CopilotInformation,
    CopilotKilled,
    CopilotKillRequest,
    CopilotResources,
)
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion, cgroup_path
from koordinator.foundation.errors import HostError, InputError, MissingFileError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import NANOS_PER_MILLI, Quantity
from koordinator.hadoop.amounts import NOTHING, BatchAmounts, batch_amounts
from koordinator.hadoop.port import (
    YarnContainer,
    YarnError,
    YarnRefusedError,
    choose_containers,
    container_age,
)
from koordinator.host.port import Host

log = logging.getLogger(__name__)

_LARGEST_BODY: Final = 64 << 10
_TIMEOUT_S: Final = 10.0
_MOST_CONNECTIONS: Final = 16
METRICS_PATH: Final = "/metrics"

_ATTEMPTS: Final = 3  # to empty a cgroup, whose processes may fork meanwhile


class ContainerSource(Protocol):
    """Source of running containers, such as a NodeManager.

    Rule R2: only composition roots connect to YARN.
    """

    def containers(self) -> Sequence[YarnContainer]:
        """Return the containers whose processes may run.  Raises YarnError."""


class ContainerSignaller(Protocol):
    """Client that ends containers, such as a ResourceManager's.

    Rule R2: only composition roots connect to YARN.
    """

    def signal_container(self, container_id: str) -> None:
        """End a container by force.  Raises YarnError."""


@dataclass(frozen=True, slots=True)
class ContainerCgroups:
    """Location of the containers' cgroups: ``folder`` in a hierarchy below ``root``."""

    root: str
    folder: str
    version: CgroupVersion


class YarnCopilot:
    """Operations on containers, for one thread; ``ended`` counts ended containers by method."""

    def __init__(
        self,
        source: ContainerSource,
        host: Host,
        cgroups: ContainerCgroups,
        signaller: ContainerSignaller | None = None,
    ) -> None:
        self.ended: Counter[str] = Counter()
        self._source, self._host = source, host
        self._cgroups, self._signaller = cgroups, signaller

    def containers(self) -> list[CopilotContainer]:
        """Return the running containers.  Raises YarnError."""
        return [self._as_data(each) for each in self._source.containers()]

    def container(self, container_id: str) -> CopilotContainer:
        """Return a container.  Raises YarnRefusedError for an unknown id, YarnError."""
        return self._as_data(self._find(container_id))

    def kill(self, container_id: str, why: str = "requested by id") -> CopilotContainer:
        """End a container and return it.  Raises as ``container``, and HostError."""
        container = self._find(container_id)
        self._end(container, why)
        return self._as_data(container)

    def kill_by_resource(self, need: BatchAmounts, why: str) -> BatchAmounts:
        """End containers until the amounts are released; return the released amounts.

        A container that cannot be ended is skipped.  Raises YarnError if the containers cannot be
        listed, and the last error if none could be ended.
        """
        left = list(self._source.containers())
        released = NOTHING
        problem: YarnError | HostError | None = None
        while (missing := need.minus(released)) != NOTHING:
            chosen = choose_containers(
                left,
                missing,
                id_of=lambda each: each.container_id,
                amounts_of=lambda each: each.resource.batch(),
            )
            if not chosen:
                break
            for each in chosen:
                left.remove(each)
                try:
                    self._end(each, why)
                except (YarnError, HostError) as error:
                    problem = error
                    extra = {"container": each.container_id, "error": str(error)}
                    log.warning("container not ended", extra=extra)
                    break
                released = released.plus(each.resource.batch())
        if problem is not None and released == NOTHING:
            try:
                raise problem
            finally:
                del problem  # the traceback refers to this frame
        return released

    def _find(self, container_id: str) -> YarnContainer:
        for each in self._source.containers():
            if each.container_id == container_id:
                return each
        raise YarnRefusedError(f"container {container_id!r} not found")

    def _end(self, container: YarnContainer, why: str) -> None:
        container_id = container.container_id
        if container_age(container_id) is None:
            raise YarnRefusedError(f"must be the id of a container, got {container_id!r}")
        extra = {"container": container_id, "user": container.user, "why": why}
        log.warning(
            "ending container", extra=extra
        )  # before the action, in case the agent is killed with it
        way = "processes"
        if not self._end_processes(container_id):
            if self._signaller is None:
                raise YarnRefusedError(
                    f"{container_id} has no processes in {self._folder(container_id)}, and no "
                    "ResourceManager is configured"
                )
            way = "ResourceManager"
            self._signaller.signal_container(container_id)
        self.ended[way] += 1
        log.warning("container ended", extra={**extra, "by": way})

    def _end_processes(self, container_id: str) -> int:
        """Kill the processes of a container's cgroup; return their number."""
        cgroups, folder = self._cgroups, self._folder(container_id)
        below = cgroup_path(CgroupFile.PROCS, folder, cgroups.version)
        ended = 0
        for _ in range(_ATTEMPTS):
            try:
                pids = [int(pid) for pid in self._host.read(f"{cgroups.root}/{below}").split()]
            except MissingFileError:
                break
            except ValueError as error:
                raise HostError(f"{cgroups.root}/{below}: {error}") from None
            if not pids:
                break
            ended += sum(self._host.kill(pid, folder) for pid in pids)
        return ended

    def _folder(self, container_id: str) -> str:
        return f"{self._cgroups.folder}/{container_id}"

    def _as_data(self, container: YarnContainer) -> CopilotContainer:
        amounts = container.resource.batch()
        resources = {
            CPU: Quantity.from_int(container.resource.vcores),
            MEMORY: Quantity.from_int(amounts.memory_bytes),
        }
        return CopilotContainer(
            name=container.container_id,
            uid=container.container_id,
            cgroup_dir=self._folder(container.container_id),
            resources=CopilotResources(limits=resources, requests=resources),
        )


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
