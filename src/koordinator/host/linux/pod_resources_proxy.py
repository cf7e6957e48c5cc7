"""Proxy of the kubelet's PodResources service: gRPC on a unix socket, without TLS.

Calls are forwarded unchanged; the answers of some are completed.  Requires grpcio, from the extra
``pod-resources``.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from koordinator.host.linux.unix_grpc_server import Call, UnixGrpcServer, grpc_library

_SOCKET: Final = "kubelet.sock"
_MOST_BYTES: Final = 16 << 20  # the limit of the kubelet's clients
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

    def _find(self, method: str) -> Call | None:
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
