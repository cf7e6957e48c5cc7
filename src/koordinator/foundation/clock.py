"""Time as a parameter: the system's clock for clusters, a virtual one for simulation and tests."""

import datetime as dt
import sys
import time
from typing import Protocol

UTC = dt.UTC


class Clock(Protocol):
    """Seconds since the Unix epoch; never goes back in one process."""

    def now_s(self) -> float: ...


class SystemClock:
    """Wall time at construction, then monotonic: a step of the wall clock moves nothing.

    Time passes here also while the process is stopped and, on Linux, while the machine is
    suspended; not while a hypervisor holds the whole machine, which no clock inside can tell.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - _since_boot_s()  # noqa: TID251 (this is the Clock)

    def now_s(self) -> float:
        return self._offset_s + _since_boot_s()


class WallClock:
    """What the machine believes the time is, which may be set: only for what others are told."""

    def now_s(self) -> float:
        return time.time()  # noqa: TID251 (this is the Clock)


class VirtualClock:
    """Stands still until it is told to move."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        return self._now_s

    def advance_to(self, now_s: float) -> None:
        """Move forward; a time already past leaves the clock where it is."""
        self._now_s = max(self._now_s, now_s)


def _since_boot_s() -> float:
    # time.monotonic is CLOCK_MONOTONIC on Linux, which stands still while the machine sleeps: who
    # led before it slept would wake up and believe that the lease is still fresh.
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def to_datetime(epoch_s: float) -> dt.datetime:
    """Return the UTC time with whole seconds, as ``metav1.Time`` has it."""
    return dt.datetime.fromtimestamp(int(epoch_s), UTC)


def to_epoch_s(when: dt.datetime | None, default: float = 0.0) -> float:
    """Return seconds since the epoch; a time without zone is UTC."""
    if when is None:
        return default
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
