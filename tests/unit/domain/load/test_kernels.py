"""The compiled loop says what the array code says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from koordinator.domain.load.kernels import (
    FACTS,
    FIGURES,
    MARGINS,
    Figure,
    Option,
    count,
    judged,
    weigh,
)
from koordinator.domain.load.limits import UNLIMITED
from koordinator.domain.load.pod_load import Sum

NODES, WIDTH = 5, 3
amounts = st.sampled_from((0, 1, 99, 100, 6500, 10_000, 1 << 40))
mosts = st.sampled_from((-1, 99, 6500, 1 << 40, UNLIMITED))


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data(), is_prod=st.booleans())
def test_compiled_and_array_code_agree(data: st.DataObject, is_prod: bool) -> None:
    """On any figures, limits and facts, with and without more pods."""
    figures = data.draw(arrays(np.int64, (NODES, FIGURES, WIDTH), elements=amounts))
    for which in (Figure.MOST, Figure.PROD_MOST):
        figures[:, which] = data.draw(arrays(np.int64, (NODES, WIDTH), elements=mosts))
    facts = data.draw(arrays(np.int8, (NODES, FACTS), elements=st.integers(0, 1)))
    facts[:, 0] = data.draw(arrays(np.int8, NODES, elements=st.integers(0, 3)))
    rows = data.draw(arrays(np.int64, 4, elements=st.integers(0, NODES - 1)))
    times = data.draw(arrays(np.int64, 4, elements=st.integers(0, 3)))
    some = np.unique(rows)
    pods = data.draw(arrays(np.int64, (len(Sum) + 1, WIDTH), elements=amounts))
    options = data.draw(arrays(np.int64, len(Option), elements=st.integers(0, 1)))
    weights = data.draw(arrays(np.int64, WIDTH, elements=st.integers(0, 100)))
    kept = [(figures.copy(), np.zeros((NODES, MARGINS, WIDTH), np.int64)) for _ in range(2)]
    for (mine, margins), weighed, counted in zip(
        kept, (weigh.reference, weigh.compiled), (count.reference, count.compiled), strict=True
    ):
        weighed(np.arange(NODES), mine, facts, margins)
        before = margins.copy()
        counted(some, times[: len(some)], pods, mine, facts, margins)
        counted(some, -times[: len(some)], pods, mine, facts, margins)
        assert np.array_equal(before, margins)
        counted(some, times[: len(some)], pods, mine, facts, margins)
    (figures, margins), (likewise, also) = kept
    assert np.array_equal(figures, likewise)
    assert np.array_equal(margins, also)
    for more in (times, times[:0]):
        asked = rows, more, pods, margins, facts, options, weights, is_prod, 3
        told = [(np.full(4, 9), np.arange(4) > 0, np.arange(4)) for _ in range(2)]
        judged.compiled(*asked, *told[0])
        judged.reference(*asked, *told[1])
        assert all(map(np.array_equal, *told))
        untold = np.zeros(0, np.int64), np.arange(4) > 0, np.arange(4)
        judged.compiled(*asked, *untold)
        assert all(map(np.array_equal, untold[1:], told[0][1:]))
