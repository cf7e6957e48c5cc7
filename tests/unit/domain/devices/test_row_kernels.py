"""Compiled loops over many nodes and the array code that they must agree with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from koordinator.domain.devices.amounts import IntArray
from koordinator.domain.devices.masks import masks_of
from koordinator.domain.devices.row_kernels import (
    ANYWHERE,
    SELECTED,
    device_masks,
    node_scores,
)

ROWS, MINORS, AMOUNTS = 4, 5, 3
amounts = st.sampled_from((0, 1, 30, 100, 2**35))

tables = arrays.arrays(np.int64, (ROWS, MINORS, AMOUNTS), elements=amounts)
chosen = st.lists(st.integers(0, ROWS - 1), max_size=6).map(lambda rows: np.array(rows, np.int64))
vectors = arrays.arrays(np.int64, AMOUNTS, elements=amounts)
weights = arrays.arrays(np.int64, AMOUNTS, elements=st.integers(0, 3))


counts = arrays.arrays(np.int64, (ROWS, MINORS), elements=st.integers(0, 2))
limits = arrays.arrays(np.int64, MINORS, elements=st.integers(0, 3))
places = arrays.arrays(
    np.int64, MINORS, elements=st.sampled_from((0, SELECTED, SELECTED | 1, ANYWHERE))
)


@pytest.mark.slow
@settings(deadline=None)
@given(left=tables, used=tables, taken=counts, rows=chosen, asked=vectors, enough=limits)
def test_which_devices_fit(  # noqa: PLR0917 (the arguments of the loop)
    left: IntArray,
    used: IntArray,
    taken: IntArray,
    rows: IntArray,
    asked: IntArray,
    enough: IntArray,
) -> None:
    """Also where more is taken than there is, or few virtual functions are left."""
    left = left - used
    holders = (used.sum(axis=2) > 0).astype(np.int64)
    arguments = (left, holders, taken, rows, asked, enough)
    want, found = np.zeros((2, 2, len(rows)), np.int64)
    before = 5
    for out, masks in ((want, device_masks.reference), (found, device_masks.compiled)):
        out[0] = before
        masks(*arguments, 3, out)

    assert np.array_equal(found, want)
    assert (want[0] & 0b111).tolist() == [before] * len(rows)
    assert (want[0] >> 3 + MINORS).tolist() == masks_of(holders[rows] > 0)


@pytest.mark.slow
@settings(deadline=None)
@given(
    total=tables,
    used=tables,
    rows=chosen,
    zones=st.sampled_from((0, 1, 2, 3)),
    serving=places,
    asked=vectors,
    by=weights,
    most=st.booleans(),
)
def test_how_full_the_devices_would_be(  # noqa: PLR0917 (the arguments of the loop)
    total: IntArray,
    used: IntArray,
    rows: IntArray,
    zones: int,
    serving: IntArray,
    asked: IntArray,
    by: IntArray,
    most: bool,
) -> None:
    """The most and the least, by any weights, of any NUMA nodes."""
    near = np.full(len(rows), zones, np.int64)
    arguments = (total, total - used, rows, near, serving, asked, by, most)

    want, found = np.ones((2, len(rows)), np.int64)
    node_scores.reference(*arguments, want)
    node_scores.compiled(*arguments, found)

    assert np.array_equal(found, want)
