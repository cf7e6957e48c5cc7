"""Keys that are twice in JSON are found."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.decoders import LARGEST_CHECKED_BYTES, check_keys
from koordinator.foundation.errors import InputError

TREES = st.recursive(
    st.none() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":1,\n"a":2}', "f: a: key must be given only once, got it again in line 2"),
        ('{"a":[{"b":{"c":1,"\\u0063":2}}]}', "f: a.b.c: key must be given only once"),
        ('{"x":"\\":","y":[1e3],"y":1}', "f: y: key must be given only once"),
    ],
)
def test_the_second_is_named(text: str, message: str) -> None:
    """With path and line, however the key is spelt."""
    with pytest.raises(InputError) as refused:
        check_keys(text.encode(), "f")

    assert message in str(refused.value)


@given(TREES, st.booleans(), st.sampled_from([None, 2]))
def test_other_spellings_of_json_are_accepted(
    tree: Any, ascii_only: bool, indent: int | None
) -> None:
    """Indentation and escapes have no influence."""
    check_keys(json.dumps(tree, ensure_ascii=ascii_only, indent=indent).encode(), "f")


@pytest.mark.parametrize("text", [b"{", b"[" * 100_000, b"9" * 9999, b"\xff", b""])
def test_invalid_json_is_left_to_the_decoder(text: bytes) -> None:
    """The decoder reports invalid JSON, so the check of keys doesn't."""
    check_keys(text, "f")


def test_long_texts_are_not_searched() -> None:
    """Programs write those: looking would take longer than reading."""
    check_keys(b'{"a":1,"a":"' + b"x" * LARGEST_CHECKED_BYTES + b'"}', "f")
