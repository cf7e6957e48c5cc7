"""Protocol Buffers (proto3) on the wire, for messages that are declared as dataclasses.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class LinuxCpu:
        shares: Annotated[int | None, FieldNumber(1)] = None
        cpus: Annotated[str, FieldNumber(6)] = ""

A field is a str, bytes, bool, an int (a varint of 64 bits with sign), another message or None, a
tuple of these, or a mapping of str to str.  A scalar or None is one in a message of its own, as in
wrappers.proto, so that 0 is not the same as nothing.  What a message does not declare is left out
when it is read, unless it has ``rest: Annotated[bytes, UnknownFields()] = b""``, which keeps it as
it came, and writes it again: for who passes on what others may extend.
Source: protobuf.dev/programming-guides/encoding.
"""

import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

MessageT = TypeVar("MessageT")

VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_FIXED_SIZE: Final = {_FIXED64: 8, _FIXED32: 4}
_LAST_BYTE: Final = 0x7F  # seven bits a byte; the others have the eighth bit
_MOST_VARINT_BITS: Final = 63  # of the last byte's shift
_WORD, _SIGN = 1 << 64, 1 << 63
_SCALARS: Final = (str, bytes, bool, int)
_KNOWN: Final[dict[type, "_Message"]] = {}  # as many as there are classes of messages


@dataclass(frozen=True, slots=True)
class FieldNumber:
    """Stands in the annotation of a field."""

    value: int


@dataclass(frozen=True, slots=True)
class UnknownFields:
    """Marker in the annotation of the field that keeps undeclared fields as bytes."""


@dataclass(frozen=True, slots=True)
class _Message:
    """The fields of a message by number, and the name of the one that keeps all others."""

    fields: Mapping[int, "_Field"]
    rest: str | None


@dataclass(frozen=True, slots=True)
class _Field:
    """Encoding of one field; ``repeated`` and ``mapping`` collect many values."""

    name: str
    number: int
    is_repeated: bool
    is_mapping: bool
    is_optional: bool
    wire: int
    pack: Callable[[Any], bytes | int]
    unpack: Callable[[Any], Any]


def encode_message(message: object) -> bytes:
    """Return the bytes of a message; fields that have their default are left out."""
    out = bytearray()
    declared = _message(type(message))
    for each in declared.fields.values():
        value = getattr(message, each.name)
        if each.is_repeated or each.is_mapping:
            for item in value.items() if each.is_mapping else value:
                _write(out, each, item)
        elif value is not None and (each.is_optional or value):
            _write(out, each, value)
    if declared.rest is not None:
        out += getattr(message, declared.rest)
    return bytes(out)


def decode_message(declared: type[MessageT], data: bytes) -> MessageT:
    """Return a message.  Raises InputError for bytes that are none, such as half of one."""
    message = _message(declared)
    values: dict[str, Any] = {}
    rest = bytearray()
    for number, wire, value in split_fields(data):
        each = message.fields.get(number)
        if each is not None:
            _take(values, each, wire, value)
        elif message.rest is not None:
            write_field(rest, number, wire, value)
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
    if rest and message.rest is not None:
        values[message.rest] = bytes(rest)
    return declared(**values)


def _take(values: dict[str, Any], each: _Field, wire: int, value: Any) -> None:
    """Put one value that was read among those that were found."""
    if each.is_repeated and each.wire == VARINT and wire == BYTES:  # packed
        values.setdefault(each.name, []).extend(map(each.unpack, _varints(value)))
        return
    if wire != each.wire:
        raise InputError(f"wire type must be {each.wire}, got {wire}", path=each.name)
    try:
        item = each.unpack(value)
    except UnicodeDecodeError:
        raise InputError("must be UTF-8", path=each.name) from None
    if each.is_mapping:
        values.setdefault(each.name, {}).update((item,))
    elif each.is_repeated:
        values.setdefault(each.name, []).append(item)
    else:
        values[each.name] = item


# -- how fields are written and read ---------------------------------------------------------


def _message(declared: type) -> _Message:
    made = _KNOWN.get(declared)
    if made is None:
        made = _KNOWN[declared] = _declared_message(declared)
    return made


def _declared_message(declared: Any) -> _Message:
    hints = typing.get_type_hints(declared, include_extras=True)
    made, rest = {}, None
    for each in fields(declared):
        kind, number = typing.get_args(hints[each.name])
        if isinstance(number, UnknownFields):
            rest = each.name
        else:
            made[number.value] = _field(each.name, number.value, kind)
    return _Message(made, rest)


def _field(name: str, number: int, kind: Any) -> _Field:
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        inner = next(each for each in of if each is not types.NoneType)
        if inner in _SCALARS:
            box, unbox = _boxed(inner)
            return _Field(name, number, False, False, True, BYTES, box, unbox)
        return _Field(name, number, False, False, True, BYTES, *_codec(inner))
    if origin is tuple:
        wire = VARINT if of[0] in {bool, int} else BYTES
        return _Field(name, number, True, False, False, wire, *_codec(of[0]))
    if origin is not None:  # a mapping
        return _Field(name, number, False, True, False, BYTES, _pack_pair, _unpack_pair)
    wire = VARINT if kind in {bool, int} else BYTES
    return _Field(name, number, False, False, False, wire, *_codec(kind))


def _codec(kind: Any) -> tuple[Callable[[Any], bytes | int], Callable[[Any], Any]]:
    if kind is str:
        return str.encode, bytes.decode
    if kind is bytes:
        return bytes, bytes
    if kind is bool:
        return int, bool
    if kind is int:
        return unsigned, signed
    return encode_message, lambda data: decode_message(kind, data)


def _boxed(kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    wire = VARINT if kind in {bool, int} else BYTES
    inner = _Field("value", 1, False, False, False, wire, *_codec(kind))

    def box(value: Any) -> bytes:
        out = bytearray()
        if value:
            _write(out, inner, value)
        return bytes(out)

    def unbox(data: bytes) -> Any:
        value = kind()
        for number, wire, item in split_fields(data):
            if number == 1 and wire == inner.wire:
                value = inner.unpack(item)
        return value

    return box, unbox


def _pack_pair(pair: tuple[str, str]) -> bytes:
    out = bytearray()
    for number, text in enumerate(pair, 1):
        data = text.encode()
        write_varint(out, number << 3 | BYTES)
        write_varint(out, len(data))
        out += data
    return bytes(out)


def _unpack_pair(data: bytes) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    for number, wire, value in split_fields(data):
        if number in texts and wire == BYTES:
            texts[number] = value.decode()
    return texts[1], texts[2]


def signed(value: int) -> int:
    """Return the signed number that was written as a varint of 64 bits."""
    return value - _WORD if value & _SIGN else value


def unsigned(value: int) -> int:
    """Return a number as it is written in a varint of 64 bits."""
    return value % _WORD


# -- the wire --------------------------------------------------------------------------------


def _write(out: bytearray, each: _Field, value: Any) -> None:
    write_field(out, each.number, each.wire, each.pack(value))


def write_field(out: bytearray, number: int, wire: int, packed: bytes | int) -> None:
    """Append a field: its number and wire type, its length if it is BYTES, and its value."""
    write_varint(out, number << 3 | wire)
    if isinstance(packed, int):
        write_varint(out, packed)
        return
    if wire == BYTES:
        write_varint(out, len(packed))
    out += packed


def write_varint(out: bytearray, value: int) -> None:
    """Append a number in groups of seven bits."""
    while value > _LAST_BYTE:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def split_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value: an int for varints, else bytes.  Raises InputError."""
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > _LAST_BYTE:  # most fit into one byte, and a container waits
            tag, at = read_varint(data, at - 1)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise InputError("field number must be at least 1, got 0")
        if wire == BYTES:
            if at >= end:
                raise InputError("truncated number")
            size = data[at]
            at += 1
            if size > _LAST_BYTE:
                size, at = read_varint(data, at - 1)
        elif wire == VARINT:
            value, at = read_varint(data, at)
            yield number, wire, value
            continue
        elif wire in _FIXED_SIZE:
            size = _FIXED_SIZE[wire]
        else:
            raise InputError(f"wire type must be one of 0, 1, 2, 5, got {wire}")
        if size > end - at:
            raise InputError(f"truncated: got {end - at} of {size} bytes")
        yield number, wire, data[at : at + size]
        at += size


def _varints(data: bytes) -> Iterable[int]:
    at = 0
    while at < len(data):
        value, at = read_varint(data, at)
        yield value


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it.  Raises InputError."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise InputError("truncated number")
        if shift > _MOST_VARINT_BITS:
            raise InputError("a number must have at most 64 bits")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte <= _LAST_BYTE:
            return value & (_WORD - 1), at
        shift += 7
