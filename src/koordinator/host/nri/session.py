"""Session of one plugin with the runtime over ttrpc, without a socket: bytes in, bytes out.

The plugin registers; the runtime then configures it, sends the existing pods, and calls it.  There
are two streams, one for calls of the runtime and one for calls of the plugin.

A message has the length of its data and the number of its call (four bytes each), its kind and
flags (a byte each), and data.  The calling side numbers its calls 1, 3, 5, ...

A frame has the number of its stream and the length of its payload, four bytes each, and the
payload.  Sent frames have at most 4,096 bytes: a larger one does not fit into the runtime's buffer,
and the runtime closes the connection.

Source: containerd/nri pkg/stub/stub.go, pkg/adaptation/plugin.go, pkg/net/multiplex/mux.go;
containerd/ttrpc channel.go, PROTOCOL.md, request.proto.
"""

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Annotated, Final

from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.protobuf import FieldNumber, decode_message, encode_message
from koordinator.host.nri.messages import (
    PACKAGE,
    ConfigureRequest,
    CreateContainerRequest,
    NriEmpty,
    RegisterPluginRequest,
    StateChangeEvent,
    SynchronizeRequest,
    UpdateContainerRequest,
)

MOST_DATA: Final = 4 << 20
_HEADER = struct.Struct(">IIBB")

MOST_SENT: Final = 4096
MOST_RECEIVED: Final = (4 << 20) + 10
_MUX_HEADER = struct.Struct(">II")
_MOST_PAYLOAD: Final = MOST_SENT - _MUX_HEADER.size

PLUGIN_STREAM, RUNTIME_STREAM = 1, 2
_REGISTRATION = 1  # number of the plugin's only call
_REQUESTS: Final[Mapping[str, type[object]]] = MappingProxyType(
    {
        "Configure": ConfigureRequest,
        "Synchronize": SynchronizeRequest,
        "CreateContainer": CreateContainerRequest,
        "UpdateContainer": UpdateContainerRequest,
        "StateChange": StateChangeEvent,
        "Shutdown": NriEmpty,
    }
)


class TtrpcKind(IntEnum):
    """Kind of a message; the kinds of streaming calls are not used by NRI."""

    REQUEST = 1
    RESPONSE = 2


class TtrpcCode(IntEnum):
    """Status of a call, with gRPC's numbers."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    UNIMPLEMENTED = 12


@dataclass(frozen=True, slots=True)
class TtrpcMessage:
    """Complete message."""

    call: int
    kind: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TtrpcRequest:
    """Data of a request."""

    service: Annotated[str, FieldNumber(1)] = ""
    method: Annotated[str, FieldNumber(2)] = ""
    payload: Annotated[bytes, FieldNumber(3)] = b""
    timeout_nano: Annotated[int, FieldNumber(4)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TtrpcStatus:
    """Status of a failed call."""

    code: Annotated[int, FieldNumber(1)] = 0
    message: Annotated[str, FieldNumber(2)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TtrpcResponse:
    """Data of a response."""

    status: Annotated[TtrpcStatus | None, FieldNumber(1)] = None
    payload: Annotated[bytes, FieldNumber(2)] = b""


def pack_message(message: TtrpcMessage) -> bytes:
    """Return the bytes of a message.  Raises HostError for one above the size limit."""
    if len(message.data) > MOST_DATA:
        raise HostError(f"message has {len(message.data)} bytes; the limit is {MOST_DATA}")
    return _HEADER.pack(len(message.data), message.call, message.kind, 0) + message.data


class TtrpcReader:
    """Incremental parser of messages, which buffers at most one message."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[TtrpcMessage]:
        """Yield each complete message.

        Raises HostError for an invalid length; the rest of the stream is then undecodable.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            length, call, kind, _ = _HEADER.unpack_from(self._buffer)
            if length > MOST_DATA:
                raise HostError(f"the runtime sent a message of {length} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield TtrpcMessage(call, kind, body)


def frames_of(stream: int, data: bytes) -> bytes:
    """Split data of one stream into frames."""
    pieces = []
    for at in range(0, len(data), _MOST_PAYLOAD):
        piece = data[at : at + _MOST_PAYLOAD]
        pieces += [_MUX_HEADER.pack(stream, len(piece)), piece]
    return b"".join(pieces)


class FrameReader:
    """Incremental parser of frames, which buffers at most one frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield stream and payload of each complete frame.

        Raises HostError for an invalid length; the connection must then be closed.
        """
        self._buffer += data
        while len(self._buffer) >= _MUX_HEADER.size:
            stream, length = _MUX_HEADER.unpack_from(self._buffer)
            if length > MOST_RECEIVED:
                raise HostError(f"the runtime sent a frame of {length} bytes")
            end = _MUX_HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_MUX_HEADER.size : end])
            del self._buffer[:end]
            yield stream, payload


class NriRefusalError(HostError):
    """The plugin rejects the pod or container of a call; raised by ``answer``."""


@dataclass(frozen=True, slots=True)
class NriCall:
    """Call of the runtime; ``number`` identifies its response.

    ``request`` is None for an undecodable call, with the reason in ``problem``.
    """

    number: int
    method: str
    request: object | None
    problem: str = ""


class NriSession:
    """Session of a connected plugin; each connection has its own."""

    def __init__(self, name: str, index: str) -> None:
        self.is_registered = False
        self._name = name
        self._index = index
        self._frames = FrameReader()
        self._streams = {PLUGIN_STREAM: TtrpcReader(), RUNTIME_STREAM: TtrpcReader()}
        self._unanswered: list[bytes] = []

    def opening(self) -> bytes:
        """Return the registration, which the plugin sends first."""
        register = RegisterPluginRequest(plugin_name=self._name, plugin_idx=self._index)
        request = TtrpcRequest(
            service=f"{PACKAGE}.Runtime",
            method="RegisterPlugin",
            payload=encode_message(register),
        )
        message = TtrpcMessage(_REGISTRATION, TtrpcKind.REQUEST, encode_message(request))
        return frames_of(RUNTIME_STREAM, pack_message(message))

    def receive(self, data: bytes) -> Iterator[NriCall]:
        """Yield the calls in received bytes.

        ``refusals`` has the responses to invalid calls.  Raises HostError for undecodable bytes,
        and if the runtime rejects the plugin.
        """
        for stream, payload in self._frames.feed(data):
            reader = self._streams.get(stream)
            if reader is None:
                continue  # a stream of an unknown service
            for message in reader.feed(payload):
                if stream == RUNTIME_STREAM:
                    self._process_response(message)
                elif message.kind == TtrpcKind.REQUEST:
                    call = self._call_of(message)
                    if call is not None:
                        yield call

    def refusals(self) -> bytes:
        """Return the responses to invalid and unknown calls."""
        sent, self._unanswered = b"".join(self._unanswered), []
        return sent

    def answer(self, number: int, payload: object) -> bytes:
        """Return the response to a call."""
        return _response(number, TtrpcResponse(payload=encode_message(payload)))

    def failure(self, number: int, text: str, code: TtrpcCode = TtrpcCode.UNKNOWN) -> bytes:
        """Return an error response; the runtime then abandons the pod or container."""
        return _response(number, TtrpcResponse(status=TtrpcStatus(code=code, message=text)))

    def _process_response(self, message: TtrpcMessage) -> None:
        if message.kind != TtrpcKind.RESPONSE or message.call != _REGISTRATION:
            return
        try:
            response = decode_message(TtrpcResponse, message.data)
        except InputError as error:
            raise HostError(
                f"invalid response of the runtime to the registration: {error}"
            ) from None
        if response.status is not None and response.status.code:
            raise HostError(f"the runtime rejected the plugin: {response.status.message[:200]}")
        self.is_registered = True

    def _call_of(self, message: TtrpcMessage) -> NriCall | None:
        method = ""
        try:
            envelope = decode_message(TtrpcRequest, message.data)
            method = envelope.method
            declared = _REQUESTS.get(method)
            if declared is not None:
                return NriCall(message.call, method, decode_message(declared, envelope.payload))
            text, code = f"no method {method[:80]}", TtrpcCode.UNIMPLEMENTED
        except InputError as error:
            if method:
                return NriCall(message.call, method, None, str(error))
            text, code = str(error), TtrpcCode.INVALID_ARGUMENT
        self._unanswered.append(self.failure(message.call, text, code))
        return None


def _response(number: int, response: TtrpcResponse) -> bytes:
    message = TtrpcMessage(number, TtrpcKind.RESPONSE, encode_message(response))
    return frames_of(PLUGIN_STREAM, pack_message(message))
