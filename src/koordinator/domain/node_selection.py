"""Node selectors, node affinity, and taints, evaluated for one node.

Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity; k8s.io/api core/v1/toleration.go
``ToleratesTaint``.
"""

from collections.abc import Callable, Iterable, Mapping

from koordinator.api.core import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
    Toleration,
)
from koordinator.api.dynamic_resources import DeviceTaint, DeviceToleration
from koordinator.api.node import Node
from koordinator.api.pod import PodSpec

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
FORBIDDING = ("NoSchedule", "NoExecute")

_NAME = "metadata.name"
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "Gt": lambda label, bound: label > bound,
    "Lt": lambda label, bound: label < bound,
}


def tolerates(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    """Return whether the toleration matches the taint of a node or device.

    An empty effect or key matches all; ``Exists`` matches every value.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: Iterable[str]
) -> list[Taint]:
    """Return the taints of these effects that no toleration matches."""
    tolerations = tuple(tolerations)
    effects = tuple(effects)
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(t, taint) for t in tolerations)
    ]


def admits_pod(node: Node, spec: PodSpec) -> bool:
    """Return whether the nodeSelector and the required node affinity of a pod match."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    required = spec.required_node_affinity
    return required is None or matches_node_selector(required, node)


def preferred_weight(node: Node, spec: PodSpec) -> int:
    """Return the sum of weights of the preferred terms that the node matches."""
    affinity = spec.node_affinity
    if affinity is None:
        return 0
    return sum(
        term.weight
        for term in affinity.preferred_during_scheduling_ignored_during_execution
        if matches_node_term(term.preference, node)
    )


def matches_node_selector(selector: NodeSelector, node: Node) -> bool:
    """Return whether any term matches.  Without terms, nothing matches."""
    return any(matches_node_term(term, node) for term in selector.node_selector_terms)


def matches_node_term(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether every expression and field matches.  An empty term matches nothing."""
    return matches_term(term, node.metadata.labels, node.metadata.name)


def matches_term(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Return whether a term matches these labels and this value of ``metadata.name``."""
    if not (term.match_expressions or term.match_fields):
        return False
    return all(_meets(each, labels.get(each.key)) for each in term.match_expressions) and all(
        each.key == _NAME and _meets(each, name) for each in term.match_fields
    )


def _meets(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    compare = _COMPARISONS.get(wanted.operator)
    if compare is None or value is None or len(wanted.values) != 1:
        return False
    label, bound = _integer(value), _integer(wanted.values[0])
    return label is not None and bound is not None and compare(label, bound)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def taint_text(taint: Taint) -> str:
    """Return a taint as ``key=value:effect``."""
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


def toleration_of(taint: Taint) -> Toleration:
    """Return the toleration of exactly this taint."""
    operator = "Equal" if taint.value else "Exists"
    return Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)


def toleration_text(one: Toleration) -> str:
    """Return a toleration as it is written in YAML."""
    value = f", value: {one.value}" if one.value else ""
    return f"{{key: {one.key}, operator: {one.operator}{value}, effect: {one.effect}}}"
