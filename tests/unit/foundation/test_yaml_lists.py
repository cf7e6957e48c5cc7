"""A long list is read in parts as it would be read as a whole, or not in parts."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation import yaml_documents as module
from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import (
    YamlList,
    documents_and_lists,
    long_yaml_list,
    to_yaml,
    yaml_document,
    yaml_documents,
)

TEXT = st.text(st.sampled_from("ab: -#'\"\n&*|>items"), max_size=12)
VALUES = st.recursive(
    TEXT | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def in_parts(text: str) -> tuple[dict[str, Any], list[Any]] | None:
    result = long_yaml_list(text.encode(), least_bytes=0)
    return None if result is None else (result.header, list(result.items("", lambda _: None)))


@given(st.lists(st.dictionaries(TEXT, VALUES, max_size=3), min_size=1, max_size=6))
def test_written_list_reads_back(items: list[Any]) -> None:
    """Items with arbitrary text are read back unchanged."""
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
def test_item_is_read_as_in_the_whole(text: str) -> None:
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
def test_other_documents_are_not_read_in_parts(text: str) -> None:
    """Files with several documents are not read in parts, either."""
    assert in_parts(text) is None


def test_a_mistake_is_placed_as_in_the_whole() -> None:
    """With line and path of the document."""
    text = "kind: List\nitems:\n- a: 1\n- b: 1\n  b: 2\n"
    with pytest.raises(InputError) as whole:
        yaml_document(text, "f")
    result = long_yaml_list(text.encode(), least_bytes=0)
    assert result is not None
    with pytest.raises(InputError) as parts:
        list(result.items("f", lambda _: None))

    assert str(parts.value) == str(whole.value)


# -- several documents in one file -------------------------------------------------------------

LONG = "kind: List\nitems:\n" + "".join(f"- number: {n}\n  text: some text\n" for n in range(20))
DOCUMENTS = ["a: 1\n", LONG, "# nothing\n", "b: [2]\n", "kind: Other\n" + LONG[11:]]


def read_all(text: str) -> list[Any]:
    """Return the documents of a file, those read in parts as they are in the whole."""
    result = documents_and_lists(
        text.encode(), "f", lambda header: header.get("kind") == "List", lambda _: None, 200
    )
    whole = [
        (number, {**one.header, "items": list(one.items("f", lambda _: None))})
        if isinstance(one, YamlList)
        else (number, one)
        for number, one in result
    ]
    assert [number for number, _ in whole] == list(range(1, len(whole) + 1))
    return [one for _, one in whole]


@given(st.lists(st.sampled_from(DOCUMENTS), min_size=1, max_size=6), st.booleans())
def test_documents_and_lists_of_a_file_are_those_of_the_whole(
    documents: list[str], has_start: bool
) -> None:
    """In any order; a list of another kind is a document."""
    text = ("---\n" if has_start else "") + "---\n".join(documents)

    assert read_all(text) == list(yaml_documents(text, "f"))


@pytest.mark.parametrize("wrong", ["c: {\n", LONG + "- d: 1\n  d: 2\n"])
def test_a_mistake_after_a_long_list_is_placed_as_in_the_whole(wrong: str) -> None:
    """Line numbers count from the begin of the file."""
    text = f"{LONG}---\na: 1\n---\n{LONG}---\n{wrong}"
    with pytest.raises(InputError) as whole:
        list(yaml_documents(text.encode(), "f"))
    with pytest.raises(InputError) as parts:
        read_all(text)

    assert str(parts.value) == str(whole.value)


def test_several_long_lists_in_one_file_take_the_memory_of_a_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes and pods of a cluster in one file; a whole document takes 50 times its text."""
    monkeypatch.setattr(module, "PART_BYTES", 1 << 12)
    item = "- metadata: {name: a, namespace: b}\n  spec: {containers: [{name: c, image: d}]}\n"
    text = "---\n".join(["kind: List\nitems:\n" + 500 * item] * 2).encode()
    tracemalloc.start()
    try:
        count = 0
        for _, long_list in documents_and_lists(text, "f", lambda _: True, lambda _: None, 1 << 14):
            count += sum(1 for _ in long_list.items("f", lambda _: None))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert count == 1000
    assert peak < 10 * len(text)
