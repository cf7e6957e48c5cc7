"""The system's clock."""

import sys
import time

import pytest

from koordinator.foundation.clock import SystemClock


def test_it_tells_the_time() -> None:
    """Seconds since the Unix epoch."""
    assert abs(SystemClock().now_s() - time.time()) < 5  # noqa: TID251 (what it is compared with)


def test_a_step_of_the_wall_clock_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sets the clock of the machine doesn't make timers fire."""
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
