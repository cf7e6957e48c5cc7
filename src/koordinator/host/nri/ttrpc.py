"""ttRPC: remote calls over a byte stream, like gRPC without HTTP.

A message has the length of its data and the number of its call (four bytes each), its kind and
flags (a byte each), and data.  The calling side numbers its calls 1, 3, 5, ...
Source: containerd/ttrpc channel.go, PROTOCOL.md, request.proto.
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
