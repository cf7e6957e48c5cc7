"""Lists of CPUs for the in-memory kernel; in a mask, bit i is CPU i."""

from koordinator.foundation.errors import InputError


def parse_cpus(text: str) -> int:
    """Return the mask of a list such as ``0-3,8``.  Raises InputError."""
    mask = 0
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"must be a list such as 0-3,8, got {text!r}")
        mask |= (2 << int(last or first)) - (1 << int(first))
    return mask
