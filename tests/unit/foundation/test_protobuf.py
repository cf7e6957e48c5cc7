"""Wire format of Protocol Buffers, and rejection of invalid bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.errors import InputError
from koordinator.foundation.protobuf import (
    FieldNumber,
    UnknownFields,
    decode_message,
    encode_message,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """Message of one number."""

    value: Annotated[int, FieldNumber(1)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A field of every kind."""

    text: Annotated[str, FieldNumber(1)] = ""
    data: Annotated[bytes, FieldNumber(2)] = b""
    flag: Annotated[bool, FieldNumber(3)] = False
    count: Annotated[int, FieldNumber(4)] = 0
    inner: Annotated[Inner | None, FieldNumber(5)] = None
    inners: Annotated[tuple[Inner, ...], FieldNumber(6)] = ()
    texts: Annotated[tuple[str, ...], FieldNumber(7)] = ()
    counts: Annotated[tuple[int, ...], FieldNumber(8)] = ()
    labels: Annotated[Mapping[str, str], FieldNumber(200)] = field(default_factory=dict)
    boxed: Annotated[int | None, FieldNumber(10)] = None
    boxed_text: Annotated[str | None, FieldNumber(11)] = None


INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INNER = st.builds(Inner, value=INT64)
WHOLE = st.builds(
    Whole,
    text=TEXT,
    data=st.binary(max_size=300),
    flag=st.booleans(),
    count=INT64,
    inner=st.none() | INNER,
    inners=st.lists(INNER, max_size=3).map(tuple),
    texts=st.lists(TEXT, max_size=3).map(tuple),
    counts=st.lists(INT64, max_size=3).map(tuple),
    labels=st.dictionaries(TEXT, TEXT, max_size=3),
    boxed=st.none() | INT64,
    boxed_text=st.none() | TEXT,
)


@given(WHOLE)
def test_encoded_message_is_decoded(message: Whole) -> None:
    """Every value of every kind comes back, 0 in a box as well as none."""
    assert decode_message(Whole, encode_message(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    """Hostile lengths and numbers end in an InputError, and cost no more than the bytes."""
    try:
        decode_message(Whole, data)
    except InputError:
        return


@given(WHOLE, st.data())
def test_a_message_is_never_taken_for_more_than_came(message: Whole, data: st.DataObject) -> None:
    """Of a message that is torn, whole fields are read or it is refused."""
    whole = encode_message(message)
    cut = data.draw(st.integers(0, len(whole)))
    try:
        part = decode_message(Whole, whole[:cut])
    except InputError:
        return
    assert len(encode_message(part)) <= cut


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        # from the encoding page of protobuf.dev: field 1 varint 150, field 2 "testing"
        (Inner(value=150), "089601"),
        (Whole(data=b"testing"), "120774657374696e67"),
        (Whole(inner=Inner(value=150)), "2a03089601"),
        (Inner(value=-1), "08ffffffffffffffffff01"),
        (Whole(boxed=0), "5200"),
        (Whole(boxed=-1), "520b08ffffffffffffffffff01"),
        (Whole(labels={"a": "b"}), "c20c060a0161120162"),
    ],
)
def test_wire_format_equals_the_reference_encoder(message: object, wire: str) -> None:
    """Other implementations of protobuf write the same bytes."""
    assert encode_message(message).hex() == wire
    assert decode_message(type(message), bytes.fromhex(wire)) == message


def test_numbers_in_a_row_may_be_packed() -> None:
    """Others write repeated numbers as one field."""
    assert decode_message(Whole, bytes.fromhex("4206038e029ea705")).counts == (3, 270, 86942)


def test_undeclared_fields_are_ignored() -> None:
    """A field of a later version, of any type, changes nothing."""
    later = "f80701" + "f9070000000000000000" + "fa070141" + "fd0700000000"
    assert decode_message(Inner, bytes.fromhex(later + "0805")) == Inner(value=5)


@pytest.mark.parametrize(
    "wire",
    ["08", "0a05", "0affffffff0f", "00", "0b", "08ffffffffffffffffffff01", "0a0180", "3d00"],
)
def test_torn_and_impossible_bytes_are_refused(wire: str) -> None:
    """Half a number, half a text, lengths beyond the end, field 0, groups, no UTF-8."""
    with pytest.raises(InputError):
        decode_message(Whole, bytes.fromhex(wire))


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """An older version of ``Whole`` with fewer fields."""

    inner: Annotated[Inner | None, FieldNumber(5)] = None
    texts: Annotated[tuple[str, ...], FieldNumber(7)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


@given(WHOLE)
def test_unknown_fields_survive_reencoding(message: Whole) -> None:
    """Every field survives a decoder of an older version."""
    seen = decode_message(Older, encode_message(message))
    assert (seen.inner, seen.texts) == (message.inner, message.texts)
    assert decode_message(Whole, encode_message(seen)) == message


def test_numbers_of_fixed_size_are_kept_too() -> None:
    """No declared field has them, but a message that is passed on may."""
    data = bytes([9 << 3 | 1, *range(8), 10 << 3 | 5, *range(4)])
    assert encode_message(decode_message(Older, data)) == data
