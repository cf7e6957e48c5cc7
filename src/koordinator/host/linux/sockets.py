"""Unix sockets of the container runtime, the copilot and the kubelet.

CRI requires grpcio, from the extra ``cri``.
Source: k8s.io/cri-api pkg/apis/runtime/v1/api.proto; ``CopilotAgent.KillContainerByResource`` of
koordlet.

A removed socket is restored.  Requires grpcio, from the extra ``pod-resources``.
"""

import http.client
import logging
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

from koordinator.api.codec import decode, encode_part
from koordinator.api.copilot import KILL_BY_RESOURCE_PATH, CopilotKillRequest
from koordinator.api.core import ResourceList
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.protobuf import FieldNumber, decode_message, encode_message
from koordinator.foundation.quantity import Quantity
from koordinator.host.port import Released, Roots

_SERVICE: Final = "/runtime.v1.RuntimeService"
_ANSWER_S: Final = 5.0  # in addition to the grace period
_POD_UID: Final = "io.kubernetes.pod.uid"
_EXITED: Final = 2  # CONTAINER_EXITED
_SOCKETS: Final[Mapping[str, Sequence[str]]] = {
    "containerd": ("containerd/containerd.sock", "k3s/containerd/containerd.sock"),
    "cri-o": ("crio/crio.sock",),
    "docker": ("cri-dockerd.sock",),
}

log = logging.getLogger(__name__)

_THREADS: Final = 8
_MOST_CALLS: Final = 64  # in progress; further calls are rejected with RESOURCE_EXHAUSTED
_STOP_S: Final = 1.0
_CHECK_S: Final = 1.0
_MOST_BYTES: Final = 16 << 20  # the limit of the kubelet's clients
_FOLDER_MODE: Final = 0o750  # as the kubelet's folder
_OPTIONS: Final = (("grpc.max_send_message_length", _MOST_BYTES),)

UnaryCall = Callable[[bytes, Any], bytes]  # request and gRPC context to response

_TIMEOUT_S: Final = 30.0  # as in the original
_LARGEST_ANSWER: Final = 1 << 20

_SOCKET: Final = "kubelet.sock"
_LONGEST_CALL_S: Final = 10.0
_CLIENT_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MOST_BYTES),
    # A restarted kubelet is available again within half a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatusRequest:
    """Request for the status of a container."""

    container_id: Annotated[str, FieldNumber(1)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriContainerStatus:
    """Status of a container; the kubelet sets ``labels``."""

    state: Annotated[int, FieldNumber(3)] = 0
    labels: Annotated[Mapping[str, str], FieldNumber(12)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatusResponse:
    """Response to a status request."""

    status: Annotated[CriContainerStatus | None, FieldNumber(1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopContainerRequest:
    """Request to stop a container; ``timeout`` is in seconds, 0 sends SIGKILL immediately."""

    container_id: Annotated[str, FieldNumber(1)] = ""
    timeout: Annotated[int, FieldNumber(2)] = 0


class CriSocket:
    """Implementation of ``ContainerRuntime`` with a connection per call.

    ``endpoint`` is the socket of the runtime; if empty, the default places below ``roots.var_run``
    and ``roots.run`` are searched.  Raises InputError without grpcio.
    """

    def __init__(self, roots: Roots, endpoint: str = "") -> None:
        if find_spec("grpc") is None:
            raise InputError(
                "requires grpcio; install koordinator[cri]", source="--containerd-endpoint"
            )
        self._roots = roots
        self._endpoint = endpoint.removeprefix("unix://")

    def find(self, runtime: str) -> str:
        """Return the socket of a runtime named as in container ids; empty if there is none."""
        if self._endpoint:
            return self._endpoint if Path(self._endpoint).is_socket() else ""
        for root in (self._roots.var_run, self._roots.run):
            for name in _SOCKETS.get(runtime, ()):
                if Path(f"{root}/{name}").is_socket():
                    return f"{root}/{name}"
        return ""

    def reaches(self, container_id: str) -> bool:
        """Return whether the socket of the container's runtime exists."""
        return bool(self.find(container_id.partition("://")[0]))

    def stop(self, pod_uid: str, container_id: str, grace_s: int) -> None:
        """Stop a container after checking that the pod owns it."""
        import grpc  # noqa: PLC0415 -- takes 15 MiB, and most nodes never evict

        runtime, _, identity = container_id.partition("://")
        path = self.find(runtime)
        if not path or not identity:
            raise HostError(f"no runtime socket found for container {container_id!r}")
        with grpc.insecure_channel(f"unix:{path}") as channel:
            query = ContainerStatusRequest(container_id=identity)
            answer = _call(channel, "ContainerStatus", query, _ANSWER_S)
            status = decode_message(ContainerStatusResponse, answer).status or CriContainerStatus()
            if status.labels.get(_POD_UID) != pod_uid:
                raise HostError(f"{container_id} is not a container of pod {pod_uid}")
            if status.state == _EXITED:
                return
            stop = StopContainerRequest(container_id=identity, timeout=grace_s)
            _call(channel, "StopContainer", stop, grace_s + _ANSWER_S)


def _call(channel: Any, name: str, request: object, timeout_s: float) -> bytes:
    import grpc  # noqa: PLC0415 -- as above

    call = channel.unary_unary(f"{_SERVICE}/{name}", request_serializer=encode_message)
    try:
        answer: bytes = call(request, timeout=timeout_s)
    except grpc.RpcError as error:
        raise HostError(f"{name}: {error.code().name}: {error.details()}") from None
    return answer


class SocketCopilot:
    """Implementation of ``Copilot`` with a connection per request."""

    def __init__(self, path: str) -> None:
        self._path = path

    def release(
        self, amounts: Mapping[str, float], *, node_cpu_ratio: float, node_memory_ratio: float
    ) -> Released:
        request = CopilotKillRequest(
            resources={
                BATCH_CPU: Quantity.from_int(int(amounts.get(BATCH_CPU, 0))),
                BATCH_MEMORY: Quantity.from_int(int(amounts.get(BATCH_MEMORY, 0)), binary=True),
            },
            node_cpu_ratio=node_cpu_ratio,
            node_memory_ratio=node_memory_ratio,
        )
        text = self._post(KILL_BY_RESOURCE_PATH, encode_part(request))
        try:
            released = decode(text, ResourceList)
        except InputError as error:
            raise HostError(f"{self._path}: undecodable answer: {error}") from None
        nothing = Quantity(0)
        return {
            BATCH_CPU: float(released.get(BATCH_CPU, nothing).milli()),
            BATCH_MEMORY: float(released.get(BATCH_MEMORY, nothing).value()),
        }

    def _post(self, path: str, body: bytes) -> bytes:
        connection = _UnixConnection(self._path)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read(_LARGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise HostError(f"{self._path}: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if answer.status != http.client.OK:
            reason = text.decode(errors="replace")
            raise HostError(f"{self._path}: {answer.status} {reason}")
        return text


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def grpc_library(gate: str) -> Any:
    """Return grpcio.  Raises InputError if it is not installed."""
    try:
        import grpc  # noqa: PLC0415 -- an extra
    except ImportError:
        raise InputError(
            f"{gate} requires grpcio; install koordinator[pod-resources]", path="feature-gates"
        ) from None
    return grpc


class UnixGrpcServer:
    """Server; ``find`` returns the handler of a call by ``/service/method``."""

    def __init__(self, grpc: Any, path: Path, find: Callable[[str], UnaryCall | None]) -> None:
        self._grpc, self._path, self._find = grpc, path, find
        self._server: Any = None
        self._stopping = threading.Event()
        self._monitor = threading.Thread(target=self._watch, name=f"watch {path.name}", daemon=True)

    def start(self) -> None:
        """Start listening.  Raises HostError."""
        self._listen()
        self._monitor.start()

    def stop(self) -> None:
        """Stop the server."""
        self._stopping.set()
        self._monitor.join(_STOP_S)
        self._end()

    def _listen(self) -> None:
        self._server = self._grpc.server(
            ThreadPoolExecutor(_THREADS, "grpc"),
            options=_OPTIONS,
            maximum_concurrent_rpcs=_MOST_CALLS,
        )
        self._server.add_generic_rpc_handlers((self,))
        try:
            self._path.parent.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)  # left by a killed agent
            self._server.add_insecure_port(f"unix:{self._path}")
            self._server.start()
        except (OSError, RuntimeError) as error:
            raise HostError(f"cannot serve at {self._path}: {error}") from None

    def _watch(self) -> None:
        """Restore a removed socket: an agent that ends late removes its successor's socket."""
        while not self._stopping.wait(_CHECK_S):
            try:
                if self._path.exists():  # ours, or a successor's
                    continue
                log.warning("socket removed; listening again", extra={"path": str(self._path)})
                self._end()
                self._listen()
            except (OSError, HostError) as error:
                log.warning("not listening", extra={"path": str(self._path), "error": error})

    def _end(self) -> None:
        if self._server is not None:
            self._server.stop(_STOP_S).wait(_STOP_S)
            self._server = None

    def service(self, details: Any) -> Any:
        """Return the handler of a call for grpc; None if the method is unknown."""
        answer = self._find(details.method)
        if answer is None:
            return None
        return self._grpc.unary_unary_rpc_method_handler(answer)


class KubeletPlugin:
    """Server of ``methods``, by method name, on a socket in the kubelet's plugin folder.

    ``gate`` is the feature in error messages.  Raises InputError without grpcio.
    """

    def __init__(
        self, methods: Mapping[str, Callable[[bytes], bytes]], socket: str, gate: str
    ) -> None:
        self._methods = methods
        self._server = UnixGrpcServer(grpc_library(gate), Path(socket), self._find)

    def start(self) -> None:
        """Start listening; the kubelet watches the folder.  Raises HostError."""
        self._server.start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()

    def _find(self, method: str) -> UnaryCall | None:
        answer = self._methods.get(method.rpartition("/")[2])
        return None if answer is None else lambda request, _: answer(request)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResourcesSettings:
    """Folders of our and of the kubelet's ``kubelet.sock``.

    ``services`` are forwarded; ``completed`` are the methods with completed answers, as
    ``service/method``.
    """

    folder: str
    kubelet_folder: str
    services: Collection[str]
    completed: Collection[str]


class PodResourcesProxy:
    """Proxy; each call waits for a kubelet that is not available.

    ``complete`` receives the kubelet's answer and returns ours; several threads call it.
    """

    def __init__(self, complete: Callable[[bytes], bytes], settings: PodResourcesSettings) -> None:
        self._grpc = grpc = grpc_library("PodResourcesProxy")
        self._complete = complete
        self._settings = settings
        self._server = UnixGrpcServer(grpc, Path(settings.folder) / _SOCKET, self._find)
        self._kubelet: Any = grpc.insecure_channel(
            f"unix:{settings.kubelet_folder}/{_SOCKET}", options=_CLIENT_OPTIONS
        )

    def start(self) -> None:
        """Start listening.  Raises HostError."""
        self._server.start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()
        self._kubelet.close()

    def _find(self, method: str) -> UnaryCall | None:
        name = method.removeprefix("/")
        if name.rpartition("/")[0] not in self._settings.services:
            return None
        is_completed = name in self._settings.completed
        forward = self._kubelet.unary_unary(method)

        def handle(request: bytes, context: Any) -> bytes:
            answer = self._forward(forward, request, context)
            return self._complete(answer) if is_completed else answer

        return handle

    def _forward(self, forward: Any, request: bytes, context: Any) -> bytes:
        left_s = context.time_remaining()
        timeout_s = _LONGEST_CALL_S if left_s is None else min(left_s, _LONGEST_CALL_S)
        try:
            answer: bytes = forward(request, timeout=timeout_s, wait_for_ready=True)
        except self._grpc.RpcError as error:
            context.abort(error.code(), error.details())
            raise
        return answer
