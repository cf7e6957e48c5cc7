"""Strategic merge patches: lists of named things are merged by their names."""

from typing import Any

import pytest

from koordinator.api.strategic_merge import strategic_merge
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
