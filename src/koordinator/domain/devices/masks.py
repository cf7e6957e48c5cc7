"""Sets of devices as bit masks: bit ``m`` stands for the device with minor ``m``."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

#: The largest minor of a device that counts: what others write must not make masks large.
MAX_MINOR: Final = 1023


def mask_of(minors: Iterable[int]) -> int:
    """Return the set of these minors, all of them at least 0."""
    mask = 0
    for minor in minors:
        mask |= 1 << minor
    return mask


def masks_of(sets: npt.NDArray[np.bool_]) -> list[int]:
    """Return the set that each row ``(n, width)`` of flags by minor stands for."""
    bits = np.packbits(sets, axis=1, bitorder="little")
    data, width = bits.tobytes(), bits.shape[1]
    if not width:
        return [0] * len(sets)
    return [
        int.from_bytes(data[start : start + width], "little")
        for start in range(0, len(data), width)
    ]


def minors_of(mask: int) -> Iterator[int]:
    """Yield the minors of a set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def lowest(mask: int, count: int) -> int:
    """Return the ``count`` lowest minors of a set that has as many."""
    taken = 0
    for _ in range(count):
        bit = mask & -mask
        taken |= bit
        mask ^= bit
    return taken
