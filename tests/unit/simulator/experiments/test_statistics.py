"""Statistics of experiments, compared with published tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.simulator.experiments.tables import (
    sample_statistics,
    t_probability,
    t_quantile,
)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [
        (1, 12.706204736),
        (2, 4.302652730),
        (3, 3.182446305),
        (4, 2.776445105),
        (9, 2.262157163),
        (10, 2.228138852),
        (30, 2.042272456),
        (120, 1.979930405),
    ],
)
def test_t_quantile_equals_the_tables(freedom: int, quantile: float) -> None:
    """The 97.5 % column of tables of Student's t."""
    assert t_quantile(freedom) == pytest.approx(quantile, abs=2e-9)


@given(st.integers(1, 500), st.floats(0.01, 0.999))
def test_t_quantile_is_the_inverse_of_the_probability(freedom: int, confidence: float) -> None:
    """For degrees of freedom far beyond any number of seeds."""
    assert t_probability(t_quantile(freedom, confidence), freedom) == pytest.approx(confidence)


def test_interval_of_known_values() -> None:
    """Mean 3, deviation 1.5811, and 2.7764 standard errors on each side."""
    statistics = sample_statistics([1.0, 2.0, 3.0, 4.0, 5.0])

    assert (statistics.count, statistics.mean) == (5, 3.0)
    assert statistics.deviation == pytest.approx(1.5811388)
    assert (statistics.low, statistics.high) == pytest.approx((1.0367568, 4.9632432))


def test_one_value_has_no_interval() -> None:
    """A difference of one pair of runs could be chance."""
    statistics = sample_statistics([2.0])

    assert (statistics.count, statistics.mean, statistics.deviation, statistics.low) == (
        1,
        2.0,
        None,
        None,
    )
    assert sample_statistics([]).mean is None
