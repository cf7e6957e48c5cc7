"""Lookup of conditions by type.

Source: k8s.io/apimachinery pkg/api/meta/conditions.go, ``FindStatusCondition`` and
``IsStatusConditionTrue``.
"""

from collections.abc import Iterable
from typing import TypeVar

from koordinator.api.crd import StandardCondition
from koordinator.api.meta import Condition

ConditionT = TypeVar("ConditionT", Condition, StandardCondition)


def find_condition(conditions: Iterable[ConditionT], kind: str) -> ConditionT | None:
    """Return the first condition of a type, None if there is none."""
    return next((each for each in conditions if each.type == kind), None)


def is_condition_true(conditions: Iterable[ConditionT], kind: str) -> bool:
    """Return whether a condition of a type has the status True."""
    return any(each.type == kind and each.status == "True" for each in conditions)
