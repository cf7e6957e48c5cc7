"""YAML is read as Kubernetes reads it, and what is hostile in it is refused in one line."""

import json
import math
import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import to_yaml, yaml_document, yaml_documents

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{8: 1, on: 2, 0x10: 3, 1.5: 4, x: 5}", {"8": 1, "true": 2, "16": 3, "1.5": 4, "x": 5}),
        ("[1e3, 0x1F, 0b11, 017, 0, -1_000, +2]", [1000.0, 31, 3, 15, 0, -1000, 2]),
        ("[2024-01-31, 12:30:45, 1_0.5]", ["2024-01-31", "12:30:45", "1_0.5"]),
        ("[yes, Off, ~, null, '', '1', !!str 1, =]", [True, False, None, None, "", "1", "1", "="]),
        ("{a: &x {b: 1, c: 2}, d: {<<: *x, c: 3}}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("{<<: [{a: 1}, {a: 2, b: 2}]}", {"a": 1, "b": 2}),
        ("[&x [1], *x]", [[1], [1]]),
        ("", None),
    ],
)
def test_values_have_the_types_of_json(text: str, expected: object) -> None:
    """No dates, nothing to the base of 60, keys are text, aliases and merges are followed."""
    assert yaml_document(text, "f") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1,\n c: 2}", "f: b.c: key must be given only once, got it again in line 3"),
        ("- a: 1\n- {x: [1, {y: 1, y: 2}]}", "f: [1].x[1].y: key must be given only once"),
        ("{1: a, '1': b}", "f: 1: key must be given only once"),
        ("x: " + "[" * 100_000, "f: not usable YAML: nested too deep"),
        ("- " * 100_000 + "x", "f: not usable YAML: nested too deep"),
        ("a: &a {b: *a}", "f: not usable YAML: nested too deep or in itself"),
        (BOMB, "aliases must expand to at most 100,000 values"),
        (
            "a: {b: " + "9" * 5000 + "}",
            "f: a.b: a number must have at most 400 characters, got 5,000 in line 1",
        ),
        ("a: 0x" + "f" * 5000, "f: a: a number must have at most 400 characters, got 5,002"),
        ("? " + "9" * 5000 + "\n: x", "f: a number must have at most 400 characters, got 5,000"),
        ("a: 0x_", "f: a: must be !!int, got '0x_' in line 1"),
        ("a: !!bool maybe", "f: a: must be !!bool, got 'maybe' in line 1"),
        ("a: !!python/object/apply:os.system [x]", "f: a: must be maps, "),
        (
            "a: !!binary aGk=",
            (
                "f: a: must be maps, sequences, strings, numbers, true, false or null, "
                "got !!binary in line 1"
            ),
        ),
        ("a: !!map [x]", "f: a: must be maps, "),
        ("[a]: b", "f: key must be a string in line 1"),
        ("~: b", "f: key must be a string, got null in line 1"),
        ("<<: 1", "f: << must be followed by a map in line 1"),
        ("a: [", "f: not valid YAML"),
        ("--- 1\n--- 2", "f: must be a single document"),
        ("\0", "f: not valid YAML"),
    ],
)
def test_invalid_document_is_refused_with_file_path_and_line(text: str, message: str) -> None:
    """File, path and line are named, in one short line."""
    with pytest.raises(InputError) as refused:
        yaml_document(text, "f")

    assert message in str(refused.value)
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


def test_documents_are_parsed_lazily() -> None:
    """An error in the second document does not prevent use of the first."""
    documents = yaml_documents("a: 1\n---\nb: 1\nb: 2\n", "f")

    assert next(documents) == {"a": 1}
    with pytest.raises(InputError, match="again in line 4"):
        next(documents)


@given(TREES)
@example("0E0")
@example({"1e3": ["-.5e1", "0x1f", "017", "1_000"]})
def test_written_yaml_reads_back(tree: Any) -> None:
    """Text that Kubernetes would take for a number is quoted, also where YAML 1.1 would not."""
    assert same(yaml_document(to_yaml(tree, allow_unicode=True), "f"), tree)


@given(st.text(string.printable + "\N{LATIN SMALL LETTER U WITH DIAERESIS}", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but InputError comes out, and what comes out is JSON."""
    try:
        result = yaml_document(text, "f")
    except InputError:
        return
    json.dumps(result)


def same(one: Any, other: Any) -> bool:
    """Compare; not a number is itself."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(other):
        return math.isnan(one)
    return bool(one == other)
