"""Durations as Kubernetes writes them: ``24h``, ``1m30s``, ``500ms``.

Exact to the microsecond, the resolution of ``datetime``; finer parts are truncated.
Source: Go's package time, ``ParseDuration`` and ``Duration.String``; apimachinery
pkg/apis/meta/v1/duration.go.
"""

import datetime as dt
import re
from functools import lru_cache

from koordinator.foundation.errors import InputError

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
    shown = repr(value)
    if len(shown) > _MAX_TEXT:
        shown = shown[:_MAX_TEXT] + "…"
    return InputError(
        f"{shown} is not a duration; must be numbers with a unit ns, us, ms, s, m or h "
        "(examples: 90s, 1h30m, 500ms)"
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
