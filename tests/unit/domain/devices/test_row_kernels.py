"""Compiled loops over many nodes and the array code that they must agree with."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from koordinator.domain.devices.scorer import (
    ANYWHERE,
    SELECTED,
    judge_devices,
)
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.masks import masks_of

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
@given(left=tables, used=tables, taken=counts, rows=chosen, wanted=vectors, enough=limits)
def test_compiled_and_reference_loops_find_the_same_devices(  # noqa: PLR0917 (the arguments of the loop)
    left: IntArray,
    used: IntArray,
    taken: IntArray,
    rows: IntArray,
    wanted: IntArray,
    enough: IntArray,
) -> None:
    """The cases include overallocated devices, and few remaining virtual functions."""
    left = left - used
    holders = (used.sum(axis=2) > 0).astype(np.int64)
    nothing = np.zeros_like(wanted)
    arguments: list[Any] = [left, left, holders, taken, rows, np.zeros_like(rows)]
    arguments += (wanted, enough, np.zeros_like(enough), nothing, False)
    want, compiled = np.zeros((2, 3, len(rows)), np.int64)
    before = 5
    ways: tuple[Any, ...] = (want, judge_devices.reference), (compiled, judge_devices.compiled)
    for out, judge in ways:
        out[0] = before
        judge(*arguments, 3, out)

    assert np.array_equal(compiled, want)
    assert (want[0] & 0b111).tolist() == [before] * len(rows)
    assert (want[0] >> 3 + MINORS).tolist() == masks_of(holders[rows] > 0)
    assert not want[2].any()


@pytest.mark.slow
@settings(deadline=None)
@given(
    total=tables,
    used=tables,
    rows=chosen,
    zones=st.sampled_from((0, 1, 2, 3)),
    serving=places,
    wanted=vectors,
    by=weights,
    most=st.booleans(),
)
def test_how_full_the_devices_would_be(  # noqa: PLR0917 (the arguments of the loop)
    total: IntArray,
    used: IntArray,
    rows: IntArray,
    zones: int,
    serving: IntArray,
    wanted: IntArray,
    by: IntArray,
    most: bool,
) -> None:
    """The most and the least, by any weights, of any NUMA nodes."""
    near = np.full(len(rows), zones, np.int64)
    counts = np.zeros((ROWS, MINORS), np.int64)
    arguments = (total, total - used, counts, counts, rows, near, wanted, counts[0], serving)

    want, compiled = np.ones((2, 3, len(rows)), np.int64)
    judge_devices.reference(*arguments, by, most, -1, want)
    judge_devices.compiled(*arguments, by, most, -1, compiled)

    assert (want[:2] == 1).all()
    assert np.array_equal(compiled, want)
