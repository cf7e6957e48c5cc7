"""Memo of values derived from an object."""

from dataclasses import dataclass, field

import pytest

from koordinator.foundation.memo import Memo, Memory


@dataclass
class Thing:
    memory: Memory = field(default_factory=dict)


def test_value_is_computed_once() -> None:
    """A result of None is kept as well; another object gets its own value."""
    memo: Memo[str | None] = Memo()
    calls: list[str] = []

    def find(name: str) -> None:
        calls.append(name)

    thing, other = Thing(), Thing()
    for _ in range(2):
        assert memo.of(thing, find, "thing") is None
        assert memo.of(other, find, "other") is None

    assert calls == ["thing", "other"]


def test_new_version_is_computed_again() -> None:
    """The value of the previous version is dropped."""
    memo: Memo[int] = Memo()
    thing, numbers = Thing(), iter(range(9))

    def remembered(version: str) -> int:
        return memo.as_of(thing, version, next, numbers)

    assert [remembered(version) for version in "aabba"] == [0, 0, 1, 1, 2]
    assert memo.peek(thing) == 2

    memo.forget(thing)
    assert memo.peek(thing) is None
    assert remembered("a") == 3


def test_memos_of_one_object_are_independent() -> None:
    """Though both are about one object."""
    first: Memo[str] = Memo()
    second: Memo[int] = Memo()
    thing = Thing()

    assert (first.of(thing, str, 1), second.of(thing, int, "2")) == ("1", 2)
    assert (first.peek(thing), second.peek(thing)) == ("1", 2)


def test_failed_computation_is_not_cached() -> None:
    """The next one who asks has it tried again."""
    memo: Memo[int] = Memo()
    thing = Thing()

    with pytest.raises(ValueError, match="invalid literal"):
        memo.of(thing, int, "x")
    assert memo.of(thing, int, "1") == 1
