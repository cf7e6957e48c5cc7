"""Unknown fields survive changes through our types."""

import pytest

from koordinator.api.meta import JsonObject
from koordinator.cluster.unknown_fields import carried_over

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
    """Unless our types read nothing of it."""
    manifest = {"gone": 1, "empty": {"foreign": 2}}
    assert carried_over(manifest, {"gone": 1, "empty": {}}, {}) == {"empty": {"foreign": 2}}
