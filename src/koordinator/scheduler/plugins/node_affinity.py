"""Node affinity: nodeSelector, required and preferred terms, and ``addedAffinity``.

Source: kubernetes pkg/scheduler/framework/plugins/nodeaffinity.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from koordinator.api.core import NodeAffinity as NodeAffinityTerms
from koordinator.api.core import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from koordinator.api.kubescheduler import NodeAffinityArgs
from koordinator.api.labels import HOSTNAME
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import (
    Action,
    EventHint,
    PluginHints,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
    Shortlist,
    Spread,
    spread_of,
)
from koordinator.scheduler.diagnosis import did_you_mean
from koordinator.scheduler.rules.node_facts import is_fact
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.pods import TermKind
from koordinator.scheduler.snapshot.selection import (
    affinity_key,
    has_label,
    matches_required,
    matches_selector,
    matches_term,
)

REASON_POD = "node(s) didn't match Pod's node affinity/selector"
REASON_ADDED = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT = "pod affinity terms conflict"
NODE_NAME = "metadata.name"

#: Labels whose values are sizes that resemble each other, so that similar values are no typo.
SIZES = frozenset({"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"})


@dataclass(frozen=True, slots=True)
class NodeAffinityPlugin:
    """Filter and score by node affinity; ``added`` applies to every pod of the profile."""

    added: NodeAffinityTerms | None
    reads: ClassVar = Reads.NODE

    def applies(self, pod: PodClass) -> bool:
        return self.added is not None or bool(pod.spec.affinity or pod.spec.node_selector)

    @property
    def hints(self) -> PluginHints:
        return PluginHints(
            key=affinity_key,
            filters=self._filters,
            scores=lambda _snapshot, pod: bool(self._preferred(pod)),
            spread=Spread.HIGHEST,
        )

    def _filters(self, _snapshot: Snapshot, pod: PodClass) -> bool:
        required = (pod.spec.required_node_affinity, self._enforced)
        return bool(pod.spec.node_selector) or any(terms is not None for terms in required)

    def prefilter(self, _snapshot: Snapshot, pod: PodClass) -> Refusal | Shortlist | None:
        """Return the nodes that the pod names, as pods of DaemonSets do."""
        required = pod.spec.required_node_affinity
        if required is None or not required.node_selector_terms:
            return None
        listed = [_named(term) for term in required.node_selector_terms]
        if not all(listed):
            return None
        nodes = frozenset().union(*(frozenset.intersection(*names) for names in listed))
        return Shortlist(nodes) if nodes else Refusal(REASON_CONFLICT)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        own = ~matches_required(snapshot, pod)
        if self._enforced is None:
            return Rejections.where(own, REASON_POD, unresolvable=True)
        added = ~matches_selector(snapshot, self._enforced)
        return Rejections.by_column((added, own & ~added), (REASON_ADDED, REASON_POD), True)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return the labels of the selector, or the terms, that the node does not match."""
        wanted = [
            f"{key}={value}{_hint(view, key, (value,))}"
            for key, value in _missing_labels(view, pod)
        ]
        terms = _unmatched_terms(view, pod)
        alternatives = [_term_in_words(view, term) for term in terms]
        missing = [*wanted, " or ".join(alternatives)] if alternatives else wanted
        return f"lacks {' and '.join(missing)}" if missing else ""

    def node_remedy(self, view: Snapshot, pod: PodClass) -> str:
        """Return the labels to set, unless they are immutable facts of the node."""
        if self._enforced is not None and not matches_selector(view, self._enforced)[0]:
            return ""
        missing, terms = _missing_labels(view, pod), _unmatched_terms(view, pod)
        domains = _domain_keys(view, pod)

        def is_fixed(key: str) -> bool:
            return is_fact(key) or key in domains

        possible = [term for term in terms if _can_be_labelled(view, term, is_fixed)]
        if any(is_fixed(key) for key, _ in missing) or (terms and not possible):
            return ""
        if any(_intended_key(view, key) for key, _ in missing):  # the pod's selector is misspelt
            return ""
        wanted = [f"{key}={value}" for key, value in missing]
        words = [*wanted, " or ".join(map(_in_words, possible))] if terms else wanted
        return f"label {view.node_names[0]} ({' and '.join(words)})"

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return the pod with a selector or terms that match the node.

        A pod that selects its node by name gets no remedy.
        """
        missing, terms = _missing_labels(view, pod), _unmatched_terms(view, pod)
        if self._enforced is not None and not matches_selector(view, self._enforced)[0]:
            return []
        changes, selector = [], dict(it.spec.node_selector)
        for key, value in missing:
            node_value = _value(view, key)
            if key == HOSTNAME:
                return []
            intended = _intended_key(view, key) if node_value is None else ""
            if intended and _value(view, intended) == value:
                del selector[key]
                selector[intended] = value
                changes.append(
                    f"set {intended}={value} instead of {key}={value} in its nodeSelector"
                )
            elif node_value is None:
                del selector[key]
                changes.append(f"remove {key}={value} from its nodeSelector")
            else:
                selector[key] = node_value
                changes.append(
                    f"set {key}={node_value} instead of {key}={value} in its nodeSelector"
                )
        spec = replace(it.spec, node_selector=selector)
        if terms:
            changed = _matching_instead(view, terms)
            if changed is None or spec.affinity is None or spec.affinity.node_affinity is None:
                return []
            text, required = changed
            own = replace(
                spec.affinity.node_affinity,
                required_during_scheduling_ignored_during_execution=required,
            )
            spec = replace(spec, affinity=replace(spec.affinity, node_affinity=own))
            changes.append(text)
        return [(" and ".join(changes), replace(it, spec=spec))] if changes else []

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return the sum of the weights of the preferred terms that match."""
        total = np.zeros(len(snapshot), np.int64)
        for term in self._preferred(pod):
            total += term.weight * matches_term(snapshot, term.preference)
        return total

    def normalize(self, raw: IntArray) -> IntArray:
        return spread_of(raw)

    @property
    def _enforced(self) -> NodeSelector | None:
        added = self.added
        return added.required_during_scheduling_ignored_during_execution if added else None

    def _preferred(self, pod: PodClass) -> tuple[PreferredSchedulingTerm, ...]:
        return tuple(
            term
            for terms in (pod.spec.node_affinity, self.added)
            if terms is not None
            for term in terms.preferred_during_scheduling_ignored_during_execution
        )


def _missing_labels(view: Snapshot, pod: PodClass) -> list[tuple[str, str]]:
    """Return the labels of the pod's selector that a node lacks."""
    wanted = pod.spec.node_selector.items()
    return [(key, value) for key, value in wanted if not has_label(view, key, (value,))[0]]


def _unmatched_terms(view: Snapshot, pod: PodClass) -> tuple[NodeSelectorTerm, ...]:
    """Return the required terms of the pod if a node matches none of them."""
    required = pod.spec.required_node_affinity
    if required is None or matches_selector(view, required)[0]:
        return ()
    return required.node_selector_terms


def _domain_keys(view: Snapshot, pod: PodClass) -> frozenset[str]:
    """Return the topology keys of pod affinity: relabelling could break rules of other pods."""
    spec = pod.spec
    terms = (*spec.required_pod_affinity, *spec.required_pod_anti_affinity)
    own = {term.topology_key for term in terms}
    others = view.cluster.terms_about(pod, TermKind.ANTI_AFFINITY)
    return frozenset(own.union(term.topology_key for term in others))


def _value(view: Snapshot, key: str) -> str | None:
    """Return the value of a label on the only row; None without such a label."""
    ids, values = view.label(key)
    return values[int(ids[0])] if ids[0] >= 0 else None


def _matching_instead(
    view: Snapshot, terms: tuple[NodeSelectorTerm, ...]
) -> tuple[str, NodeSelector | None] | None:
    """Return a change that makes the first term match a node, and the resulting selector.

    Return None if the term selects by node name.  Values of the node replace the required ones;
    requirements on labels that the node lacks are removed.
    """
    term = next((one for one in terms if not one.match_fields), None)
    if term is None:
        return None
    kept, words = [], []
    for one in term.match_expressions:
        if matches_term(view, NodeSelectorTerm(match_expressions=(one,)))[0]:
            kept.append(one)
            continue
        node_value, expression = _value(view, one.key), _expression_in_words(one)
        if one.key == HOSTNAME:
            return None
        if one.operator == "In" and node_value is not None:
            kept.append(replace(one, values=(node_value,)))
            words.append(
                f"set {one.key} In {node_value} instead of {expression} in its node affinity"
            )
        else:
            words.append(f"remove {expression} from its node affinity")
    required = NodeSelector(node_selector_terms=(replace(term, match_expressions=tuple(kept)),))
    return " and ".join(words), required if kept else None


def _can_be_labelled(
    view: Snapshot, term: NodeSelectorTerm, is_fixed: Callable[[str], bool]
) -> bool:
    """Return whether a node matches the requirements of a term that operators cannot change."""
    given = tuple(one for one in term.match_expressions if is_fixed(one.key))
    rest = replace(term, match_expressions=given)
    return not (given or term.match_fields) or bool(matches_term(view, rest)[0])


def _term_in_words(view: Snapshot, term: NodeSelectorTerm) -> str:
    hints = [_hint(view, e.key, e.values) for e in term.match_expressions if e.operator == "In"]
    known = view.cluster.names[1]
    for names in _named(term):
        if known.keys().isdisjoint(names):
            intended = next(filter(None, (did_you_mean(name, known) for name in names)), "")
            meant = f": did you mean {intended}?" if intended else ""
            hints.append(f" (there is no node {' or '.join(sorted(names))}{meant})")
    return _in_words(term) + "".join(hints)


def _hint(view: Snapshot, key: str, values: Sequence[str]) -> str:
    """Return a similar label or value if no node has the required one; empty without one."""
    if key not in view.label_keys:
        intended = _intended_key(view, key)
        return f" (no node with label {key}: did you mean {intended}?)" if intended else ""
    if key in SIZES:
        return ""
    ids, names = view.cluster.label(key)
    known = {names[index] for index in np.unique(ids[ids >= 0]).tolist()}
    if known.intersection(values):
        return ""
    intended = next(filter(None, (did_you_mean(value, known) for value in values)), "")
    listed = " or ".join(values)
    return f" (no node with {key}={listed}: did you mean {intended}?)" if intended else ""


def _intended_key(view: Snapshot, key: str) -> str:
    return "" if key in view.label_keys else did_you_mean(key, view.label_keys)


def _in_words(term: NodeSelectorTerm) -> str:
    return " and ".join(map(_expression_in_words, (*term.match_expressions, *term.match_fields)))


def _expression_in_words(one: NodeSelectorRequirement) -> str:
    return f"{one.key} {one.operator} {', '.join(one.values)}".rstrip()


def _named(term: NodeSelectorTerm) -> list[frozenset[str]]:
    """Return the node names that each requirement of the term allows; empty without such."""
    return [
        frozenset(field.values)
        for field in term.match_fields
        if field.key == NODE_NAME and field.operator == "In"
    ]


def build(args: NodeAffinityArgs, _axis: ResourceAxis) -> NodeAffinityPlugin:
    return NodeAffinityPlugin(args.added_affinity)


PLUGIN = PluginSpec(
    "NodeAffinity",
    NodeAffinityArgs,
    build,
    events=(
        EventHint("Node", Action.ADD | Action.UPDATE_LABELS),
        EventHint("Pod", Action.UPDATE_LABELS),
    ),
)
