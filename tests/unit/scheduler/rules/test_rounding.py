"""Numbers are rounded as Go rounds them."""

import pytest

from koordinator.scheduler.rules.curves import round_half_away


@pytest.mark.parametrize(
    ("number", "nearest"),
    [(0.5, 1), (1.5, 2), (2.4999, 2), (-0.5, -1), (-0.4, 0), (0.49999999999999994, 0), (3.0, 3)],
)
def test_halves_are_rounded_away_from_zero(number: float, nearest: int) -> None:
    """As math.Round of Go does."""
    assert round_half_away(number) == nearest
