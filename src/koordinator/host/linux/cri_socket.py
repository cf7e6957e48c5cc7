"""A container runtime behind the socket on which the kubelet asks it: CRI, gRPC without TLS.

Needs grpcio, which the extra ``cri`` installs.
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
_ANSWER_S: Final = 5.0  # beyond what the container is given
_POD_UID: Final = "io.kubernetes.pod.uid"
_EXITED: Final = 2  # CONTAINER_EXITED
_SOCKETS: Final[Mapping[str, Sequence[str]]] = {
    "containerd": ("containerd/containerd.sock", "k3s/containerd/containerd.sock"),
    "cri-o": ("crio/crio.sock",),
    "docker": ("cri-dockerd.sock",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatusRequest:
    """Which container is asked about."""

    container_id: Annotated[str, FieldNumber(1)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriContainerStatus:
    """What the runtime knows of a container; ``labels`` are those that the kubelet gave it."""

    state: Annotated[int, FieldNumber(3)] = 0
    labels: Annotated[Mapping[str, str], FieldNumber(12)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatusResponse:
    """The answer."""

    status: Annotated[CriContainerStatus | None, FieldNumber(1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopContainerRequest:
    """``timeout`` is in seconds; 0 is SIGKILL at once."""

    container_id: Annotated[str, FieldNumber(1)] = ""
    timeout: Annotated[int, FieldNumber(2)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopContainerResponse:
    """Nothing."""


class CriSocket:
    """``host.container_runtime.ContainerRuntime``; a connection per call.

    ``endpoint`` is the socket of whatever runtime; empty: looked for where runtimes have theirs,
    below ``roots.var_run`` and ``roots.run``.  Raises InputError without grpcio.
    """

    def __init__(self, roots: Roots, endpoint: str = "") -> None:
        if find_spec("grpc") is None:
            raise InputError(
                "needs grpcio; install koordinator[cri]", source="--containerd-endpoint"
            )
        self._roots = roots
        self._endpoint = endpoint.removeprefix("unix://")

    def find(self, runtime: str) -> str:
        """Return the socket of a runtime, by its name in ids of containers; empty if none is."""
        if self._endpoint:
            return self._endpoint if Path(self._endpoint).is_socket() else ""
        for root in (self._roots.var_run, self._roots.run):
            for name in _SOCKETS.get(runtime, ()):
                if Path(f"{root}/{name}").is_socket():
                    return f"{root}/{name}"
        return ""

    def reaches(self, container_id: str) -> bool:
        """Return whether the socket of its runtime is there."""
        return bool(self.find(container_id.partition("://")[0]))

    def stop(self, pod_uid: str, container_id: str, grace_s: int) -> None:
        """Ask the runtime, after it has said whose container it is."""
        import grpc  # noqa: PLC0415 -- takes 15 MiB, and most nodes never evict

        runtime, _, identity = container_id.partition("://")
        path = self.find(runtime)
        if not path or not identity:
            raise HostError(f"no socket of a runtime for {container_id!r}")
        with grpc.insecure_channel(f"unix:{path}") as channel:
            asked = ContainerStatusRequest(container_id=identity)
            answer = _call(channel, "ContainerStatus", asked, _ANSWER_S)
            status = decode_message(ContainerStatusResponse, answer).status or CriContainerStatus()
            if status.labels.get(_POD_UID) != pod_uid:
                raise HostError(f"{container_id} is no container of pod {pod_uid}")
            if status.state == _EXITED:
                return
            wanted = StopContainerRequest(container_id=identity, timeout=grace_s)
            _call(channel, "StopContainer", wanted, grace_s + _ANSWER_S)


def _call(channel: Any, name: str, request: object, timeout_s: float) -> bytes:
    import grpc  # noqa: PLC0415 -- as above

    call = channel.unary_unary(f"{_SERVICE}/{name}", request_serializer=encode_message)
    try:
        answer: bytes = call(request, timeout=timeout_s)
    except grpc.RpcError as error:
        raise HostError(f"{name}: {error.code().name}: {error.details()}") from None
    return answer
