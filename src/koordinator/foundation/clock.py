"""Clocks, timestamps and durations.

Exact to the microsecond, the resolution of ``datetime``; finer parts are truncated.

Source: Go's package time, ``ParseDuration`` and ``Duration.String``; apimachinery
pkg/apis/meta/v1/duration.go.
"""

import datetime as dt
import re
import sys
import time
from functools import lru_cache
from threading import Lock
from typing import Final, Protocol

from koordinator.foundation.errors import InputError
from koordinator.foundation.text import cut

_CORRECT_EVERY_S: Final = 0.1

UTC = dt.UTC

_NANOS_OF_UNIT = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_MICROS_PER_SECOND = 10**6
_MICROS_PER_MILLI = 10**3
_MAX_NANOS = 2**63 - 1
_MAX_TEXT = 100  # characters; bounds the work that one text can cause

_PART = r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)"
_PARTS = re.compile(_PART)
_TEXT = re.compile(rf"[+-]?(?:0|(?:{_PART})+)")


class Clock(Protocol):
    """Seconds since the Unix epoch; monotonic within a process, except WallClock."""

    def now_s(self) -> float: ...


class SystemClock:
    """Wall time at construction, then monotonic: a step of the wall clock moves nothing.

    For deadlines of leases and heartbeats, and for measured durations.

    Time passes while the process is stopped and, on Linux, while the machine is suspended, but not
    while a hypervisor pauses the machine, which no clock of the guest can detect.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - _since_boot_s()  # noqa: TID251 (this is the Clock)

    def now_s(self) -> float:
        return self._offset_s + _since_boot_s()


class WallClock:
    """System time, which may be set at any moment: only for timestamps sent to others."""

    def now_s(self) -> float:
        return time.time()  # noqa: TID251 (this is the Clock)


class FollowingClock:
    """Wall time that follows corrections of the machine's clock in bounded steps.

    While it is behind it runs ``1 + forward`` times as fast as time passes, while it is ahead
    ``1 - back`` times: with ``back`` of at most 1 it never goes back, and what was to be due in a
    second is due within ``1 / (1 - back)`` seconds.
    """

    def __init__(
        self, *, back: float, forward: float, wall: Clock | None = None, steady: Clock | None = None
    ) -> None:
        self._back, self._forward = back, forward
        self._wall: Clock = wall or WallClock()
        self._steady: Clock = steady or SystemClock()
        self._lock = Lock()
        # When it was corrected last, by the steady clock; what it showed; and the least it shows.
        self._corrected = (self._steady.now_s(), self._wall.now_s(), float("-inf"))

    def now_s(self) -> float:
        at_s, shown_s, least_s = self._corrected
        passed_s = self._steady.now_s() - at_s
        if passed_s < _CORRECT_EVERY_S:
            return max(shown_s + passed_s, least_s)
        with self._lock:
            return self._correct()

    def _correct(self) -> float:
        at_s, shown_s, least_s = self._corrected
        now_s = self._steady.now_s()
        passed_s = now_s - at_s
        if passed_s < _CORRECT_EVERY_S:  # another thread was faster
            return max(shown_s + passed_s, least_s)
        steady_s = shown_s + passed_s
        behind_s = self._wall.now_s() - steady_s
        step_s = min(max(behind_s, -self._back * passed_s), self._forward * passed_s)
        # Until now it has shown no more than this, so that it stands still rather than goes back.
        least_s = max(shown_s + _CORRECT_EVERY_S, least_s) if self._back <= 1 else least_s
        self._corrected = (now_s, steady_s + step_s, least_s)
        return max(steady_s + step_s, least_s)


class VirtualClock:
    """Clock that stands still until it is advanced."""

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


class Duration(dt.timedelta):
    """A span of time that JSON spells as Go does."""

    @staticmethod
    def parse(text: str) -> "Duration":
        """Return the duration that a text spells.

        Raises InputError if it is none, or longer than 292 years.
        """
        if not isinstance(text, str):
            raise _not_a_duration(text)
        return _parse_text(text)

    def __str__(self) -> str:
        sign = "-" if self < dt.timedelta() else ""
        micros = abs(self) // dt.timedelta(microseconds=1)
        if micros < _MICROS_PER_SECOND:
            return sign + _subsecond_text(micros)
        seconds, fraction = divmod(micros, _MICROS_PER_SECOND)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        text = f"{_with_fraction(seconds, fraction, digits=6)}s"
        if hours:
            return f"{sign}{hours}h{minutes}m{text}"
        return f"{sign}{minutes}m{text}" if minutes else sign + text

    def __repr__(self) -> str:
        return f"Duration.parse({str(self)!r})"


@lru_cache(maxsize=1 << 12)
def _parse_text(text: str) -> Duration:
    if len(text) > _MAX_TEXT or not _TEXT.fullmatch(text):
        raise _not_a_duration(text)
    nanos = 0
    for whole, fraction, unit in _PARTS.findall(text):
        nanos += int((whole + fraction) or "0") * _NANOS_OF_UNIT[unit] // 10 ** len(fraction)
    if nanos > _MAX_NANOS:
        raise _not_a_duration(text)
    micros = nanos // 10**3
    return Duration(microseconds=-micros if text.startswith("-") else micros)


def _not_a_duration(value: object) -> InputError:
    return InputError(
        f"{cut(repr(value), _MAX_TEXT)} is not a duration; must be numbers with a unit "
        "ns, us, ms, s, m or h (examples: 90s, 1h30m, 500ms)"
    )


def _subsecond_text(micros: int) -> str:
    if not micros:
        return "0s"
    if micros < _MICROS_PER_MILLI:
        return f"{micros}µs"
    return _with_fraction(*divmod(micros, _MICROS_PER_MILLI), digits=3) + "ms"


def _with_fraction(whole: int, fraction: int, *, digits: int) -> str:
    tail = f"{fraction:0{digits}}".rstrip("0") if fraction else ""
    return f"{whole}.{tail}" if tail else str(whole)
