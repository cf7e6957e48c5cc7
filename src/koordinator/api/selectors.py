"""Matching of labels, and label selectors in text form.

Source: k8s.io/apimachinery pkg/apis/meta/v1/helpers.go ``LabelSelectorAsSelector``,
pkg/labels/selector.go ``Requirement.Matches``, ``Parse``.
"""

import re
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
                f"must be In, NotIn, Exists or DoesNotExist, got {operator!r}",
                path="operator",
            )


_WORD = r"[^\s,!=()<>]+"
_REQUIREMENT = re.compile(
    rf"(?P<absent>!)?\s*(?P<key>{_WORD})\s*"
    rf"(?:(?P<equals>==?|!=)\s*(?P<value>[^\s,!=()<>]*)"
    rf"|(?<=\s)(?P<among>in|notin)\s*\((?P<values>[^()]*)\))?\s*(?:,\s*|$)"
)


def parse_label_selector(text: str) -> LabelSelector:
    """Return the selector that a text spells, such as ``a=b,!c,d in (e,f)``; empty: all.

    Raises InputError for a text that is none; keys and values are not looked at.
    """
    requirements, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _REQUIREMENT.match(text, at)
        if match is None or (match["absent"] and (match["equals"] or match["among"])):
            accepted = "a label selector such as a=b,c!=d,e in (f,g),h,!i"
            raise InputError(f"must be {accepted}, got {text!r}")
        requirements.append(_requirement(match))
        at = match.end()
    return LabelSelector(match_expressions=tuple(requirements))


def _requirement(match: re.Match[str]) -> LabelSelectorRequirement:
    key = match["key"]
    if match["equals"]:
        operator = "NotIn" if match["equals"] == "!=" else "In"
        return LabelSelectorRequirement(key=key, operator=operator, values=(match["value"],))
    if match["among"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        operator = "In" if match["among"] == "in" else "NotIn"
        return LabelSelectorRequirement(key=key, operator=operator, values=values)
    return LabelSelectorRequirement(
        key=key, operator="DoesNotExist" if match["absent"] else "Exists"
    )
