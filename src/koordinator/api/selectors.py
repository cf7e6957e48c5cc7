"""Which labels a label selector selects.

Source: k8s.io/apimachinery pkg/apis/meta/v1/helpers.go ``LabelSelectorAsSelector``,
pkg/labels/selector.go ``Requirement.Matches``.
"""

from collections.abc import Mapping

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.foundation.errors import InputError


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether all requirements hold; an empty selector matches all labels, None no labels.

    Raises InputError for an operator that a label selector doesn't have.
    """
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions)


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":  # a missing label is not in any set
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            raise InputError(
                f"found {operator!r}; accepted is In, NotIn, Exists or DoesNotExist",
                path="operator",
            )
