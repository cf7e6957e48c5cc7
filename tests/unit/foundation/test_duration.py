"""Durations in the spelling of Go."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("-2m", -120),
        ("+1m", 60),
        ("250us", 0.00025),
        ("250µs", 0.00025),
    ],
)
def test_numbers_with_units_are_summed(text: str, seconds: float) -> None:
    """Any mix of units, fractions and one sign is read."""
    assert Duration.parse(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "1", "1d", "h", "1h-2m", "1 h", "999999999h", "1s" * 60])
def test_other_texts_are_refused(text: str) -> None:
    """The message shows what was found and examples of what is accepted."""
    with pytest.raises(InputError, match=r"is not a duration; must be .*90s"):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("24h", "24h0m0s"),
        ("90s", "1m30s"),
        ("1500ms", "1.5s"),
        ("0", "0s"),
        ("1500us", "1.5ms"),
        ("7us", "7µs"),
        ("-90s", "-1m30s"),
    ],
)
def test_printed_as_go_prints(text: str, canonical: str) -> None:
    """The largest units come first, and zero is ``0s``."""
    assert str(Duration.parse(text)) == canonical


@given(st.timedeltas(min_value=dt.timedelta(days=-99_999), max_value=dt.timedelta(days=99_999)))
def test_printing_and_reading_agree(span: dt.timedelta) -> None:
    """A printed duration is read back as the same duration."""
    duration = Duration(span.days, span.seconds, span.microseconds)

    assert Duration.parse(str(duration)) == span
