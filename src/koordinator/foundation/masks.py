"""Sets of CPUs, NUMA nodes or devices as bit masks: bit i is the CPU, NUMA node or minor i.

Source: koordinator pkg/util/bitmask/bitmask.go.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

#: With more NUMA nodes than this, only single nodes and the full set are considered: the number of
#: subsets doubles with each node.
MAX_COMBINED: Final = 8

#: The largest accepted id of a NUMA node, as in Linux; bounds the size of masks.
MAX_ZONE: Final = 1023

#: The largest accepted minor; bounds the size of masks built from input of other components.
MAX_MINOR: Final = 1023

_FEW: Final = 8


def mask_of(zones: Iterable[int]) -> int:
    """Return the set of some NUMA nodes."""
    mask = 0
    for zone in zones:
        mask |= 1 << zone
    return mask


@lru_cache(maxsize=256)
def zones_of(mask: int) -> tuple[int, ...]:
    """Return the NUMA nodes of a set, ascending."""
    return tuple(zone for zone in range(mask.bit_length()) if mask >> zone & 1)


@lru_cache(maxsize=256)
def subsets(zones: tuple[int, ...]) -> tuple[int, ...]:
    """Return the non-empty subsets of some NUMA nodes: by size, then in lexicographic order."""
    count = len(zones)
    sizes = range(1, count + 1) if count <= MAX_COMBINED else (1, count)
    return tuple(mask_of(chosen) for size in sizes for chosen in combinations(zones, size))


def mask_text(mask: int | None) -> str:
    """Format a set as the original's messages do: binary, in pairs of digits.

    A single bit at an even index is not padded; no set is ``<nil>``.
    """
    if mask is None:
        return "<nil>"
    width = 2
    while mask > 1 << width:
        width += 2
    return f"{mask:0{width}b}"


def masks_of(sets: npt.NDArray[np.bool_]) -> list[int]:
    """Convert each row of flags by minor, ``(n, width)``, to a mask."""
    bits = np.packbits(sets, axis=1, bitorder="little")
    data, width = bits.tobytes(), bits.shape[1]
    if not width:
        return [0] * len(sets)
    return [
        int.from_bytes(data[start : start + width], "little")
        for start in range(0, len(data), width)
    ]


def bits_of(mask: int) -> Iterator[int]:
    """Yield the members of a set, ascending."""
    while mask:
        lowest_bit = mask & -mask
        yield lowest_bit.bit_length() - 1
        mask ^= lowest_bit


def lowest(mask: int, count: int) -> int:
    """Return the ``count`` lowest members of a set; all of them if it has fewer."""
    if mask.bit_count() <= count:
        return mask
    if count <= _FEW:  # faster than the search
        left = mask
        for _ in range(count):
            left &= left - 1
        return mask ^ left
    low, high = 0, mask.bit_length()
    while low < high:  # the narrowest window from bit 0 with that many bits
        middle = (low + high) // 2
        if (mask & ((1 << middle) - 1)).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return mask & ((1 << low) - 1)
