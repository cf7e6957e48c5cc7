"""Whether a change is worth a write.

Source: koordinator pkg/util/resource.go, ``IsResourceDiff``, ``IsQuantityDiff``.
"""

from koordinator.foundation.quantity import Quantity


def is_different(old: Quantity | None, new: Quantity | None, difference: float) -> bool:
    """Return whether the amounts differ by more than that part of the old one.

    What is there is always different from what is missing.
    """
    if old is None or new is None:
        return old is not new
    return abs(new.milli() - old.milli()) > old.milli() * difference
