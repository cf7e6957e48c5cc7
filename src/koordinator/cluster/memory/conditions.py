"""Conditions of a pod as the server sets them.

Source: k8s.io/kubernetes pkg/api/v1/pod/util.go ``UpdatePodCondition``.
"""

import datetime as dt

from msgspec.structs import replace

from koordinator.api.meta import Condition
from koordinator.api.pod import PodStatus


def with_condition(status: PodStatus, condition: Condition, now: dt.datetime) -> PodStatus:
    """Return the status with this condition in place of that of its type, or as the last.

    The time of the transition is ``now`` unless the condition is what it was.
    """
    conditions = status.conditions
    for index, old in enumerate(conditions):
        if old.type == condition.type:
            since = old.last_transition_time if old.status == condition.status else now
            fresh = replace(condition, last_transition_time=since)
            return replace(
                status, conditions=(*conditions[:index], fresh, *conditions[index + 1 :])
            )
    fresh = replace(condition, last_transition_time=now)
    return replace(status, conditions=(*conditions, fresh))


def condition_status(status: PodStatus, condition_type: str) -> str:
    """Return True, False or Unknown, or nothing if there is no condition of the type."""
    for condition in status.conditions:
        if condition.type == condition_type:
            return condition.status
    return ""
