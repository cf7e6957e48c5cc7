"""What becomes of a pod whose hook failed."""

from enum import StrEnum


class FailurePolicy(StrEnum):
    """Ignore: it starts without what the hook wanted.  Fail: it does not start."""

    IGNORE = "Ignore"
    FAIL = "Fail"


class UnpreparedPolicy(StrEnum):
    """Handling of a container that was created while no hook could be asked.

    Report: an event and a metric.  Restart: it is ended as well where the kubelet starts it again.
    """

    REPORT = "Report"
    RESTART = "Restart"
