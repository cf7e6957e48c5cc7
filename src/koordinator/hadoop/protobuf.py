"""Protocol buffers by field number, with the types of Hadoop's messages only.

Source: protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator
from typing import Final

from koordinator.hadoop.port import YarnError

_WORD: Final = (1 << 64) - 1
_LONGEST: Final = 10  # bytes of a varint
_SIGN: Final = 1 << 63


def varint(value: int) -> bytes:
    """Return a number in groups of seven bits; a negative one takes ten bytes."""
    value &= _WORD
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 -- seven bits
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(field: int, value: int) -> bytes:
    """Return a field of type int32, int64, bool or enum."""
    return varint(field << 3) + varint(value)


def zigzag_field(field: int, value: int) -> bytes:
    """Return a field of type sint32."""
    return number_field(field, (value << 1) ^ (value >> 63))


def bytes_field(field: int, value: bytes | str) -> bytes:
    """Return a field of type string, bytes or message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def delimited(message: bytes) -> bytes:
    """Return a message with its length in front."""
    return varint(len(message)) + message


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it.  Raises YarnError."""
    value = 0
    for count in range(_LONGEST):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:  # noqa: PLR2004 -- the continuation bit
            return value & _WORD, at
    raise YarnError("invalid message: unterminated varint")


def read_delimited(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the message at a place, and the place after it.  Raises YarnError."""
    size, at = read_varint(data, at)
    if at + size > len(data):
        raise YarnError("invalid message: truncated")
    return data[at : at + size], at + size


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; messages and strings are bytes.  Raises YarnError."""
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        match key & 7:
            case 0:
                value, at = read_varint(message, at)
                yield key >> 3, value - (1 << 64) if value & _SIGN else value
            case 2:
                text, at = read_delimited(message, at)
                yield key >> 3, text
            case 1 | 5 as width:
                at += 8 if width == 1 else 4
            case wire:
                raise YarnError(f"invalid message: wire type {wire}")


def number_of(message: bytes, field: int) -> int:
    """Return a number, 0 if it is left out."""
    value_or_bytes = next((value for at, value in fields(message) if at == field), 0)
    return value_or_bytes if isinstance(value_or_bytes, int) else 0


def bytes_of(message: bytes, field: int) -> bytes:
    """Return a string or message, empty if it is left out."""
    value_or_number = next((value for at, value in fields(message) if at == field), b"")
    return value_or_number if isinstance(value_or_number, bytes) else b""
