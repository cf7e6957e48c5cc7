"""Strategic merge patches: lists of named things are merged by their names.

Unknown fields survive changes through our types.
"""

from typing import Any

import pytest

from koordinator.api.json_merge import carried_over, strategic_merge
from koordinator.api.meta import JsonObject
from koordinator.foundation.errors import InputError

POD: Any = {
    "metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}},
    "spec": {
        "containers": [
            {"name": "one", "image": "i", "env": [{"name": "A", "value": "1"}]},
            {"name": "two", "image": "j"},
        ],
        "tolerations": [{"key": "old"}],
        "nodeSelector": {"disk": "ssd", "zone": "1"},
    },
}

MANIFEST = {
    "foreign": 1,
    "known": "old",
    "inner": {"foreign": 2, "known": 3},
    "list": [{"name": "a", "foreign": 4, "known": 5}, {"name": "b", "known": 6}],
}
READ = {
    "known": "old",
    "inner": {"known": 3},
    "list": [{"name": "a", "known": 5}, {"name": "b", "known": 6}],
}


@pytest.mark.parametrize(
    ("patch", "path", "wanted"),
    [
        ({"spec": {"nodeSelector": {"zone": None}}}, "nodeSelector", {"disk": "ssd"}),
        (
            {"spec": {"nodeSelector": {"$patch": "replace", "a": "b"}}},
            "nodeSelector",
            {"a": "b"},
        ),
        ({"spec": {"nodeSelector": {"$patch": "delete"}}}, "nodeSelector", {}),
        (
            {"spec": {"nodeSelector": {"$retainKeys": ["zone"], "zone": "2"}}},
            "nodeSelector",
            {"zone": "2"},
        ),
        ({"spec": {"tolerations": [{"key": "new"}]}}, "tolerations", [{"key": "new"}]),
        (
            {"spec": {"containers": [{"name": "two", "image": "k"}]}},
            "containers",
            [POD["spec"]["containers"][0], {"name": "two", "image": "k"}],
        ),
        (
            {"spec": {"containers": [{"name": "one", "$patch": "delete"}, {"name": "three"}]}},
            "containers",
            [{"name": "two", "image": "j"}, {"name": "three"}],
        ),
        (
            {"spec": {"containers": [{"$patch": "replace"}, {"name": "only"}]}},
            "containers",
            [{"name": "only"}],
        ),
    ],
)
def test_patched_pod_equals_the_result_of_kubectl(patch: Any, path: str, wanted: Any) -> None:
    """As kubectl patch does by default."""
    assert strategic_merge(POD, patch)["spec"][path] == wanted


def test_lists_of_words_grow_and_shrink() -> None:
    """Finalizers are added once, and taken away by name."""
    patch = {
        "metadata": {
            "$setElementOrder/finalizers": ["b", "c"],
            "$deleteFromPrimitiveList/finalizers": ["a"],
            "finalizers": ["b", "c"],
        }
    }

    assert strategic_merge(POD, patch)["metadata"]["finalizers"] == ["b", "c"]


@pytest.mark.parametrize(
    "patch", [{"spec": {"$patch": "improve"}}, {"spec": {"containers": [{"image": "x"}]}}]
)
def test_invalid_patch_is_rejected(patch: Any) -> None:
    """A directive that doesn't exist, an entry without its name."""
    with pytest.raises(InputError):
        strategic_merge(POD, patch)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({"known": "new"}, {"known": "new"}),
        ({"inner": {"known": 9}}, {"inner": {"foreign": 2, "known": 9}}),
        ({"inner": {}}, {"inner": {"foreign": 2}}),
        (
            {"list": [{"name": "c"}, {"name": "a", "known": 9}]},
            {"list": [{"name": "c"}, {"name": "a", "foreign": 4, "known": 9}]},
        ),
        ({"list": [1, 2]}, {"list": [1, 2]}),
        ({"added": {"x": 1}}, {"added": {"x": 1}}),
    ],
)
def test_foreign_fields_survive(change: JsonObject, expected: JsonObject) -> None:
    """At every depth; items of lists are matched by name."""
    assert carried_over(MANIFEST, READ, READ | change) == MANIFEST | expected


def test_removed_fields_are_not_carried_over() -> None:
    """Fields below a type that reads none of them are carried over."""
    manifest = {"gone": 1, "empty": {"foreign": 2}}
    assert carried_over(manifest, {"gone": 1, "empty": {}}, {}) == {"empty": {"foreign": 2}}
