"""Times that users type."""

import datetime as dt

from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError


def parse_time(text: str, source: str = "--now") -> float:
    """Return seconds since the epoch, which may be typed as such.  Raises InputError."""
    if text.isdecimal():
        return float(text)
    try:
        return to_epoch_s(dt.datetime.fromisoformat(text))
    except ValueError:
        accepted = "a time such as 2026-01-31T12:00:00Z, or seconds since 1970"
        raise InputError(f"must be {accepted}, got {text!r}", source=source) from None
