"""Node selectors and node affinity over all nodes at once.

Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from koordinator.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.memo import Memo
from koordinator.scheduler.snapshot.classes import PodClass
from koordinator.scheduler.snapshot.state import MASKS
from koordinator.scheduler.snapshot.view import Snapshot

KEEP_MASKS = 1 << 12  # bounds memory, nothing depends on it
_AFFINITY_KEY: Memo[bytes] = Memo()

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "Gt": lambda label, bound: label > bound,
    "Lt": lambda label, bound: label < bound,
}


def affinity_key(pod: PodClass) -> bytes:
    """Return an encoding of the pod's requirements on labels and names of nodes."""
    return _AFFINITY_KEY.of(pod, _affinity_key, pod)


def _affinity_key(pod: PodClass) -> bytes:
    spec = pod.spec
    return msgspec.msgpack.encode((sorted(spec.node_selector.items()), spec.node_affinity))


def matches_required(snapshot: Snapshot, pod: PodClass) -> BoolArray:
    """Return ``(n,)``: nodeSelector and the required terms of node affinity hold.

    Kept per state of the nodes.
    """
    cluster = snapshot.cluster
    key, version = affinity_key(pod), cluster.node_version
    masks = MASKS.of(cluster.shared, dict)
    known = masks.get(key)
    if known is None or known[0] != version:
        if len(masks) > KEEP_MASKS:
            masks.clear()
        mask = _required(cluster, pod)
        known = masks[key] = (version, mask)
    matched = known[1]
    return matched if snapshot.rows is None else matched[snapshot.rows]


def _required(snapshot: Snapshot, pod: PodClass) -> BoolArray:
    mask = np.ones(len(snapshot), bool)
    for key, value in pod.spec.node_selector.items():
        mask &= has_label(snapshot, key, (value,))
    required = pod.spec.required_node_affinity
    if required is not None:
        mask &= matches_selector(snapshot, required)
    return mask


def matches_selector(snapshot: Snapshot, selector: NodeSelector) -> BoolArray:
    """Return ``(n,)``: some term matches.  No terms match nothing."""
    mask = np.zeros(len(snapshot), bool)
    for term in selector.node_selector_terms:
        mask |= matches_term(snapshot, term)
    return mask


def matches_term(snapshot: Snapshot, term: NodeSelectorTerm) -> BoolArray:
    """Return ``(n,)``: every expression and field matches.  An empty term matches nothing."""
    mask = np.full(len(snapshot), bool(term.match_expressions or term.match_fields))
    for expression in term.match_expressions:
        mask &= _expression(snapshot, expression)
    for wanted in term.match_fields:
        mask &= _field(snapshot, wanted)
    return mask


def has_label(snapshot: Snapshot, key: str, values: Sequence[str]) -> BoolArray:
    """Return ``(n,)``: the node's label has one of these values."""
    ids, known = snapshot.label(key)
    wanted = [i for i, value in enumerate(known) if value in values]
    mask = np.zeros(len(ids), bool)
    for index in wanted:
        mask |= ids == index
    return mask


def _expression(snapshot: Snapshot, expression: NodeSelectorRequirement) -> BoolArray:
    key, operator, values = expression.key, expression.operator, expression.values
    if operator == "In":
        return has_label(snapshot, key, values)
    if operator == "NotIn":
        return ~has_label(snapshot, key, values)
    ids, known = snapshot.label(key)
    if operator == "Exists":
        return ids >= 0
    if operator == "DoesNotExist":
        return ids < 0
    bound = _integer(values[0]) if len(values) == 1 else None
    if bound is None or operator not in _COMPARISONS:
        return np.zeros(len(ids), bool)
    compare = _COMPARISONS[operator]
    passing = [text for text in known if (n := _integer(text)) is not None and compare(n, bound)]
    return has_label(snapshot, key, passing)


def _field(snapshot: Snapshot, wanted: NodeSelectorRequirement) -> BoolArray:
    """Return ``(n,)``: ``metadata.name``, the only supported field, matches."""
    names = snapshot.node_names
    named = np.fromiter((name in wanted.values for name in names), bool, len(names))
    if wanted.key != "metadata.name":
        return np.zeros(len(names), bool)
    return ~named if wanted.operator == "NotIn" else named


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
