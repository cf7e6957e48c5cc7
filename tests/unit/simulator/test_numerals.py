"""Numbers as people read them."""

import pytest

from koordinator.simulator.numerals import (
    UNKNOWN,
    NumberUnit,
    count,
    duration,
    memory,
    percent,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.04, "0 s"),
        (4.25, "4.3 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (3_599.7, "1 h"),
        (4_980, "1 h 23 min"),
        (86_390, "1 d"),
        (100_000, "1 d 4 h"),
        (864_000, "10 d"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    """Rounding carries over into the next unit."""
    assert duration(seconds) == text


def test_unknown_number_is_a_dash() -> None:
    """Unknown numbers are None and NaN."""
    assert percent(None) == UNKNOWN
    assert {unit.text(None) for unit in NumberUnit} == {UNKNOWN}
    assert {unit.text(float("nan")) for unit in NumberUnit} == {UNKNOWN}


def test_each_unit_has_its_spelling() -> None:
    """Read-outs are exact to what one can see."""
    assert NumberUnit.SHARE.text(0.87345) == "87.3%"
    assert NumberUnit.COUNT.text(12_345.5) == "12,346"
    assert NumberUnit.RATE.text(1_000) == "1,000/s"
    assert NumberUnit.SECONDS.text(61) == "1 min 1 s"


def test_large_numbers_are_readable() -> None:
    """Commas between thousands, TiB where GiB are many."""
    assert count(1_234_567) == "1,234,567"
    assert memory(6_400 << 30) == "6,400 GiB"
    assert memory(64 << 40) == "64 TiB"
