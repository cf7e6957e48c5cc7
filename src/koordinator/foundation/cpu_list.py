"""Sets of CPUs as bit masks: bit i is CPU i.  Text is the list format of Linux, ``0-3,8``.

Source: koordinator pkg/util/cpuset/cpuset.go; man 7 cpuset, "Formats".
"""

from typing import Final

from koordinator.foundation.errors import InputError

CPU_LIMIT: Final = 4096  # ids are below it; bounds the work that one text can cause

_ACCEPTED = f"CPU ids in 0..{CPU_LIMIT - 1} and ranges of them, such as 0-3,8"


def parse_cpu_list(text: str) -> int:
    """Return the mask of a list of CPUs; no text is no CPU.

    Raises InputError if it is not such a list.
    """
    mask = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        low = _cpu_id(first, text)
        high = _cpu_id(last, text) if dash else low
        if high < low:
            raise InputError(f"must be {_ACCEPTED}, got {part!r} in {text!r}: a range must ascend")
        mask |= (2 << high) - (1 << low)
    return mask


def format_cpu_list(mask: int) -> str:
    """Return the shortest list, in ascending order."""
    ranges = []
    while mask:
        first = (mask & -mask).bit_length() - 1
        above = mask + (mask & -mask)  # the carry stops behind the run
        last = (above & -above).bit_length() - 2
        ranges.append(f"{first}-{last}" if last > first else str(first))
        mask &= above
    return ",".join(ranges)


def _cpu_id(digits: str, text: str) -> int:
    if digits.isascii() and digits.isdigit() and len(digits) <= len(str(CPU_LIMIT)):
        number = int(digits)
        if number < CPU_LIMIT:
            return number
    raise InputError(f"must be {_ACCEPTED}, got {digits!r} in {text!r}")
