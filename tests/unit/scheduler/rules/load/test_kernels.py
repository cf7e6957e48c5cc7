"""The compiled loop equals the array code."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.examples import examples

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.rules.load.kernels import (
    CASES,
    FACTS,
    FIGURES,
    MARGINS,
    USED,
    Figure,
    Option,
    StateColumn,
    charged,
    judged,
    taken,
    takes_of,
    weigh,
)
from koordinator.scheduler.rules.load.pod_load import Sum
from koordinator.scheduler.rules.load.rules import UNLIMITED

NODES, WIDTH = 5, 3
amounts = st.sampled_from((0, 1, 99, 100, 6500, 10_000, 1 << 40))
mosts = st.sampled_from((-1, 99, 6500, 1 << 40, UNLIMITED))


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(data=st.data(), is_prod=st.booleans())
def test_compiled_and_array_code_agree(data: st.DataObject, is_prod: bool) -> None:
    """On any figures, limits and facts, with and without more pods."""
    figures = data.draw(arrays(np.int64, (NODES, FIGURES, WIDTH), elements=amounts))
    for which in (Figure.MOST, Figure.PROD_MOST):
        figures[:, which] = data.draw(arrays(np.int64, (NODES, WIDTH), elements=mosts))
    used = data.draw(arrays(np.int64, (NODES, USED, WIDTH), elements=amounts))
    facts = data.draw(arrays(np.int8, (NODES, FACTS), elements=st.integers(0, 1)))
    facts[:, StateColumn.STATUS] = data.draw(arrays(np.int8, NODES, elements=st.integers(0, 3)))
    facts[:, StateColumn.CASE] = data.draw(
        arrays(np.int8, NODES, elements=st.integers(0, CASES - 1))
    )
    rows = data.draw(arrays(np.int64, 4, elements=st.integers(0, NODES - 1)))
    times = data.draw(arrays(np.int64, 4, elements=st.integers(0, 3)))
    addends = data.draw(arrays(np.int64, len(Sum) * WIDTH, elements=amounts))
    takes = takes_of(tuple(addends.tolist()), (99, 1, 1 << 40))
    options = data.draw(arrays(np.int64, len(Option), elements=st.integers(0, 1)))
    weights = data.draw(arrays(np.int64, WIDTH, elements=st.integers(0, 100)))
    margins, likewise = np.zeros((2, NODES, MARGINS, WIDTH), np.int64)
    weigh.reference(np.arange(NODES), used, figures, facts, margins)
    weigh.compiled(np.arange(NODES), used, figures, facts, likewise)
    assert np.array_equal(margins, likewise)
    for sign in (1, 1, -1):
        charged.compiled(2, sign, takes, margins, facts)
        charged.reference(2, sign, takes, likewise, facts)
        assert np.array_equal(margins, likewise)
    for more in (times, times[:0]):
        arguments = rows, more, takes, margins, facts, options, weights, is_prod, 3
        outputs = [(np.full(4, 9), np.arange(4) > 0, np.arange(4)) for _ in range(2)]
        judged.compiled(*arguments, *outputs[0])
        judged.reference(*arguments, *outputs[1])
        assert all(map(np.array_equal, *outputs))
        without_codes = np.zeros(0, np.int64), np.arange(4) > 0, np.arange(4)
        judged.compiled(*arguments, *without_codes)
        assert all(map(np.array_equal, without_codes[1:], outputs[0][1:]))


@given(
    addends=arrays(np.int64, len(Sum) * WIDTH, elements=amounts),
    used=arrays(np.int64, (1, USED, WIDTH), elements=amounts),
    case=st.integers(0, CASES - 1),
)
def test_incremental_load_equals_a_recount(addends: IntArray, used: IntArray, case: int) -> None:
    """The cases include nodes with missing and expired reports."""
    facts, figures = np.zeros((1, FACTS), np.int8), np.ones((1, FIGURES, WIDTH), np.int64)
    facts[0, StateColumn.CASE] = case
    before, after = np.zeros((2, 1, MARGINS, WIDTH), np.int64)
    weigh.reference(np.zeros(1, int), used, figures, facts, before)
    used[:, : len(Sum)] += addends.reshape(len(Sum), WIDTH)
    weigh.reference(np.zeros(1, int), used, figures, facts, after)

    assert np.array_equal(before - taken(tuple(addends.tolist()), case), after)
