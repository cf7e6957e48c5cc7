"""The system's clock."""

import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.foundation.clock import FollowingClock, SystemClock, VirtualClock


def test_clock_returns_unix_time() -> None:
    """Seconds since the Unix epoch."""
    assert abs(SystemClock().now_s() - time.time()) < 5  # noqa: TID251 (what it is compared with)


def test_a_step_of_the_wall_clock_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting the clock of the machine doesn't fire timers."""
    clock = SystemClock()
    before_s = clock.now_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)

    assert 0 <= clock.now_s() - before_s < 5


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it depends on the system")
def test_time_in_which_the_machine_slept_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_BOOTTIME goes on while the machine is suspended, CLOCK_MONOTONIC doesn't."""
    read, slept_s = time.clock_gettime, {time.CLOCK_BOOTTIME: 3600.0}
    clock = SystemClock()
    before_s = clock.now_s()
    monkeypatch.setattr(time, "clock_gettime", lambda which: read(which) + slept_s.get(which, 0))

    assert 3600 <= clock.now_s() - before_s < 3605


@settings(max_examples=examples(20))
@given(
    back=st.sampled_from([0.0, 0.5, 1.0, 10.0]),
    moves=st.lists(st.tuples(st.floats(0.001, 100), st.floats(-5000, 5000)), max_size=20),
)
def test_a_clock_follows_corrections_in_bounded_steps(
    back: float, moves: list[tuple[float, float]]
) -> None:
    """Any setting of the wall clock is reached; backwards only where that is permitted."""
    steady, wall = VirtualClock(), SetClock()
    clock = FollowingClock(back=back, forward=2.0, wall=wall, steady=steady)
    shown_s, at_s = clock.now_s(), 0.0
    for passed_s, set_by_s in moves:
        at_s += passed_s
        steady.advance_to(at_s)
        wall.seconds += passed_s + set_by_s
        now_s = clock.now_s()
        if back <= 1:
            assert now_s >= shown_s
        most_s, slack_s = max(passed_s, 0.1) * 3, 0.1 * (back + 3)
        assert shown_s + passed_s * (1 - back) - slack_s <= now_s <= shown_s + most_s + slack_s
        shown_s = now_s
    if back:
        steady.advance_to(at_s + 400_000)
        wall.seconds += 400_000
        assert abs(clock.now_s() - wall.seconds) < 0.2


class SetClock:
    """A wall clock that the test sets."""

    seconds = 1_700_000_000.0

    def now_s(self) -> float:
        return self.seconds
