"""Policies for failed and missed runtime hooks."""

from enum import StrEnum


class FailurePolicy(StrEnum):
    """Ignore: the container starts without the hook's changes.  Fail: it does not start."""

    IGNORE = "Ignore"
    FAIL = "Fail"


class UnpreparedPolicy(StrEnum):
    """Handling of a container that was created while the hooks were unavailable.

    Report: write an event and a metric.  Restart: also stop it, if the kubelet restarts it.
    """

    REPORT = "Report"
    RESTART = "Restart"
