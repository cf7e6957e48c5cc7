"""Clients of container runtimes on unix sockets: CRI, and the copilot of another runtime.

CRI requires grpcio, from the extra ``cri``.
Source: k8s.io/cri-api pkg/apis/runtime/v1/api.proto; ``CopilotAgent.KillContainerByResource`` of
koordlet.
"""

import http.client
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

from koordinator.api.codec import decode, encode_part
from koordinator.api.copilot import KILL_BY_RESOURCE_PATH, CopilotKillRequest
from koordinator.api.core import ResourceList
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.foundation.errors import HostError, InputError
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
