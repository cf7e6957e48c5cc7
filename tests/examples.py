"""Number of examples of a property test in the profiles of Hypothesis."""

from hypothesis import settings

#: Profiles that explore, with new examples at each run, draw as many times the examples.
MORE = 10


def examples(count: int) -> int:
    """Return ``count``, or ``MORE`` times as many with a profile that explores."""
    return count if settings().derandomize else count * MORE
