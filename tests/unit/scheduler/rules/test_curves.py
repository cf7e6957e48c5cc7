"""Curves from utilization to score."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.scheduler.rules.curves import piecewise


def shapes() -> st.SearchStrategy[list[tuple[int, int]]]:
    """Return points as configurations may have them: utilizations rise, scores need not."""
    utilizations = st.lists(st.integers(0, 100), min_size=1, max_size=6, unique=True).map(sorted)
    return utilizations.flatmap(
        lambda xs: st.tuples(*(st.tuples(st.just(x), st.integers(0, 100)) for x in xs)).map(list)
    )


def transcribed(shape: list[tuple[int, int]], requested: int, capacity: int) -> int:
    """Return what shape_score.go computes, in its order; Go's division truncates."""
    full = capacity == 0 or requested > capacity
    p = 100 if full else requested * 100 // capacity
    for (x0, y0), (x1, y1) in zip([shape[0], *shape], shape, strict=False):
        if p <= x1:
            if x0 == x1:
                return y1
            rise, run = (y1 - y0) * (p - x0), x1 - x0
            return y0 + (abs(rise) // run) * (1 if rise >= 0 else -1)
    return shape[-1][1]


@given(
    shape=shapes(),
    amounts=st.lists(
        st.tuples(st.integers(0, 1 << 46), st.integers(0, 1 << 46)), min_size=1, max_size=8
    ),
)
def test_a_curve_is_what_go_computes(
    shape: list[tuple[int, int]], amounts: list[tuple[int, int]]
) -> None:
    """To the last unit, for amounts of any size."""
    requested, capacity = np.array(amounts, np.int64).T

    assert piecewise(shape)(requested, capacity).tolist() == [
        transcribed(shape, *pair) for pair in amounts
    ]


@pytest.mark.parametrize(
    ("requested", "score"),
    [(0, 100), (10, 100), (11, 97), (12, 94), (39, 4), (40, 0), (70, 0), (101, 0)],
)
def test_a_falling_curve_truncates_towards_zero(requested: int, score: int) -> None:
    """A drop of 3.33 takes 3 off, one of 6.67 takes 6: Go rounds the change, not the score."""
    curve = piecewise([(10, 100), (40, 0)])

    assert curve(np.array([requested]), np.array([100])).tolist() == [score]
