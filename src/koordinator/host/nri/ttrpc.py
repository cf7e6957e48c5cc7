"""Remote calls over a byte stream: gRPC's little brother, without HTTP.

A message is the length of its data, the number of its call (four bytes each), its kind, flags (a
byte each), and data.  The side that calls numbers its calls 1, 3, 5, ...
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
    """What a message is; others are of streaming calls, which NRI has not."""

    REQUEST = 1
    RESPONSE = 2


class TtrpcCode(IntEnum):
    """How a call ended, in gRPC's numbers."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    UNIMPLEMENTED = 12


@dataclass(frozen=True, slots=True)
class TtrpcMessage:
    """A whole message."""

    call: int
    kind: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TtrpcRequest:
    """The data of a request."""

    service: Annotated[str, FieldNumber(1)] = ""
    method: Annotated[str, FieldNumber(2)] = ""
    payload: Annotated[bytes, FieldNumber(3)] = b""
    timeout_nano: Annotated[int, FieldNumber(4)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TtrpcStatus:
    """Why a call failed."""

    code: Annotated[int, FieldNumber(1)] = 0
    message: Annotated[str, FieldNumber(2)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TtrpcResponse:
    """The data of a response."""

    status: Annotated[TtrpcStatus | None, FieldNumber(1)] = None
    payload: Annotated[bytes, FieldNumber(2)] = b""


def pack_message(message: TtrpcMessage) -> bytes:
    """Return the bytes of a message.  Raises HostError for one that the other side would refuse."""
    if len(message.data) > MOST_DATA:
        raise HostError(f"a message of {len(message.data)} bytes; at most {MOST_DATA} are taken")
    return _HEADER.pack(len(message.data), message.call, message.kind, 0) + message.data


class TtrpcReader:
    """Puts messages together from bytes that come in any pieces; it keeps no more than one."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[TtrpcMessage]:
        """Yield each message that is whole.

        Raises HostError for a length that is not allowed: nothing after it can be made out.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            length, call, kind, _ = _HEADER.unpack_from(self._buffer)
            if length > MOST_DATA:
                raise HostError(f"the runtime sent a message of {length} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            found = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield TtrpcMessage(call, kind, found)
