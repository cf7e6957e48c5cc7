"""Arrays that grow, and kernels."""

import numpy as np
import pytest

from koordinator.foundation.arrays import IntArray, Kernel, extended


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("more", [0, 1, 3])
@pytest.mark.parametrize("fill", [0, -1])
def test_grown_array_keeps_its_values_and_fills_the_rest(axis: int, more: int, fill: int) -> None:
    """As numpy.pad has it, and never the array itself."""
    array = np.arange(12).reshape(3, 2, 2)
    by = [(0, more if each == axis else 0) for each in range(3)]

    result = extended(array, more, axis=axis, fill=fill)

    assert np.array_equal(result, np.pad(array, by, constant_values=fill))
    assert result.dtype == array.dtype
    assert not np.shares_memory(result, array)


def _sum(amounts: IntArray) -> int:
    return int(amounts.sum())


def _sum_loop(amounts: IntArray) -> int:
    total = 0
    for amount in amounts:
        total += amount
    return total


def test_a_kernel_is_compiled_from_its_first_compiled_call() -> None:
    """A kernel that starts with its reference may be compiled later."""
    kernel = Kernel(_sum, _sum_loop, lambda types: (types.Array(types.int64, 1, "C"),))
    amounts = np.arange(4)
    kernel.reference(amounts)
    before = kernel.is_compiled

    assert kernel.compiled(amounts) == kernel.reference(amounts)
    assert (before, kernel.is_compiled) == (False, True)
