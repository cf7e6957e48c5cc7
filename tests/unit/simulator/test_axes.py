"""Round ticks, and series made short enough to draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.simulator.axes import SHARES, kept_rows, time_axis, value_axis
from koordinator.simulator.numerals import NumberUnit


@pytest.mark.parametrize(
    ("top", "unit", "high", "texts"),
    [
        (0, NumberUnit.COUNT, 1, ["0", "1"]),
        (3, NumberUnit.COUNT, 3, ["0", "1", "2", "3"]),
        (2_207, NumberUnit.COUNT, 3_000, ["0", "1,000", "2,000", "3,000"]),
        (45_000, NumberUnit.RATE, 60_000, ["0", "20k", "40k", "60k"]),
        (0.062, NumberUnit.SHARE, 0.08, ["0%", "2%", "4%", "6%", "8%"]),
        (170, NumberUnit.SECONDS, 180, ["0", "1 min", "2 min", "3 min"]),
        (1.9, NumberUnit.SECONDS, 2, ["0 s", "0.5 s", "1 s", "1.5 s", "2 s"]),
    ],
)
def test_a_value_axis_ends_with_a_round_number(
    top: float, unit: NumberUnit, high: float, texts: list[str]
) -> None:
    """It starts at 0 and its last tick is not below the top value."""
    axis = value_axis(top, unit)

    assert axis.high == pytest.approx(high)
    assert [text for _, text in axis.ticks] == [t if t != "0 s" else "0" for t in texts]


@given(st.floats(0, 1e9), st.sampled_from(NumberUnit))
def test_every_value_axis_has_few_ticks_and_holds_its_top(top: float, unit: NumberUnit) -> None:
    """Two to five intervals, or one where there is nothing to tell apart."""
    axis = value_axis(top, unit)

    assert axis.low == 0
    assert axis.high >= top * (1 - 1e-6)
    assert 2 <= len(axis.ticks) <= 5 + 1


@settings(max_examples=50)
@given(st.floats(0, 1e9))
def test_a_time_axis_ends_with_the_run(span_s: float) -> None:
    """Its ticks ascend within the run, and are not too many."""
    axis = time_axis(span_s)
    ticks = [at for at, _ in axis.ticks]

    assert axis.high == (span_s if span_s >= 0.001 else 1.0)
    assert ticks == sorted(set(ticks))
    assert ticks[-1] <= axis.high * (1 + 1e-6)
    assert len(ticks) <= 7


def test_ticks_of_a_time_axis_share_a_unit() -> None:
    """Half hours are written in minutes, all of them."""
    texts = [text for _, text in time_axis(10_000).ticks]

    assert texts == ["0", "30 min", "60 min", "90 min", "120 min", "150 min"]


def test_an_axis_places_its_ends_at_0_and_1() -> None:
    """And shares where they are."""
    assert SHARES.place(np.array([0.0, 0.25, 1.0])).tolist() == [0, 0.25, 1]


values = st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=150)


@settings(max_examples=50)
@given(values, st.integers(4, 50))
def test_first_last_and_extremes_are_kept(column: list[float], limit: int) -> None:
    """At most ``limit`` rows are drawn, in order, and no peak is lost."""
    series = np.array([column])
    rows = kept_rows(series, limit)

    assert len(rows) <= max(limit, 2)
    assert (rows[0], rows[-1]) == (0, len(column) - 1)
    assert (np.diff(rows) > 0).all()
    if not np.isnan(series).all():
        assert np.nanmax(series[:, rows]) == np.nanmax(series)
        assert np.nanmin(series[:, rows]) == np.nanmin(series)


def test_every_series_keeps_its_peaks() -> None:
    """600 rows of 5,000 hold the extremes of all three."""
    series = np.random.default_rng(1).normal(size=(3, 5_000)).cumsum(1)
    rows = kept_rows(series)

    assert len(rows) <= 600
    assert (series[:, rows].max(1) == series.max(1)).all()
    assert (series[:, rows].min(1) == series.min(1)).all()
