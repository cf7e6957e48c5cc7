"""Hadoop RPC with its protobuf messages.

The messages are of proto2: a required field is written even if it is zero.  Therefore they are
put together from fields, and not declared as ``foundation.protobuf`` would have them.

For Hadoop 3.2, whose web services can't change nodes.  One connection per call, SIMPLE
authentication.  The user is sent as ``effectiveUser``, which is what the ResourceManager compares
with ``yarn.admin.acl``; the original sends ``realUser``, which a ResourceManager does not read: the
call runs as the ResourceManager's own user.

Source: protobuf.dev/programming-guides/encoding; Hadoop RpcHeader.proto,
IpcConnectionContext.proto, yarn_service_protos.proto,
yarn_server_resourcemanager_service_protos.proto; yarn-copilot pkg/yarn/client.
"""

import socket
import struct
import uuid
from collections.abc import Iterator
from typing import Final

from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.protobuf import (
    BYTES,
    VARINT,
    read_varint,
    signed,
    split_fields,
    unsigned,
    write_field,
    write_varint,
)
from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.configuration import HostPort
from koordinator.hadoop.port import (
    NotActiveError,
    UnknownYarnNodeError,
    UnsupportedError,
    YarnError,
    YarnLimit,
    YarnNode,
    YarnRefusedError,
)

_ADMIN: Final = "org.apache.hadoop.yarn.server.api.ResourceManagerAdministrationProtocolPB"
_CLIENT: Final = "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"
HA_SERVICE: Final = "org.apache.hadoop.ha.HAServiceProtocol"
_HEADER: Final = b"hrpc" + bytes((9, 0, 0))  # version, service class, no SASL
_PROTOCOL_BUFFER, _FINAL_PACKET, _CONTEXT_CALL = 2, 0, -3
_SUCCESS: Final = 0
_ACTIVE: Final = 1
_KILL: Final = 3  # FORCEFUL_SHUTDOWN of SignalContainerCommandProto
_RUNNING, _UNHEALTHY, _DECOMMISSIONING = 2, 3, 7
_STATES: Final = {
    _RUNNING: "RUNNING",
    _UNHEALTHY: "UNHEALTHY",
    _DECOMMISSIONING: "DECOMMISSIONING",
}
_LARGEST_ANSWER: Final = 64 << 20


def number_field(field: int, value: int) -> bytes:
    """Return a field of type int32, int64, bool or enum; zero is not left out."""
    out = bytearray()
    write_field(out, field, VARINT, unsigned(value))
    return bytes(out)


def zigzag_field(field: int, value: int) -> bytes:
    """Return a field of type sint32."""
    return number_field(field, (value << 1) ^ (value >> 63))


def bytes_field(field: int, value: bytes | str) -> bytes:
    """Return a field of type string, bytes or message; an empty one is not left out."""
    out = bytearray()
    write_field(out, field, BYTES, value.encode() if isinstance(value, str) else value)
    return bytes(out)


def delimited(message: bytes) -> bytes:
    """Return a message with its length in front."""
    out = bytearray()
    write_varint(out, len(message))
    return bytes(out + message)


def read_delimited(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the message at an offset, and the offset after it.  Raises YarnError."""
    try:
        size, at = read_varint(data, at)
    except InputError as error:
        raise YarnError(f"invalid message: {error}") from None
    if at + size > len(data):
        raise YarnError("invalid message: truncated")
    return data[at : at + size], at + size


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; messages and strings are bytes.  Raises YarnError."""
    try:
        for number, wire, value in split_fields(message):
            if wire in {VARINT, BYTES}:
                yield number, signed(value) if wire == VARINT else value
    except InputError as error:
        raise YarnError(f"invalid message: {error}") from None


def number_of(message: bytes, field: int) -> int:
    """Return a number, 0 if it is left out."""
    value_or_bytes = next((value for at, value in fields(message) if at == field), 0)
    return value_or_bytes if isinstance(value_or_bytes, int) else 0


def bytes_of(message: bytes, field: int) -> bytes:
    """Return a string or message, empty if it is left out."""
    value_or_number = next((value for at, value in fields(message) if at == field), b"")
    return value_or_number if isinstance(value_or_number, bytes) else b""


@dataclass(frozen=True, slots=True)
class RpcCaller:
    """User and timeout of each step of a call."""

    user: str
    timeout_s: float


class RpcResourceManager:
    """``port.ResourceManager`` over Hadoop IPC."""

    def __init__(self, client: HostPort, admin: HostPort, *, user: str, timeout_s: float) -> None:
        self._client, self._admin = client, admin
        self._caller = RpcCaller(user, timeout_s)

    def nodes(self) -> list[YarnNode]:
        request = b"".join(number_field(1, state) for state in _STATES)
        answer = self._call(self._client, _CLIENT, "getClusterNodes", request)
        return [
            _node(report) for at, report in fields(answer) if at == 1 and isinstance(report, bytes)
        ]

    def node(self, node_id: str) -> YarnNode | None:  # noqa: ARG002 -- there is no such call
        return None

    def set_limit(self, limit: YarnLimit) -> None:
        host, _, port = limit.node_id.rpartition(":")
        resource = number_field(1, limit.resource.memory_mb) + number_field(
            2, limit.resource.vcores
        )
        option = bytes_field(1, resource) + number_field(2, limit.overcommit_timeout_ms)
        node = bytes_field(1, host) + number_field(2, int(port))
        entry = bytes_field(1, node) + bytes_field(2, option)
        self._call(self._admin, _ADMIN, "updateNodeResource", bytes_field(1, entry))

    def signal_container(self, container_id: str) -> None:
        request = bytes_field(1, container_id_message(container_id)) + number_field(2, _KILL)
        self._call(self._client, _CLIENT, "signalToContainer", request)

    def is_active(self) -> bool:
        answer = self._call(self._admin, HA_SERVICE, "getServiceStatus", b"")
        return number_of(answer, 1) == _ACTIVE

    def close(self) -> None:
        """Do nothing: there are no persistent connections."""

    def _call(self, address: HostPort, protocol: str, method: str, request: bytes) -> bytes:
        return call_rpc(address, protocol, method, request, self._caller)


def call_rpc(
    address: HostPort, protocol: str, method: str, request: bytes, caller: RpcCaller
) -> bytes:
    """Return the response of a method over a new connection.  Raises YarnError."""
    context = bytes_field(2, bytes_field(1, caller.user)) + bytes_field(3, protocol)
    client_id = uuid.uuid4().bytes
    connection = delimited(_request_header(_CONTEXT_CALL, -1, client_id)) + delimited(context)
    named = bytes_field(1, method) + bytes_field(2, protocol) + number_field(3, 1)
    body = delimited(_request_header(0, 0, client_id)) + delimited(named) + delimited(request)
    call = f"{method} of {address[0]}:{address[1]}"
    try:
        with socket.create_connection(address, caller.timeout_s) as stream:
            stream.sendall(_HEADER + _frame(connection) + _frame(body))
            (size,) = struct.unpack(">i", _exactly(stream, 4))
            if not 0 <= size <= _LARGEST_ANSWER:
                raise YarnError(f"{call}: an answer of {size} bytes")
            answer = _exactly(stream, size)
    except OSError as error:
        raise YarnError(f"{call}: {error or type(error).__name__}") from None
    status, at = read_delimited(answer, 0)
    if number_of(status, 2) != _SUCCESS:
        raise _refusal(call, status)
    return read_delimited(answer, at)[0]


def container_id_message(text: str) -> bytes:
    """Return ContainerIdProto of such as ``container_e17_1700000000000_0003_01_000002``.

    Raises YarnRefusedError for an invalid id.
    """
    parts = text.split("_")
    epoch = 0
    if len(parts) > 1 and parts[1].startswith("e") and parts[1][1:].isdecimal():
        epoch = int(parts.pop(1)[1:])
    if len(parts) != 5 or parts[0] != "container" or not all(p.isdecimal() for p in parts[1:]):  # noqa: PLR2004 -- container, cluster, application, attempt, number
        raise YarnRefusedError(f"must be the id of a container, got {text!r}")
    cluster, application, attempt, number = (int(part) for part in parts[1:])
    app_id = number_field(1, application) + number_field(2, cluster)
    attempt_id = bytes_field(1, app_id) + number_field(2, attempt)
    return (
        bytes_field(1, app_id) + bytes_field(2, attempt_id) + number_field(3, epoch << 40 | number)
    )


def _request_header(call_id: int, retry: int, client_id: bytes) -> bytes:
    """Return RpcRequestHeaderProto: rpcKind, rpcOp, callId, clientId, retryCount."""
    return (
        number_field(1, _PROTOCOL_BUFFER)
        + number_field(2, _FINAL_PACKET)
        + zigzag_field(3, call_id)
        + bytes_field(4, client_id)
        + zigzag_field(5, retry)
    )


def _refusal(call: str, status: bytes) -> YarnError:
    """Return the error in an RpcResponseHeaderProto: exceptionClassName, errorMsg."""
    kind = bytes_of(status, 4).decode(errors="replace").rpartition(".")[2]
    message = (bytes_of(status, 5).decode(errors="replace").splitlines() or [""])[0]
    text = f"{call}: {kind}: {message}"
    if kind == "StandbyException":
        return NotActiveError(text)
    if kind in {"RpcNoSuchProtocolException", "RpcNoSuchMethodException"}:
        return UnsupportedError(text)
    if "unrecognized node" in message.lower():
        return UnknownYarnNodeError(text)
    if kind == "AccessControlException" and "SIMPLE authentication is not enabled" in message:
        text += " (Kerberos, which is not supported)"
    return YarnRefusedError(text)


def _node(report: bytes) -> YarnNode:
    """Return the node in a NodeReportProto: nodeId 1, used 4, capability 5, state 7."""
    node_id = bytes_of(report, 1)
    host, port = bytes_of(node_id, 1).decode(errors="replace"), number_of(node_id, 2)
    return YarnNode(
        f"{host}:{port}",
        _STATES.get(number_of(report, 7), "RUNNING"),
        _resource(bytes_of(report, 5)),
        _resource(bytes_of(report, 4)),
        number_of(report, 6),
    )


def _resource(message: bytes) -> YarnResource:
    return YarnResource(max(number_of(message, 2), 0), max(number_of(message, 1), 0))


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = stream.recv(size - len(data))
        if not part:
            raise ConnectionError("the connection was closed")
        data += part
    return bytes(data)
