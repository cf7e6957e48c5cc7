"""gRPC server on a unix socket, without TLS, which restores a removed socket.

Requires grpcio, from the extra ``pod-resources``.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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

Call = Callable[[bytes, Any], bytes]  # request and gRPC context to response


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

    def __init__(self, grpc: Any, path: Path, find: Callable[[str], Call | None]) -> None:
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
            raise HostError(f"can't serve at {self._path}: {error}") from None

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
