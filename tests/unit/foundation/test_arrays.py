"""Arrays that grow."""

import numpy as np
import pytest

from koordinator.foundation.arrays import extended


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("more", [0, 1, 3])
@pytest.mark.parametrize("fill", [0, -1])
def test_what_was_there_stays_and_the_rest_is_filled(axis: int, more: int, fill: int) -> None:
    """As numpy.pad has it, and never the array itself."""
    array = np.arange(12).reshape(3, 2, 2)
    by = [(0, more if each == axis else 0) for each in range(3)]

    result = extended(array, more, axis=axis, fill=fill)

    assert np.array_equal(result, np.pad(array, by, constant_values=fill))
    assert result.dtype == array.dtype
    assert not np.shares_memory(result, array)
