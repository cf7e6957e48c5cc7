"""gRPC servers on unix sockets for the kubelet and its clients, without TLS.

A removed socket is restored.  Requires grpcio, from the extra ``pod-resources``.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from koordinator.foundation.errors import HostError, InputError

log = logging.getLogger(__name__)

_THREADS: Final = 8
_MOST_CALLS: Final = 64  # in progress; further calls are rejected with RESOURCE_EXHAUSTED
_STOP_S: Final = 1.0
_CHECK_S: Final = 1.0
_MOST_BYTES: Final = 16 << 20  # the limit of the kubelet's clients
_FOLDER_MODE: Final = 0o750  # as the kubelet's folder
_OPTIONS: Final = (("grpc.max_send_message_length", _MOST_BYTES),)

UnaryCall = Callable[[bytes, Any], bytes]  # request and gRPC context to response


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
