"""Multiplexing of several byte streams over one socket.

A frame has the number of its stream and the length of its payload, four bytes each, and the
payload.  Sent frames have at most 4,096 bytes: a larger one does not fit into the runtime's buffer,
and the runtime closes the connection.
Source: containerd/nri pkg/net/multiplex/mux.go.
"""

import struct
from collections.abc import Iterator
from typing import Final

from koordinator.foundation.errors import HostError

MOST_SENT: Final = 4096
MOST_RECEIVED: Final = (4 << 20) + 10
_HEADER = struct.Struct(">II")
_MOST_PAYLOAD: Final = MOST_SENT - _HEADER.size


def frames_of(stream: int, data: bytes) -> bytes:
    """Split data of one stream into frames."""
    pieces = []
    for at in range(0, len(data), _MOST_PAYLOAD):
        piece = data[at : at + _MOST_PAYLOAD]
        pieces += [_HEADER.pack(stream, len(piece)), piece]
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
        while len(self._buffer) >= _HEADER.size:
            stream, length = _HEADER.unpack_from(self._buffer)
            if length > MOST_RECEIVED:
                raise HostError(f"the runtime sent a frame of {length} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield stream, payload
