"""Samples in memory: bounded, in order, and one number of many."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.errors import BugError
from koordinator.koordlet.metrics import Metric, MetricSeries, MetricStore


def series(values: list[float], capacity: int = 100) -> MetricSeries:
    """Return one sample per second, from second 1 on."""
    metric_series = MetricSeries(capacity)
    for second, value in enumerate(values, start=1):
        metric_series.append(second, value)
    return metric_series


def test_a_percentile_is_a_sample_and_counted_low() -> None:
    """Of 25 samples the 90th percentile is number 22: floor(25 * 0.9), counted from 1."""
    result = series([float(n) for n in range(1, 26)]).between(0, 99)

    assert result.percentile(0.9) == 22
    assert result.percentile(0.5) == 12
    assert result.percentile(0.01) == 1


def test_ninety_five_percent_of_twenty_is_the_nineteenth() -> None:
    """The original multiplies with single precision."""
    assert series([float(n) for n in range(1, 21)]).between(0, 99).percentile(0.95) == 19


def test_average_last_count_and_span() -> None:
    """The newest sample is the last one, whatever its value."""
    result = series([3.0, 9.0, 6.0]).between(0, 99)

    assert (result.average(), result.last(), result.count, result.span_s) == (6.0, 6.0, 3, 2.0)


def test_a_window_has_both_its_ends() -> None:
    """Samples of the first and the last moment count."""
    assert series([1, 2, 3, 4, 5]).between(2, 4).values.tolist() == [2, 3, 4]


def test_average_without_samples_is_a_bug() -> None:
    """Callers must check the count first."""
    with pytest.raises(BugError):
        series([]).between(0, 99).average()


def test_a_sample_of_the_past_is_dropped() -> None:
    """A clock that jumps back can't mix up the order."""
    made = series([1, 2, 3])
    made.append(2.5, 99)

    assert made.between(0, 99).values.tolist() == [1, 2, 3]


@given(st.lists(st.floats(0, 1e9), max_size=200), st.integers(1, 70))
def test_a_full_ring_keeps_the_newest(values: list[float], capacity: int) -> None:
    """In the order in which they came."""
    result = series(values, capacity).between(0, 1e9)

    assert result.values.tolist() == values[-capacity:]
    assert result.times_s.tolist() == list(range(1, len(values) + 1))[-capacity:]


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, -math.inf])
def test_absurd_samples_are_refused(value: float) -> None:
    """Refused samples are counted, and earlier ones stay."""
    store = MetricStore(60, 1)
    store.add(Metric.NODE_CPU, "", 1, 0.5)
    store.add(Metric.NODE_CPU, "", 2, value)

    assert store.last(Metric.NODE_CPU, "", 0) == 0.5
    assert store.refused == 1


def test_samples_out_of_order_are_ignored() -> None:
    """The last sample counts only if it is new enough."""
    store = MetricStore(60, 1)
    store.add(Metric.POD_CPU, "a", 10, 0.5)

    assert store.last(Metric.POD_CPU, "a", since_s=10) == 0.5
    assert store.last(Metric.POD_CPU, "a", since_s=10.1) is None
    assert store.last(Metric.POD_CPU, "b", since_s=0) is None
    assert store.between(Metric.POD_CPU, "a", 11, 12) is None


def test_series_of_deleted_pods_are_dropped() -> None:
    """Pods come and go for years; the store doesn't grow."""
    store = MetricStore(60, 1)
    for second in range(1000):
        store.add(Metric.POD_CPU, f"pod-{second}", second, 1.0)
        store.expire(second)

    assert len(store) == 61
    assert set(store.owners(Metric.POD_CPU)) == {f"pod-{n}" for n in range(939, 1000)}
