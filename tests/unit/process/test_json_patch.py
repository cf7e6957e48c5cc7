"""The difference of two objects as a JSON patch."""

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from koordinator.process.admission_reviews import json_patch

LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=3)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~", max_size=2), inner),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("ab/~", max_size=2), TREES)


def applied(document: Any, patch: list[dict[str, Any]]) -> Any:
    """Apply a patch as RFC 6902 has it; add, remove and replace only."""
    whole = {"": deepcopy(document)}
    for operation in patch:
        steps = [s.replace("~1", "/").replace("~0", "~") for s in operation["path"].split("/")]
        target: Any = whole
        for step in steps[:-1]:
            target = target[int(step) if isinstance(target, list) else step]
        key: Any = int(steps[-1]) if isinstance(target, list) else steps[-1]
        if operation["op"] == "remove":
            del target[key]
        else:
            assert (key in target) is (operation["op"] == "replace") or isinstance(target, list)
            target[key] = operation["value"]
    return whole[""]


@given(before=OBJECTS, after=OBJECTS)
def test_a_patch_makes_one_of_the_other(before: Any, after: Any) -> None:
    """Two equal objects have an empty patch."""
    assert applied(before, json_patch(before, after)) == after
    assert json_patch(before, before) == []


def test_only_what_changed_is_written() -> None:
    """Down to places in lists of one length; slashes are escaped."""
    before = {"a": {"x/y": 1, "z": 2}, "l": [{"n": 1}, {"n": 2}], "m": [1]}
    after = {"a": {"x/y": 3}, "l": [{"n": 1}, {"n": 5}], "m": [1, 2]}

    assert json_patch(before, after) == [
        {"op": "remove", "path": "/a/z"},
        {"op": "replace", "path": "/a/x~1y", "value": 3},
        {"op": "replace", "path": "/l/1/n", "value": 5},
        {"op": "replace", "path": "/m", "value": [1, 2]},
    ]
