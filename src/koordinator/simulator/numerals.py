"""Formatting of numbers for readers; frontend/src/format.ts uses the same forms."""

import math
from enum import StrEnum

UNKNOWN = "–"  # noqa: RUF001 -- the dash that a table has for "no figure"

_MINUTE_S = 60
_HOUR_S = 3_600
_DAY_S = 86_400
_GIB = 1 << 30
_TIB = 1 << 40
#: Below this duration tenths of a second are shown.
_TENTHS_BELOW_S = 9.95


class NumberUnit(StrEnum):
    """Unit of a number, which determines its format."""

    SHARE = "share"  # 0..1
    COUNT = "count"
    SECONDS = "seconds"
    RATE = "rate"  # per second

    def text(self, value: float | None) -> str:
        """Return the formatted value; None and NaN are a dash."""
        if value is None or math.isnan(value):
            return UNKNOWN
        match self:
            case NumberUnit.SHARE:
                return percent(value)
            case NumberUnit.SECONDS:
                return duration(value)
            case NumberUnit.RATE:
                return f"{count(value)}/s"
            case NumberUnit.COUNT:
                return count(value)


def percent(share: float | None) -> str:
    """Return 0.8734 as ``87.3%``."""
    return UNKNOWN if share is None else f"{_tenths(share * 100):.1f}%"


def count(number: float) -> str:
    """Return a whole number with commas as thousands separators."""
    return f"{math.floor(number + 0.5):,}"


def memory(size_bytes: int) -> str:
    """Return whole GiB, or whole TiB from 10 TiB."""
    if size_bytes >= 10 * _TIB:
        return f"{count(size_bytes / _TIB)} TiB"
    return f"{count(size_bytes / _GIB)} GiB"


def duration(seconds: float) -> str:
    """Return at most two units: ``4.2 s``, ``12 s``, ``2 min 5 s``, ``1 h 23 min``, ``3 d``."""
    if seconds < _TENTHS_BELOW_S:
        return f"{_tenths(seconds):g} s"
    whole_s = math.floor(seconds + 0.5)
    if whole_s < _MINUTE_S:
        return f"{whole_s} s"
    if whole_s < _HOUR_S:
        return _two_units(whole_s, "s", 60, "min")
    minutes = math.floor(seconds / _MINUTE_S + 0.5)
    if minutes < _DAY_S // _MINUTE_S:
        return _two_units(minutes, "min", 60, "h")
    return _two_units(math.floor(seconds / _HOUR_S + 0.5), "h", 24, "d")


def _tenths(number: float) -> float:
    """Round half up, as frontend/src/format.ts does."""
    return math.floor(number * 10 + 0.5) / 10


def _two_units(number: int, small_unit: str, large: int, large_unit: str) -> str:
    whole, rest = divmod(number, large)
    return f"{whole} {large_unit}" + (f" {rest} {small_unit}" if rest else "")
