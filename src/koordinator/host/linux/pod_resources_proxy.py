"""Stands before the kubelet's PodResources service: gRPC on a unix socket, without TLS.

Every call is passed on as it came; of some the answer is completed.  Needs grpcio, which the extra
``pod-resources`` installs.
"""

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from koordinator.foundation.errors import HostError, InputError

log = logging.getLogger(__name__)

_SOCKET: Final = "kubelet.sock"
_THREADS: Final = 8
_STOP_S: Final = 1.0
_LOOK_S: Final = 1.0
_MOST_BYTES: Final = 16 << 20  # as the kubelet's own clients
_LONGEST_CALL_S: Final = 10.0
_FOLDER_MODE: Final = 0o750  # as the kubelet's
_CLIENT_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MOST_BYTES),
    # A kubelet that comes back is there again within half a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)
_SERVER_OPTIONS: Final = (("grpc.max_send_message_length", _MOST_BYTES),)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResourcesSettings:
    """Folders, each with a ``kubelet.sock``: ours and the kubelet's.

    ``services`` are passed on; ``completed`` are those of their methods whose answers change, as
    ``service/method``.
    """

    folder: str
    kubelet_folder: str
    services: Collection[str]
    completed: Collection[str]


class PodResourcesProxy:
    """Serves until it is stopped; a kubelet that is not there is waited for at each call.

    ``complete`` gets the kubelet's answer and returns ours; it is called by several threads.
    """

    def __init__(self, complete: Callable[[bytes], bytes], settings: PodResourcesSettings) -> None:
        try:
            import grpc  # noqa: PLC0415 -- an extra
        except ImportError:
            raise InputError(
                "PodResourcesProxy needs grpcio; install koordinator[pod-resources]",
                path="feature-gates",
            ) from None
        self._grpc: Any = grpc
        self._complete = complete
        self._settings = settings
        self._path = Path(settings.folder) / _SOCKET
        self._kubelet: Any = grpc.insecure_channel(
            f"unix:{settings.kubelet_folder}/{_SOCKET}", options=_CLIENT_OPTIONS
        )
        self._server: Any = None
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="pod-resources", daemon=True)

    def start(self) -> None:
        """Listen.  Raises HostError."""
        self._listen()
        self._keeper.start()

    def stop(self) -> None:
        """End the server."""
        self._stopping.set()
        self._keeper.join(_STOP_S)
        self._end()
        self._kubelet.close()

    def _listen(self) -> None:
        self._server = self._grpc.server(
            ThreadPoolExecutor(_THREADS, "pod-resources"), options=_SERVER_OPTIONS
        )
        self._server.add_generic_rpc_handlers((self,))
        try:
            self._path.parent.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)  # of an agent that was killed
            self._server.add_insecure_port(f"unix:{self._path}")
            self._server.start()
        except (OSError, RuntimeError) as error:
            raise HostError(f"can't serve PodResources at {self._path}: {error}") from None

    def _keep(self) -> None:
        """Listen anew when the socket is gone: an agent that ends late removes its successor's."""
        while not self._stopping.wait(_LOOK_S):
            try:
                if self._path.exists():  # a successor's is left alone
                    continue
                log.warning("socket gone, listening anew", extra={"path": str(self._path)})
                self._end()
                self._listen()
            except (OSError, HostError) as error:
                log.warning("PodResources not served", extra={"error": error})

    def _end(self) -> None:
        if self._server is not None:
            self._server.stop(_STOP_S).wait(_STOP_S)
            self._server = None

    def service(self, details: Any) -> Any:
        """Return the handler of a call; None if it is none of ours.  For grpc."""
        return self._find(details.method)

    def _find(self, method: str) -> Any:
        name = method.removeprefix("/")
        if name.rpartition("/")[0] not in self._settings.services:
            return None
        is_completed = name in self._settings.completed
        ask = self._kubelet.unary_unary(method)

        def handle(request: bytes, context: Any) -> bytes:
            answer = self._ask(ask, request, context)
            return self._complete(answer) if is_completed else answer

        return self._grpc.unary_unary_rpc_method_handler(handle)

    def _ask(self, ask: Any, request: bytes, context: Any) -> bytes:
        left_s = context.time_remaining()
        timeout_s = _LONGEST_CALL_S if left_s is None else min(left_s, _LONGEST_CALL_S)
        try:
            answer: bytes = ask(request, timeout=timeout_s, wait_for_ready=True)
        except self._grpc.RpcError as error:
            context.abort(error.code(), error.details())
            raise
        return answer
