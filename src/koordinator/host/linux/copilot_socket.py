"""Client of a copilot on a Unix socket.

Source: ``CopilotAgent.KillContainerByResource`` of koordlet.
"""

import http.client
import socket
from collections.abc import Mapping
from typing import Final

from koordinator.api.codec import decode, encode_part
from koordinator.api.copilot import KILL_BY_RESOURCE_PATH, CopilotKillRequest
from koordinator.api.core import ResourceList
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.quantity import Quantity
from koordinator.host.copilot import Released

_TIMEOUT_S: Final = 30.0  # as in the original
_LARGEST_ANSWER: Final = 1 << 20


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
