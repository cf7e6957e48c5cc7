"""Label keys and values that are made up one after the other."""

import gc
import tracemalloc

from koordinator.api.syntax import check_labels

MADE_UP = 20_000
MIB = 1 << 20


def test_labels_that_come_once_leave_little_memory_behind() -> None:
    """The cache of checked keys and values is bounded."""
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(MADE_UP):
            check_labels({f"example.com/{number:>040}": f"{number:>060}"}, "metadata.labels")
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert left < 2.5 * MIB
