"""Server for a runtime proxy: gRPC on a unix socket, without TLS.

Requires grpcio, from the extra ``hook-server``; few nodes have a proxy.
"""

import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.protobuf import decode_message, encode_message

log = logging.getLogger(__name__)

_THREADS = 4
_MOST_CALLS = 64  # in progress; further calls are rejected with RESOURCE_EXHAUSTED
_STOP_S = 1.0
_FILE = "koordlet.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookServerSettings:
    """``address`` is the path of the socket, ``host_endpoint`` the same path for the proxy.

    The proxy reads the configurations of its servers from ``config_folder``; ``stages`` are those
    that it may call.
    """

    address: str
    host_endpoint: str
    config_folder: str
    failure_policy: str
    stages: tuple[str, ...]


class HookServer:
    """Server of ``methods``: request type and handler by method name."""

    def __init__(
        self,
        service: str,
        methods: Mapping[str, tuple[type[object], Callable[[Any], object]]],
        settings: HookServerSettings,
    ) -> None:
        try:
            import grpc  # noqa: PLC0415 -- an extra
        except ImportError:
            raise InputError(
                "requires grpcio; install koordinator[hook-server]", source="--runtime-hooks-addr"
            ) from None
        self._settings = settings
        # A socket path is the name of a running server: of one that was killed it is in the way.
        self._server: Any = grpc.server(
            ThreadPoolExecutor(_THREADS, "hooks"), maximum_concurrent_rpcs=_MOST_CALLS
        )
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                _answering(answer, grpc.StatusCode.ABORTED),
                request_deserializer=_decoding(request),
                response_serializer=encode_message,
            )
            for name, (request, answer) in methods.items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, handlers),)
        )

    def start(self) -> None:
        """Listen, and write the configuration of the proxy.  Raises HostError."""
        settings = self._settings
        path = Path(settings.address)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._server.add_insecure_port(f"unix:{path}")
            self._server.start()
            folder = Path(settings.config_folder)
            folder.mkdir(parents=True, exist_ok=True)
            stated = {
                "remote-endpoint": settings.host_endpoint,
                "failure-policy": settings.failure_policy,
                "runtime-hooks": list(settings.stages),
            }
            unfinished = folder / f".{_FILE}"
            unfinished.write_text(json.dumps(stated), "utf-8")
            unfinished.replace(folder / _FILE)
        except (OSError, RuntimeError) as error:
            raise HostError(f"cannot serve hooks at {path}: {error}") from None

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop(_STOP_S).wait(_STOP_S)


def _decoding(request: type[object]) -> Callable[[bytes], object]:
    return lambda data: decode_message(request, data)


def _answering(answer: Callable[[Any], object], refused: object) -> Callable[[object, Any], object]:
    def handle(request: object, context: Any) -> object:
        try:
            return answer(request)
        except HostError as error:
            return context.abort(refused, str(error))

    return handle
