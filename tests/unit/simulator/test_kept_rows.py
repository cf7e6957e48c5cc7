"""Long series made short enough to draw."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.simulator.run_charts import kept_rows

values = st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=150)


@settings(max_examples=examples(20))
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
