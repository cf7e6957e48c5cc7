"""Histograms in which old samples fade."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.errors import InputError
from koordinator.koordlet.prediction.models import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    DecayingHistogram,
    HistogramCheckpoint,
)

NOW_S = 1_700_000_000.0
HOUR_S = 3600.0


def test_buckets_are_those_of_the_original() -> None:
    """158 of CPU, 205 of memory."""
    assert (CPU_BUCKETS.count, MEMORY_BUCKETS.count) == (158, 205)
    assert CPU_BUCKETS.index(2.0) == 32
    assert MEMORY_BUCKETS.index(3 * 2**30) == 70


def test_a_percentile_is_the_end_of_its_bucket() -> None:
    """A constant is predicted a little too high, never too low."""
    cpu, memory = (
        DecayingHistogram(CPU_BUCKETS, 12 * HOUR_S),
        DecayingHistogram(MEMORY_BUCKETS, 24 * HOUR_S),
    )
    for minute in range(100):
        cpu.add(2.0, NOW_S + 60 * minute)
        memory.add(3 * 2**30, NOW_S + 60 * minute)

    assert cpu.percentile(0.95) == pytest.approx(2.0016, abs=1e-4)
    assert memory.percentile(0.98) / 2**30 == pytest.approx(3.022, abs=1e-3)


def test_an_empty_histogram_predicts_nothing() -> None:
    """Zero, as in the original."""
    assert DecayingHistogram(CPU_BUCKETS, HOUR_S).percentile(0.9) == 0


def test_a_sample_of_one_half_life_ago_counts_half() -> None:
    """Two old ones and one new one are equal in weight."""
    histogram = DecayingHistogram(CPU_BUCKETS, HOUR_S)
    histogram.add(1.0, NOW_S)
    histogram.add(1.0, NOW_S)
    histogram.add(8.0, NOW_S + HOUR_S)

    assert histogram.percentile(0.49) < 1.1
    assert histogram.percentile(0.51) > 8.0


def test_the_past_is_forgotten_in_the_end() -> None:
    """After two hundred half-lives nothing is left of a peak."""
    histogram = DecayingHistogram(CPU_BUCKETS, HOUR_S)
    histogram.add(100.0, NOW_S)
    histogram.add(1.0, NOW_S + 200 * HOUR_S)

    assert histogram.percentile(1.0) < 1.1


@given(st.lists(st.floats(0, 2000), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.98]))
def test_percentiles_are_those_of_the_samples(values: list[float], share: float) -> None:
    """At one moment no sample fades: the answer is the bucket of the sample of that rank."""
    histogram = DecayingHistogram(CPU_BUCKETS, HOUR_S)
    for value in values:
        histogram.add(value, NOW_S)
    rank = share * len(values)
    near = {min(max(math.floor(rank + slack), 1), len(values)) for slack in (-1e-6, 1 - 1e-6, 1)}
    buckets = {CPU_BUCKETS.index(sorted(values)[number - 1]) for number in near}

    assert histogram.percentile(share) in {CPU_BUCKETS.start(min(b + 1, 157)) for b in buckets}


@given(st.lists(st.tuples(st.floats(0, 2000), st.floats(0, 1e6)), min_size=1, max_size=40))
def test_a_checkpoint_predicts_the_same(samples: list[tuple[float, float]]) -> None:
    """Weights below a ten-thousandth of the largest are left out."""
    histogram = DecayingHistogram(CPU_BUCKETS, 12 * HOUR_S)
    for value, offset_s in sorted(samples, key=lambda sample: sample[1]):
        histogram.add(value, NOW_S + offset_s)
    restored = DecayingHistogram(CPU_BUCKETS, 12 * HOUR_S)
    restored.restore(histogram.checkpoint())

    again, first = restored.checkpoint(), histogram.checkpoint()
    assert again.bucket_weights == first.bucket_weights
    assert again.total_weight == pytest.approx(first.total_weight)
    assert again.reference_timestamp == first.reference_timestamp


@pytest.mark.parametrize(
    "checkpoint",
    [
        HistogramCheckpoint(bucket_weights={158: 1}, total_weight=1),
        HistogramCheckpoint(bucket_weights={-1: 1}, total_weight=1),
        HistogramCheckpoint(bucket_weights={0: -1}, total_weight=1),
        HistogramCheckpoint(bucket_weights={0: 1}, total_weight=-1),
        HistogramCheckpoint(bucket_weights={0: 1}, total_weight=math.nan),
    ],
)
def test_a_broken_checkpoint_is_refused(checkpoint: HistogramCheckpoint) -> None:
    """The model then starts empty."""
    with pytest.raises(InputError):
        DecayingHistogram(CPU_BUCKETS, HOUR_S).restore(checkpoint)
