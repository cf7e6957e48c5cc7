"""Sets of NUMA nodes or of devices as bit masks: bit i represents NUMA node i, or minor i.

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


#: The largest accepted minor; bounds the size of masks built from input of other components.
MAX_MINOR: Final = 1023


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


def minors_of(mask: int) -> Iterator[int]:
    """Yield the minors of a set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def lowest(mask: int, count: int) -> int:
    """Return the ``count`` lowest minors of a set that has at least as many."""
    taken = 0
    for _ in range(count):
        bit = mask & -mask
        taken |= bit
        mask ^= bit
    return taken
