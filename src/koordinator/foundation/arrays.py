"""Arrays that grow."""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

ScalarT = TypeVar("ScalarT", bound=np.generic)


def extended(
    array: npt.NDArray[ScalarT], more: int, *, axis: int = 0, fill: float = 0
) -> npt.NDArray[ScalarT]:
    """Return a copy with ``more`` entries along an axis, each of them ``fill``.

    What ``numpy.pad`` does in general, in a tenth of its time for the arrays of a small cluster.
    """
    shape = [size + more if number == axis else size for number, size in enumerate(array.shape)]
    longer: npt.NDArray[Any] = np.empty(shape, array.dtype)
    before = (slice(None),) * axis
    longer[(*before, slice(array.shape[axis]))] = array
    longer[(*before, slice(array.shape[axis], None))] = fill
    return longer
