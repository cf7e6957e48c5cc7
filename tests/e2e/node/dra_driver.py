"""A driver of dynamic resource allocation: two units, described to the runtime by CDI.

Serves the kubelet's calls, and publishes its slice again whenever the kubelet has registered it:
the kubelet deletes the slices of drivers when it starts.
Source: k8s.io/kubelet pkg/apis/dra/v1/api.proto, pkg/apis/pluginregistration/v1/api.proto.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import grpc
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.real_node import RealNode

from koordinator.foundation.protobuf import FieldNumber, decode_message, encode_message

DRIVER = "units.test.example"
UNITS = 2
_PREFIX = "/apis/resource.k8s.io/v1"
_CONFLICT = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class _PluginInfo:
    type: Annotated[str, FieldNumber(1)] = "DRAPlugin"
    name: Annotated[str, FieldNumber(2)] = DRIVER
    endpoint: Annotated[str, FieldNumber(3)] = f"/var/lib/kubelet/plugins/{DRIVER}/dra.sock"
    versions: Annotated[tuple[str, ...], FieldNumber(4)] = ("v1.DRAPlugin",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    namespace: Annotated[str, FieldNumber(1)] = ""
    uid: Annotated[str, FieldNumber(2)] = ""
    name: Annotated[str, FieldNumber(3)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    claims: Annotated[tuple[_Claim, ...], FieldNumber(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedDevice:
    requests: Annotated[tuple[str, ...], FieldNumber(1)] = ()
    pool: Annotated[str, FieldNumber(2)] = ""
    device: Annotated[str, FieldNumber(3)] = ""
    cdi_ids: Annotated[tuple[str, ...], FieldNumber(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    devices: Annotated[tuple[_PreparedDevice, ...], FieldNumber(1)] = ()
    error: Annotated[str, FieldNumber(2)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One of a map from uids: on the wire a message of a key and a value."""

    uid: Annotated[str, FieldNumber(1)] = ""
    prepared: Annotated[_Prepared, FieldNumber(2)] = _Prepared()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    claims: Annotated[tuple[_Entry, ...], FieldNumber(1)] = ()


class DraDriver:
    """Serves the kubelet of a node; ``with`` begins and ends it."""

    def __init__(self, controlplane: ControlPlane, node: RealNode) -> None:
        self._api, self._node = controlplane.api, node
        self._cdi = node.var_run / "cdi"
        self._servers: list[Any] = []

    def __enter__(self) -> Self:
        """Serve; the kubelet finds the registration by itself."""
        folder = self._node.kubelet_folder
        self._cdi.mkdir(parents=True, exist_ok=True)
        self._serve(folder / "plugins" / DRIVER / "dra.sock")
        self._serve(folder / "plugins_registry" / f"{DRIVER}.sock")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        for server in self._servers:
            server.stop(0).wait()

    def _serve(self, socket: Path) -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((self,))
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        self._servers.append(server)

    def service(self, details: Any) -> Any:
        """Return who answers a call."""
        answers = {
            "GetInfo": lambda _: encode_message(_PluginInfo()),
            "NotifyRegistrationStatus": self._registered,
            "NodePrepareResources": self._prepare,
            "NodeUnprepareResources": self._unprepare,
        }
        answer = answers.get(details.method.rpartition("/")[2])
        if answer is None:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, _: answer(request))

    def prepared(self, uid: str) -> bool:
        """Return whether a claim's devices are described to the runtime."""
        return self._file(uid).exists()

    def _file(self, uid: str) -> Path:
        return self._cdi / f"{DRIVER}-{uid}.json"

    def _registered(self, _: bytes) -> bytes:
        name = self._node.name
        devices = [{"name": f"unit{i}", "attributes": {"index": {"int": i}}} for i in range(UNITS)]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        manifest = {
            "metadata": {"name": f"{name}-{DRIVER}"},
            "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices},
        }
        try:
            self._api.request("POST", f"{_PREFIX}/resourceslices", manifest)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
        return b""

    def _prepare(self, request: bytes) -> bytes:
        entries = []
        for claim in decode_message(_Claims, request).claims:
            path = f"{_PREFIX}/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
            allocation = self._api.request("GET", path)["status"]["allocation"]
            given = allocation["devices"]["results"]
            described = [
                {
                    "name": f"{claim.uid}-{one['device']}",
                    "containerEdits": {"env": [f"UNIT={one['device']}"]},
                }
                for one in given
            ]
            text = {"cdiVersion": "0.6.0", "kind": f"{DRIVER}/unit", "devices": described}
            self._file(claim.uid).write_text(json.dumps(text))
            devices = tuple(
                _PreparedDevice(
                    requests=(one["request"],),
                    pool=one["pool"],
                    device=one["device"],
                    cdi_ids=(f"{DRIVER}/unit={claim.uid}-{one['device']}",),
                )
                for one in given
            )
            entries.append(_Entry(uid=claim.uid, prepared=_Prepared(devices=devices)))
        return encode_message(_Answer(claims=tuple(entries)))

    def _unprepare(self, request: bytes) -> bytes:
        claims = decode_message(_Claims, request).claims
        for claim in claims:
            self._file(claim.uid).unlink(missing_ok=True)
        return encode_message(_Answer(claims=tuple(_Entry(uid=claim.uid) for claim in claims)))
