"""Plugin of the kubelet, which finds and calls it by its socket."""

from collections.abc import Callable, Mapping
from pathlib import Path

from koordinator.host.linux.unix_grpc_server import Call, UnixGrpcServer, grpc_library


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

    def _find(self, method: str) -> Call | None:
        answer = self._methods.get(method.rpartition("/")[2])
        return None if answer is None else lambda request, _: answer(request)
