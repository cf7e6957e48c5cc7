"""The scheduling queue: order, backoff and outcomes; each call has its own time."""

import pytest
from tests.unit.scheduler.queues import (
    ACTIVE,
    BACKOFF,
    GATED,
    HINTS,
    IN_FLIGHT,
    NODE_ADDED,
    UNSCHEDULABLE,
    in_flight,
    make_pod,
    make_queue,
    names,
    pop,
    scheduling_gates,
)

from koordinator.foundation.errors import BugError
from koordinator.scheduler.queue import SchedulingQueue

# Order.


def test_pods_are_popped_by_priority_then_age_then_order_of_adding() -> None:
    """No priority counts as 0."""
    queue = make_queue()
    queue.add(make_pod("late"), None, 2.0)
    queue.add(make_pod("first"), None, 1.0)
    queue.add(make_pod("second", 0), None, 1.0)
    queue.add(make_pod("high", 7), None, 3.0)
    queue.add(make_pod("low", -1), None, 0.0)

    popped = [pop(queue, 3.0) for _ in range(5)]

    assert names(popped) == ["high", "first", "second", "late", "low"]
    assert queue.pop(3.0) is None


def test_a_change_of_priority_moves_the_pod() -> None:
    """The newest version of a pod counts."""
    queue = make_queue()
    queue.add(make_pod("a", 5), None, 0.0)
    queue.add(make_pod("b", 5), None, 0.0)
    for priority in (1, 5, 9) * 10 + (1,):
        old = queue.get("ns/a")
        assert old is not None
        queue.update(old.pod, make_pod("a", priority), None, 0.0)
        queue.validate()

    assert names([pop(queue), pop(queue)]) == ["b", "a"]


def test_pods_rejected_at_the_same_time_keep_their_order() -> None:
    """An attempt moves a pod to the end, even if the clock stands still."""
    queue = make_queue()
    first, second = in_flight(queue, "first"), in_flight(queue, "second")
    for _ in range(5):
        queue.reject(second, {"Fit"}, set(), "no", 0.0)
        queue.reject(first, {"Fit"}, set(), "no", 0.0)
        queue.on_event(NODE_ADDED, 0.0)
        queue.activate(["ns/first", "ns/second"], 0.0)
        queue.validate()
        assert names([pop(queue), pop(queue)]) == ["second", "first"]


def test_run_is_the_head_with_its_equal_neighbours() -> None:
    """A run ends at another run key, another priority, or the limit."""
    queue = make_queue()
    kinds = [("x", 5), ("x", 5), ("y", 5), ("x", 5), ("x", 0)]
    for i, (run_key, priority) in enumerate(kinds):
        queue.add(make_pod(f"p{i}", priority), run_key, float(i))

    assert names(queue.pop_run(9.0, 10)) == ["p0", "p1"]
    assert names(queue.pop_run(9.0, 10)) == ["p2"]
    assert names(queue.pop_run(9.0, 10)) == ["p3"]
    assert names(queue.pop_run(9.0, 10)) == ["p4"]

    for i in range(5):
        queue.add(make_pod(f"q{i}"), "x", 9.0)
    assert names(queue.pop_run(9.0, 3)) == ["q0", "q1", "q2"]
    queue.validate()


def test_a_pod_without_run_key_is_its_own_run() -> None:
    """A run key of None means that equality with other pods is unknown."""
    queue = make_queue()
    for name in ("a", "b"):
        queue.add(make_pod(name), None, 0.0)

    assert names(queue.pop_run(0.0, 10)) == ["a"]


def test_a_pod_can_be_taken_ahead_of_its_turn() -> None:
    """A gang takes its next member, unless that is gated or in flight."""
    queue = make_queue()
    for name in ("a", "b"):
        queue.add(make_pod(name), None, 0.0)
    queue.add(make_pod("closed", gates=["g"]), None, 0.0)

    taken = queue.take("ns/b")

    assert taken is not None
    assert (taken.state, taken.attempts) == (IN_FLIGHT, 1)
    assert queue.take("ns/b") is None
    assert queue.take("ns/closed") is None
    assert queue.take("ns/unknown") is None
    assert names([pop(queue)]) == ["a"]
    queue.validate()


# Backoff.


def test_backoff_doubles_up_to_the_maximum_and_ends_after_a_whole_second() -> None:
    """1, 2, 4, 8, 10, 10 s; a pod is still backing off in the second in which its time ends."""
    queue = make_queue(pop_from_backoff=False)
    queue.add(make_pod("a"), None, 0.0)
    now_s = 0.0
    ends = []
    for _ in range(6):
        now_s += 0.25
        queue.reject(pop(queue, now_s), {"Fit"}, set(), "no", now_s)
        queue.on_event(NODE_ADDED, now_s)
        end_s = queue.next_wakeup_s()
        assert end_s is not None
        ends.append(end_s - int(now_s))
        assert queue.flush(end_s - 0.001) == []
        assert queue.flush(end_s) == ["ns/a"]
        now_s = end_s

    assert ends == [2.0, 3.0, 5.0, 9.0, 11.0, 11.0]


def test_backoff_counts_consecutive_errors_apart_from_rejections() -> None:
    """An error after many rejections has a short backoff; a rejection resets the errors."""
    queue = make_queue(pop_from_backoff=False)
    queue.add(make_pod("a"), None, 0.0)
    for now_s in (0.0, 100.0, 200.0):
        queue.reject(pop(queue, now_s), {"Fit"}, set(), "no", now_s)
        queue.on_event(NODE_ADDED, now_s)
    queue.fail(pop(queue, 300.0), "boom", 300.0)
    assert queue.next_wakeup_s() == 302.0
    queue.fail(pop(queue, 400.0), "boom", 400.0)
    assert queue.next_wakeup_s() == 403.0

    queue.reject(pop(queue, 500.0), {"Fit"}, set(), "no", 500.0)
    queue.on_event(NODE_ADDED, 500.0)

    assert queue.next_wakeup_s() == 509.0  # the fourth rejection: 8 s
    queued = queue.get("ns/a")
    assert queued is not None
    assert (queued.attempts, queued.unschedulable_count, queued.error_count) == (6, 4, 0)


def test_backoff_does_not_overflow() -> None:
    """A pod may fail for years."""
    queue = make_queue(pop_from_backoff=False)
    queued = in_flight(queue)
    queued.error_count = 5_000
    queue.fail(queued, "boom", 0.0)

    assert queue.next_wakeup_s() == 11.0


def test_priority_decides_within_a_second_of_backoff() -> None:
    """Among pods whose backoff ends in one second the most important is first."""
    queue = make_queue()
    for i, name in enumerate(("old", "high", "next")):
        queue.add(make_pod(name, 5 if name == "high" else 0), None, 0.0)
        queue.reject(pop(queue), {"Fit"}, set(), "no", (0.1, 0.9, 1.1)[i])
    queue.on_event(NODE_ADDED, 1.2)
    assert queue.counts()[BACKOFF] == 3

    assert names([pop(queue, 1.3), pop(queue, 1.3), pop(queue, 1.3)]) == ["high", "old", "next"]


def test_with_nothing_active_rejected_pods_are_popped_before_their_time() -> None:
    """Pods after errors must wait, and so must all with the option off."""
    for option in (True, False):
        queue = make_queue(pop_from_backoff=option)
        queue.fail(in_flight(queue, "broken"), "boom", 0.0)
        queue.reject(in_flight(queue, "refused"), {"Fit"}, set(), "no", 0.0)
        queue.on_event(NODE_ADDED, 0.5)
        assert queue.counts()[BACKOFF] == 2

        early = [q for _ in range(2) if (q := queue.pop(0.5)) is not None]

        assert names(early) == (["refused"] if option else [])
        queue.validate()


def test_active_pod_precedes_one_in_backoff() -> None:
    """Priority does not shorten a backoff while other pods are active."""
    queue = make_queue()
    queue.add(make_pod("high", 9), None, 0.0)
    queue.reject(pop(queue), {"Fit"}, set(), "no", 0.0)
    queue.on_event(NODE_ADDED, 0.0)
    queue.add(make_pod("low"), None, 0.0)

    assert names([pop(queue, 0.5), pop(queue, 0.5)]) == ["low", "high"]


def test_without_maximum_there_is_no_backoff() -> None:
    """A maximum of 0 turns backoff off."""
    queue = SchedulingQueue(HINTS, scheduling_gates, max_backoff_s=0.0)
    queue.fail(in_flight(queue), "boom", 0.0)

    assert queue.counts()[ACTIVE] == 1


# Errors and outcomes.


def test_rejection_without_plugin_is_an_error() -> None:
    """No plugin has hints for it, so the pod is retried by time."""
    queue = make_queue()
    queued = in_flight(queue)
    queue.reject(queued, set(), set(), "?", 0.0)

    assert (queued.state, queued.error_count, queued.unschedulable_count) == (BACKOFF, 1, 0)


def test_a_pod_removed_during_its_attempt_stays_removed() -> None:
    """The outcome of the attempt is ignored, also if a pod of that name is created again."""
    queue = make_queue()
    removed = in_flight(queue)
    queue.remove("ns/a")
    queue.reject(removed, {"Fit"}, set(), "no", 0.0)
    assert queue.get("ns/a") is None

    queue.add(make_pod("a"), None, 1.0)
    queue.fail(removed, "boom", 1.0)
    again = queue.get("ns/a")
    assert again is not None
    assert (again.state, again.error_count) == (ACTIVE, 0)
    queue.validate()


def test_only_an_attempt_in_flight_can_end() -> None:
    """A second outcome is a bug; done applies to pods in flight only."""
    queue = make_queue()
    queued = in_flight(queue)
    queue.reject(queued, {"Fit"}, set(), "no", 0.0)

    queue.done(queued)
    assert queue.get("ns/a") is queued
    with pytest.raises(BugError, match="ns/a is unschedulable: no attempt is under way"):
        queue.fail(queued, "boom", 0.0)


def test_a_bind_does_not_end_the_attempt_of_a_later_pod_of_that_name() -> None:
    """The bound pod was deleted, and its successor is in flight."""
    queue = make_queue()
    bound = in_flight(queue)
    queue.remove(bound.key)
    successor = in_flight(queue)

    queue.done(bound)

    assert queue.get(successor.key) is successor
    queue.validate()


# Time and force.


def test_pod_is_retried_after_five_minutes() -> None:
    """An event may have been missed, or a plugin may not have registered it."""
    queue = make_queue()
    queue.reject(in_flight(queue), {"Fit"}, set(), "no", 10.0)

    assert queue.next_wakeup_s() == 310.0
    assert queue.flush(309.9) == []
    assert queue.flush(310.0) == ["ns/a"]
    assert queue.counts()[ACTIVE] == 1
    assert queue.next_wakeup_s() is None


def test_activation_skips_backoff_but_not_gates() -> None:
    """A pod in flight is activated if it is rejected; unknown keys are ignored."""
    queue = make_queue()
    queue.reject(in_flight(queue, "waiting"), {"Fit"}, set(), "no", 0.0)
    queue.fail(in_flight(queue, "backing-off"), "boom", 0.0)
    queue.add(make_pod("closed", gates=["g"]), None, 0.0)
    flying, other = in_flight(queue, "flying"), in_flight(queue, "other")

    keys = [f"ns/{name}" for name in ("waiting", "backing-off", "closed", "flying", "unknown")]
    queue.activate(keys, 0.0)
    queue.reject(flying, {"Fit"}, set(), "no", 0.0)
    queue.reject(other, {"Fit"}, set(), "no", 0.0)

    assert names(queue.pods(ACTIVE)) == ["waiting", "backing-off"]
    assert names(queue.pods(GATED)) == ["closed"]
    assert names(queue.pods(BACKOFF)) == ["flying"]
    assert names(queue.pods(UNSCHEDULABLE)) == ["other"]
    queue.validate()


def test_removal_works_in_every_state() -> None:
    """Removing many active pods shrinks the heap."""
    queue = make_queue()
    queue.reject(in_flight(queue, "unschedulable"), {"Fit"}, set(), "no", 0.0)
    queue.fail(in_flight(queue, "backoff"), "boom", 0.0)
    in_flight(queue, "flying")
    queue.add(make_pod("gated", gates=["g"]), None, 0.0)
    for i in range(1_000):
        queue.add(make_pod(f"p{i}"), None, 0.0)
    for name in ("unschedulable", "backoff", "flying", "gated", "unknown"):
        queue.remove(f"ns/{name}")
    for i in range(1_000):
        queue.remove(f"ns/p{i}")

    assert sum(queue.counts().values()) == 0
    assert len(queue._pools.active._entries) < 100
    queue.validate()


def test_validate_finds_a_broken_index() -> None:
    """A modified pod in the queue is detected."""
    queue = make_queue()
    queue.add(make_pod("a"), None, 0.0)
    queued = queue.get("ns/a")
    assert queued is not None
    queued.priority = 3

    with pytest.raises(BugError, match="ns/a is ranked by outdated facts"):
        queue.validate()
