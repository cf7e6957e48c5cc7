"""Compiled loops over many nodes and the array code that they must agree with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from koordinator.domain.devices.amounts import IntArray
from koordinator.domain.devices.masks import masks_of
from koordinator.domain.devices.row_kernels import device_masks, node_scores

ROWS, MINORS, AMOUNTS = 4, 5, 3
amounts = st.sampled_from((0, 1, 30, 100, 2**35))

tables = arrays.arrays(np.int64, (ROWS, MINORS, AMOUNTS), elements=amounts)
chosen = st.lists(st.integers(0, ROWS - 1), max_size=6).map(lambda rows: np.array(rows, np.int64))
vectors = arrays.arrays(np.int64, AMOUNTS, elements=amounts)
flags = arrays.arrays(np.int64, MINORS, elements=st.integers(0, 1))
weights = arrays.arrays(np.int64, AMOUNTS, elements=st.integers(0, 3))


@pytest.mark.slow
@settings(deadline=None)
@given(left=tables, used=tables, rows=chosen, asked=vectors)
def test_which_devices_fit(left: IntArray, used: IntArray, rows: IntArray, asked: IntArray) -> None:
    """Also where more is taken than there is."""
    left = left - used
    holders = (used.sum(axis=2) > 0).astype(np.int64)
    want = device_masks.reference(left, holders, rows, asked)

    assert np.array_equal(device_masks.compiled(left, holders, rows, asked), want)
    assert want[1].tolist() == masks_of(holders[rows] > 0)


@pytest.mark.slow
@settings(deadline=None)
@given(
    total=tables,
    used=tables,
    rows=chosen,
    may=flags,
    asked=vectors,
    by=weights,
    most=st.booleans(),
)
def test_how_full_the_devices_would_be(  # noqa: PLR0917 (the arguments of the loop)
    total: IntArray,
    used: IntArray,
    rows: IntArray,
    may: IntArray,
    asked: IntArray,
    by: IntArray,
    most: bool,
) -> None:
    """The most and the least, by any weights."""
    arguments = (total, total - used, rows, may, asked, by, most)

    assert np.array_equal(node_scores.compiled(*arguments), node_scores.reference(*arguments))
