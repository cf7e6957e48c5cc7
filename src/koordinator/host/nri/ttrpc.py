"""ttrpc over the multiplexed connection of NRI.

A message has the length of its data and the number of its call (four bytes each), its kind and
flags (a byte each), and data.  The calling side numbers its calls 1, 3, 5, ...

A frame has the number of its stream and the length of its payload, four bytes each, and the
payload.  Sent frames have at most 4,096 bytes: a larger one does not fit into the runtime's buffer,
and the runtime closes the connection.

Source: containerd/ttrpc channel.go, PROTOCOL.md, request.proto; containerd/nri
pkg/net/multiplex/mux.go.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final

from koordinator.foundation.errors import HostError
from koordinator.foundation.protobuf import FieldNumber

MOST_DATA: Final = 4 << 20
_HEADER = struct.Struct(">IIBB")


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


MOST_SENT: Final = 4096
MOST_RECEIVED: Final = (4 << 20) + 10
_MUX_HEADER = struct.Struct(">II")
_MOST_PAYLOAD: Final = MOST_SENT - _MUX_HEADER.size


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
