"""A long list is read in parts as it would be read as a whole, or not in parts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import to_yaml, yaml_document
from koordinator.foundation.yaml_lists import long_yaml_list

TEXT = st.text(st.sampled_from("ab: -#'\"\n&*|>items"), max_size=12)
VALUES = st.recursive(
    TEXT | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def in_parts(text: str) -> tuple[dict[str, Any], list[Any]] | None:
    found = long_yaml_list(text.encode(), least_bytes=0)
    return None if found is None else (found.header, list(found.items("", lambda _: None)))


@given(st.lists(st.dictionaries(TEXT, VALUES, max_size=3), min_size=1, max_size=6))
def test_what_is_written_comes_back(items: list[Any]) -> None:
    """Whatever stands in the items."""
    text = to_yaml({"apiVersion": "v1", "items": items, "kind": "List"})

    assert in_parts(text) == ({"apiVersion": "v1", "kind": "List"}, items)


@pytest.mark.parametrize(
    "text",
    [
        "---\nkind: List\nitems:\n  - a: 1\n  - b: 2\n",
        "items:\n- a: &x 1\n- b: *x\nkind: List\n",
        'items:\n- a: "1\n- b"\n- c\nkind: List\n',
        "items:\n- |\n  text\n  - more\n# comment\n- 2\nkind: List\n",
        "kind: List\nitems:\n- 1\n-\n  a: 2\n",
    ],
)
def test_an_item_is_what_it_is_in_the_whole(text: str) -> None:
    """Anchors of other items, and lines that only look like items."""
    header, items = in_parts(text) or ({}, [])

    assert {**header, "items": items} == yaml_document(text, "")


@pytest.mark.parametrize(
    "text",
    [
        "items: []\n",
        "items:\n  a: 1\n",
        "items:\n- 1\n---\nitems:\n- 2\n",
        "items:\n- 1\nitems:\n- 2\n",
        "a: 1\n",
        json.dumps({"items": [1]}),
        "",
    ],
)
def test_what_is_no_list_is_not_read_in_parts(text: str) -> None:
    """Nor several documents."""
    assert in_parts(text) is None


def test_a_mistake_is_placed_as_in_the_whole() -> None:
    """With line and path of the document."""
    text = "kind: List\nitems:\n- a: 1\n- b: 1\n  b: 2\n"
    with pytest.raises(InputError) as whole:
        yaml_document(text, "f")
    found = long_yaml_list(text.encode(), least_bytes=0)
    assert found is not None
    with pytest.raises(InputError) as parts:
        list(found.items("f", lambda _: None))

    assert str(parts.value) == str(whole.value)
