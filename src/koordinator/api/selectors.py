"""Label and node selectors: matching, parsing and validation.

Source: k8s.io/apimachinery pkg/apis/meta/v1/helpers.go ``LabelSelectorAsSelector``,
pkg/labels/selector.go ``Requirement.Matches``, ``Parse``; k8s.io/apimachinery
pkg/apis/meta/v1/validation/validation.go, ``ValidateLabelSelector``; k8s.io/kubernetes
pkg/apis/core/validation/validation.go, ``ValidateNodeSelector``.
"""

import re
from collections.abc import Mapping

from koordinator.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.syntax import (
    check_dns_subdomain,
    check_label_key,
    check_label_value,
    check_labels,
    check_one_of,
    invalid_value,
)
from koordinator.foundation.errors import InputError, InvalidError

_WORD = r"[^\s,!=()<>]+"
_REQUIREMENT = re.compile(
    rf"(?P<absent>!)?\s*(?P<key>{_WORD})\s*"
    rf"(?:(?P<equals>==?|!=)\s*(?P<value>[^\s,!=()<>]*)"
    rf"|(?<=\s)(?P<among>in|notin)\s*\((?P<values>[^()]*)\))?\s*(?:,\s*|$)"
)

_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")
_WITH_NUMBER = ("Gt", "Lt")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether all requirements hold; an empty selector matches all labels, None no labels.

    Raises InputError for an operator that a label selector doesn't have.
    """
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(_meets(requirement, labels) for requirement in selector.match_expressions)


def _meets(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
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


def selector_text(selector: LabelSelector | None) -> str:
    """Return a label selector as a query has it, and kubectl: ``app=web,tier in (a,b)``.

    Raises InvalidError for an unknown operator.
    """
    if selector is None:
        return ""
    parts = [f"{key}={value}" for key, value in selector.match_labels.items()]
    return ",".join([*parts, *map(_requirement_text, selector.match_expressions)])


def _requirement_text(requirement: LabelSelectorRequirement) -> str:
    values = ",".join(requirement.values)
    match requirement.operator:
        case "In":
            return f"{requirement.key} in ({values})"
        case "NotIn":
            return f"{requirement.key} notin ({values})"
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case operator:
            raise InvalidError(
                "label selector: operator: must be In, NotIn, Exists or DoesNotExist, got "
                f"{operator!r}"
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


def check_label_selector(selector: LabelSelector | None, path: str) -> None:
    """Check labels, operators and how many values each operator takes."""
    if selector is None:
        return
    check_labels(selector.match_labels, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.match_expressions):
        field_path = f"{path}.matchExpressions[{index}]"
        check_label_key(requirement.key, f"{field_path}.key")
        check_one_of(
            requirement.operator, (*_WITH_VALUES, *_WITHOUT_VALUES), f"{field_path}.operator"
        )
        _check_values(requirement.operator, requirement.values, field_path)
        for value in requirement.values:
            check_label_value(value, f"{field_path}.values")


def check_node_selector(selector: NodeSelector, path: str) -> None:
    """Check that there is a term, and every term."""
    if not selector.node_selector_terms:
        raise invalid_value(f"{path}.nodeSelectorTerms", [], "at least one term")
    for index, term in enumerate(selector.node_selector_terms):
        check_node_selector_term(term, f"{path}.nodeSelectorTerms[{index}]")


def check_node_selector_term(term: NodeSelectorTerm, path: str) -> None:
    """Check labels, fields, operators and how many values each operator takes."""
    for index, requirement in enumerate(term.match_expressions):
        _check_node_label(requirement, f"{path}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.match_fields):
        _check_node_field(requirement, f"{path}.matchFields[{index}]")


def _check_node_label(requirement: NodeSelectorRequirement, path: str) -> None:
    check_label_key(requirement.key, f"{path}.key")
    operators = (*_WITH_VALUES, *_WITHOUT_VALUES, *_WITH_NUMBER)
    check_one_of(requirement.operator, operators, f"{path}.operator")
    _check_values(requirement.operator, requirement.values, path)
    for index, value in enumerate(requirement.values):
        check_label_value(value, f"{path}.values[{index}]")


def _check_node_field(requirement: NodeSelectorRequirement, path: str) -> None:
    check_one_of(requirement.key, ("metadata.name",), f"{path}.key")
    check_one_of(requirement.operator, _WITH_VALUES, f"{path}.operator")
    if len(requirement.values) != 1:
        raise invalid_value(f"{path}.values", list(requirement.values), "exactly one node name")
    check_dns_subdomain(requirement.values[0], f"{path}.values[0]")


def _check_values(operator: str, values: tuple[str, ...], path: str) -> None:
    field_path = f"{path}.values"
    if operator in _WITH_VALUES and not values:
        raise invalid_value(field_path, [], f"at least one value with operator {operator}")
    if operator in _WITHOUT_VALUES and values:
        raise invalid_value(field_path, list(values), f"empty with operator {operator}")
    if operator in _WITH_NUMBER and (len(values) != 1 or not _INTEGER.fullmatch(values[0])):
        raise invalid_value(
            field_path, list(values), f"exactly one integer with operator {operator}"
        )
