"""What becomes of a pod whose hook failed."""

from enum import StrEnum


class FailurePolicy(StrEnum):
    """Ignore: it starts without what the hook wanted.  Fail: it does not start."""

    IGNORE = "Ignore"
    FAIL = "Fail"
