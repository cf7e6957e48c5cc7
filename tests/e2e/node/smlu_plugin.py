"""Device plugin like Cambricon's for shared MLUs: it serves the pod for which its node is locked.

The kubelet passes the requested amount, but not the pod.  The plugin therefore finds the unserved
pod of its node that the scheduler has marked, reads card and share from its annotation, marks it
as served, and unlocks the node.
Source: k8s.io/kubelet pkg/apis/deviceplugin/v1beta1/api.proto; koordinator
docs/proposals/scheduling, device plugin adaptation of Cambricon.
"""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import grpc
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.real_node import RealNode

from koordinator.api.annotations.devices import (
    CAMBRICON_ASSIGNED,
    CAMBRICON_LOCK,
    CAMBRICON_PROFILE,
)
from koordinator.foundation.protobuf import FieldNumber, decode_message, encode_message

CORE, MEMORY = "cambricon.com/mlu.smlu.vcore", "cambricon.com/mlu.smlu.vmemory"
VARIABLE = "CAMBRICON_SPLIT_PROFILE"
_VERSION = "v1beta1"
_REGISTER = f"/{_VERSION}.Registration/Register"
_LOOK_S = 0.2
_MERGE = "application/merge-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RegisterRequest:
    version: Annotated[str, FieldNumber(1)] = _VERSION
    endpoint: Annotated[str, FieldNumber(2)] = ""
    resource_name: Annotated[str, FieldNumber(3)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    id: Annotated[str, FieldNumber(1)] = ""
    health: Annotated[str, FieldNumber(2)] = "Healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Units:
    devices: Annotated[tuple[_Unit, ...], FieldNumber(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ContainerRequest:
    ids: Annotated[tuple[str, ...], FieldNumber(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllocateRequest:
    containers: Annotated[tuple[_ContainerRequest, ...], FieldNumber(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ContainerResponse:
    envs: Annotated[Mapping[str, str], FieldNumber(1)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllocateResponse:
    containers: Annotated[tuple[_ContainerResponse, ...], FieldNumber(1)] = ()


class SmluPlugin:
    """Serves both resources of ``cards`` cards; ``with`` begins and ends it.

    It registers again whenever the kubelet has started, which empties the folder.
    """

    def __init__(self, controlplane: ControlPlane, node: RealNode, cards: int) -> None:
        self._api = controlplane.api
        self._node = node
        self._folder = node.kubelet_folder / "device-plugins"
        self._amounts = {CORE: 100 * cards, MEMORY: 96 * cards}
        self._servers: dict[str, Any] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        """Begin to register."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self._stopping.set()
        self._thread.join()
        for server in self._servers.values():
            server.stop(0).wait()

    def _keep(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            for resource in self._amounts:
                if not self._endpoint(resource).exists() and self._kubelet.exists():
                    with suppress(grpc.RpcError):
                        self._serve(resource)

    @property
    def _kubelet(self) -> Path:
        return self._folder / "kubelet.sock"

    def _endpoint(self, resource: str) -> Path:
        return self._folder / f"{resource.rpartition('.')[2]}.sock"

    def _serve(self, resource: str) -> None:
        if resource in self._servers:
            self._servers.pop(resource).stop(0).wait()
        server = self._servers[resource] = grpc.server(ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers((_Handlers(self, resource),))
        endpoint = self._endpoint(resource)
        server.add_insecure_port(f"unix:{endpoint}")
        server.start()
        request = _RegisterRequest(endpoint=endpoint.name, resource_name=resource)
        with grpc.insecure_channel(f"unix:{self._kubelet}") as channel:
            channel.unary_unary(_REGISTER)(encode_message(request), timeout=10, wait_for_ready=True)

    def units(self, resource: str) -> Iterator[bytes]:
        """Yield what there is of a resource, once; then keep the stream open."""
        number = self._amounts[resource]
        made = _Units(devices=tuple(_Unit(id=f"{each}") for each in range(number)))
        yield encode_message(made)
        self._stopping.wait()

    def allocate(self, resource: str, request: _AllocateRequest) -> _AllocateResponse:
        """Serve a pod; amounts of memory are allocated together with cores."""
        envs = self._next_pod() if resource == CORE else {}
        return _AllocateResponse(
            containers=tuple(_ContainerResponse(envs=envs) for _ in request.containers)
        )

    def _next_pod(self) -> dict[str, str]:
        """Return the variables of the waiting pod, and release the next one."""
        selector = f"fieldSelector=spec.nodeName%3D{self._node.name}"
        for pod in self._api.request("GET", f"/api/v1/pods?{selector}")["items"]:
            meta = pod["metadata"]
            stated = meta.get("annotations", {})
            if stated.get(CAMBRICON_ASSIGNED) == "false":
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                served = {"metadata": {"annotations": {CAMBRICON_ASSIGNED: "true"}}}
                unlocked = {"metadata": {"annotations": {CAMBRICON_LOCK: None}}}
                self._api.request("PATCH", path, served, content_type=_MERGE)
                node = f"/api/v1/nodes/{self._node.name}"
                self._api.request("PATCH", node, unlocked, content_type=_MERGE)
                return {VARIABLE: stated[CAMBRICON_PROFILE]}
        raise LookupError("no pod waits for a share")


class _Handlers:
    """The calls of the kubelet, for one resource."""

    def __init__(self, plugin: SmluPlugin, resource: str) -> None:
        self._plugin, self._resource = plugin, resource

    def service(self, details: Any) -> Any:
        plugin, resource = self._plugin, self._resource
        match details.method.rpartition("/")[2]:
            case "ListAndWatch":
                return grpc.unary_stream_rpc_method_handler(lambda *_: plugin.units(resource))
            case "Allocate":
                return grpc.unary_unary_rpc_method_handler(self._allocate)
            case _:
                return grpc.unary_unary_rpc_method_handler(lambda *_: b"")

    def _allocate(self, request: bytes, context: Any) -> bytes:
        try:
            decoded = decode_message(_AllocateRequest, request)
            return encode_message(self._plugin.allocate(self._resource, decoded))
        except (ApiError, LookupError) as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise
