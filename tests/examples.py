"""Number of examples of a property test in the profiles of Hypothesis."""

from hypothesis import settings

#: ``make test`` draws the same examples at each run; profiles that explore draw as many times more.
MORE = 10


def examples(count: int) -> int:
    """Return half of ``count``, or ``MORE`` times ``count`` with a profile that explores."""
    return max(2, count // 2) if settings().derandomize else count * MORE
