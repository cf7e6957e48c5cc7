"""Thresholds in percent as amounts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.scheduler.rules.curves import round_half_away
from koordinator.scheduler.rules.load.rules import UNLIMITED, most_within

amounts = st.integers(1, 1 << 44) | st.integers(1, 300)


@given(has=amounts, percent=st.integers(1, 150), data=st.data())
def test_the_most_is_the_last_whose_rounded_share_is_within(
    has: int, percent: int, data: st.DataObject
) -> None:
    """Usage up to there is accepted, and whatever is more is not."""
    most = most_within(has, percent)

    for used in (most, data.draw(st.integers(0, most))):
        assert round_half_away(used / has * 100) <= percent
    for used in (most + 1, data.draw(st.integers(most + 1, 4 * has))):
        assert round_half_away(used / has * 100) > percent


@pytest.mark.parametrize(("has", "percent"), [(0, 65), (1000, 0), (1 << 50, 1 << 50)])
def test_missing_and_unlimited_resources_are_not_checked(has: int, percent: int) -> None:
    """A limit that no amount can reach is not checked, either."""
    assert most_within(has, percent) == UNLIMITED


def test_a_limit_below_zero_allows_nothing() -> None:
    """A node without any usage is rejected as well."""
    assert most_within(1000, -5) == -1


def test_the_largest_amounts_have_limits_too() -> None:
    """Where neighbouring amounts have the same share."""
    most, has = most_within(1 << 61, 65), 1 << 61

    assert most / has * 100 < 65.5 <= (most + 1) / has * 100
