"""The compiled loop says what the array code says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from koordinator.domain.load.kernels import FACTS, FIGURES, Figure, Option, judged
from koordinator.domain.load.pod_load import Sum

NODES, WIDTH = 5, 3
amounts = st.sampled_from((0, 1, 99, 100, 6500, 10_000, 1 << 40))
percents = st.sampled_from((0, 0, 1, 65, 100))


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data(), is_prod=st.booleans())
def test_compiled_and_array_code_agree(data: st.DataObject, is_prod: bool) -> None:
    """On any figures, limits and facts, with and without more pods."""
    figures = data.draw(arrays(np.int64, (NODES, FIGURES, WIDTH), elements=amounts))
    for which in (Figure.LIMIT, Figure.PROD_LIMIT):
        figures[:, which] = data.draw(arrays(np.int64, (NODES, WIDTH), elements=percents))
    facts = data.draw(arrays(np.int8, (NODES, FACTS), elements=st.integers(0, 1)))
    facts[:, 0] = data.draw(arrays(np.int8, NODES, elements=st.integers(0, 3)))
    rows = data.draw(arrays(np.int64, 4, elements=st.integers(0, NODES - 1)))
    times = data.draw(arrays(np.int64, 4, elements=st.integers(0, 3)))
    pods = data.draw(arrays(np.int64, (len(Sum) + 1, WIDTH), elements=amounts))
    options = data.draw(arrays(np.int64, len(Option), elements=st.integers(0, 1)))
    weights = data.draw(arrays(np.int64, WIDTH, elements=st.integers(0, 100)))
    for more in (times, times[:0]):
        asked = rows, more, pods, figures, facts, options, weights, is_prod
        assert np.array_equal(judged.compiled(*asked), judged.reference(*asked))
