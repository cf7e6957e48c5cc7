"""Rules for selectors of labels and of nodes.

Source: k8s.io/apimachinery pkg/apis/meta/v1/validation/validation.go, ``ValidateLabelSelector``;
k8s.io/kubernetes pkg/apis/core/validation/validation.go, ``ValidateNodeSelector``.
"""

import re

from koordinator.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordinator.api.meta import LabelSelector
from koordinator.api.syntax import (
    check_dns_subdomain,
    check_label_key,
    check_label_value,
    check_labels,
    check_one_of,
    invalid_value,
)

_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")
_WITH_NUMBER = ("Gt", "Lt")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def check_label_selector(selector: LabelSelector | None, path: str) -> None:
    """Check labels, operators and how many values each operator takes."""
    if selector is None:
        return
    check_labels(selector.match_labels, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.match_expressions):
        where = f"{path}.matchExpressions[{index}]"
        check_label_key(requirement.key, f"{where}.key")
        check_one_of(requirement.operator, (*_WITH_VALUES, *_WITHOUT_VALUES), f"{where}.operator")
        _check_values(requirement.operator, requirement.values, where)
        for value in requirement.values:
            check_label_value(value, f"{where}.values")


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
    where = f"{path}.values"
    if operator in _WITH_VALUES and not values:
        raise invalid_value(where, [], f"at least one value with operator {operator}")
    if operator in _WITHOUT_VALUES and values:
        raise invalid_value(where, list(values), f"empty with operator {operator}")
    if operator in _WITH_NUMBER and (len(values) != 1 or not _INTEGER.fullmatch(values[0])):
        raise invalid_value(where, list(values), f"exactly one integer with operator {operator}")
