"""Client of the container runtime's CRI socket: gRPC without TLS.

Requires grpcio, from the extra ``cri``.
Source: k8s.io/cri-api pkg/apis/runtime/v1/api.proto.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.protobuf import FieldNumber, decode_message, encode_message
from koordinator.host.roots import Roots

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StopContainerResponse:
    """Response to a stop request."""


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
