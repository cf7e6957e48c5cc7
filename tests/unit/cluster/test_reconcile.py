"""The queue of a level-based controller."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.reconcile import LONGEST_DELAY_S, ReconcileQueue


def test_a_key_is_due_once_however_often_it_is_added() -> None:
    """In the order in which it was first added."""
    queue: ReconcileQueue[str] = ReconcileQueue()
    for key in "abacb":
        queue.add(key)

    assert [queue.pop(0.0) for _ in range(4)] == ["a", "b", "c", None]


def test_key_is_returned_when_it_is_due() -> None:
    """Of several times at the earliest, and once."""
    queue: ReconcileQueue[str] = ReconcileQueue()
    for when_s in (7.0, 5.0, 9.0):
        queue.add_at("a", when_s)

    assert queue.next_s() == 5.0
    assert queue.pop(4.9) is None
    assert queue.pop(5.0) == "a"
    assert queue.pop(100.0) is None
    assert queue.next_s() is None


def test_failures_back_off() -> None:
    """Twice as late, but not for ever; success forgets it."""
    queue: ReconcileQueue[str] = ReconcileQueue()

    assert [queue.failed("a", 0.0) for _ in range(3)] == pytest.approx([0.005, 0.010, 0.020])
    for _ in range(40):
        last = queue.failed("a", 0.0)
    assert last == LONGEST_DELAY_S
    queue.succeeded("a")
    assert queue.failed("a", 0.0) == pytest.approx(0.005)


def test_a_key_can_be_forgotten() -> None:
    """A forgotten key is due neither by time nor by event."""
    queue: ReconcileQueue[str] = ReconcileQueue()
    queue.add("a")
    queue.add_at("b", 1.0)
    queue.forget("a")
    queue.forget("b")

    assert queue.next_s() is None
    assert queue.pop(10.0) is None


def test_success_sets_the_next_time() -> None:
    """The new time replaces the planned one; a postponed key is not due earlier."""
    queue: ReconcileQueue[str] = ReconcileQueue()
    queue.add_at("a", 5.0)
    for again_s in (7.0, 9.0):
        queue.succeeded("a", again_s)

    assert queue.pop(8.9) is None
    assert queue.next_s() == 9.0
    queue.add_at("a", 3.0)
    queue.succeeded("a")
    assert queue.next_s() is None
    queue.succeeded("a", 9.0)
    assert [queue.pop(9.0), queue.pop(9.0)] == ["a", None]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("at"), st.sampled_from("ab"), st.integers(0, 9)),
            st.tuples(st.just("done"), st.sampled_from("ab"), st.none() | st.integers(0, 9)),
            st.tuples(st.just("pop"), st.just(""), st.integers(0, 9)),
        ),
        max_size=40,
    )
)
def test_the_times_of_keys_are_those_of_a_plain_table(
    steps: list[tuple[str, str, int | None]],
) -> None:
    """The heap holds a key more than once, and at times that do not count any more."""
    queue: ReconcileQueue[str] = ReconcileQueue()
    table: dict[str, float] = {}
    for step, key, time in steps:
        if step == "at" and time is not None:
            queue.add_at(key, float(time))
            table[key] = min(table.get(key, time), time)
        elif step == "done":
            queue.succeeded(key, None if time is None else float(time))
            table.pop(key, None)
            if time is not None:
                table[key] = time
        elif time is not None:
            came = set()
            while (popped := queue.pop(float(time))) is not None:
                came.add(popped)
            assert came == {each for each, when in table.items() if when <= time}
            table = {each: when for each, when in table.items() if when > time}
        assert queue.next_s() == min(table.values(), default=None)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=30))
def test_no_key_is_lost_or_returned_early(times: list[tuple[str, int]]) -> None:
    """Every key comes at the earliest of its times."""
    queue: ReconcileQueue[str] = ReconcileQueue()
    for key, when in times:
        queue.add_at(key, float(when))
    came: dict[str, int] = {}
    for now in range(6):
        while (key_ := queue.pop(float(now))) is not None:
            assert key_ not in came
            came[key_] = now

    assert came == {key: min(w for k, w in times if k == key) for key in {k for k, _ in times}}
