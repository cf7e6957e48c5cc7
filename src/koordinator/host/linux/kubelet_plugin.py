"""A plugin of the kubelet: found by the socket on which it is called, too."""

from collections.abc import Callable, Mapping
from pathlib import Path

from koordinator.host.linux.unix_grpc_server import Call, UnixGrpcServer, grpc_library


class KubeletPlugin:
    """Serves ``methods``, who answers a call by its name, on a socket of the watched folder.

    ``gate`` is what it is for.  Raises InputError without grpcio.
    """

    def __init__(
        self, methods: Mapping[str, Callable[[bytes], bytes]], socket: str, gate: str
    ) -> None:
        self._methods = methods
        self._server = UnixGrpcServer(grpc_library(gate), Path(socket), self._find)

    def start(self) -> None:
        """Listen; the kubelet finds out by itself.  Raises HostError."""
        self._server.start()

    def stop(self) -> None:
        """End."""
        self._server.stop()

    def _find(self, method: str) -> Call | None:
        answer = self._methods.get(method.rpartition("/")[2])
        return None if answer is None else lambda request, _: answer(request)
