"""Pods selected by an affinity term or a topology spread constraint.

Source: k8s.io/kube-scheduler framework/types.go, ``AffinityTerm.Matches`` and ``newAffinityTerm``;
kubernetes matchLabelKeys as in pkg/registry/core/pod/strategy.go.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from koordinator.api.core import PodAffinityTerm
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.selectors import matches, selector_text
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True)
class PodScope:
    """Pods in some namespaces with some labels.  ``selector`` None matches no pod."""

    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    selector: LabelSelector | None
    also: tuple["PodScope", ...] = ()  # scopes that must also cover the pod

    @cached_property
    def identity(self) -> bytes:
        """Equal for scopes with the same namespaces and selectors."""
        return msgspec.msgpack.encode(
            (
                sorted(self.namespaces),
                self.namespace_selector,
                self.selector,
                sorted(other.identity for other in self.also),
            )
        )

    def covers(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> bool:
        """Return whether a pod of that namespace with these labels is selected."""
        inside = namespace in self.namespaces or (
            self.namespace_selector is not None
            and matches(self.namespace_selector, namespace_labels)
        )
        return (
            inside
            and matches(self.selector, labels)
            and all(other.covers(namespace, labels, namespace_labels) for other in self.also)
        )

    def phrase(self, noun: str, home: str) -> str:
        """Return the scope as text for messages, such as ``pods with app=web``.

        Namespaces are named unless they are ``home`` alone.
        """
        texts = sorted({selector_text(one.selector) for one in (self, *self.also)} - {""})
        labelled = f"{noun} with {' and '.join(texts)}" if texts else noun
        if self.namespace_selector is not None:
            selected = selector_text(self.namespace_selector)
            return f"{labelled} in {f'namespaces with {selected}' if selected else 'any namespace'}"
        if self.namespaces == {home}:
            return labelled
        names = sorted(self.namespaces)
        return f"{labelled} in namespace{'' if len(names) == 1 else 's'} {', '.join(names)}"


def scope_of(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> PodScope:
    """Return the scope of a pod's term: the pod's own namespace unless the term names some."""
    own = not term.namespaces and term.namespace_selector is None
    return PodScope(
        namespaces=frozenset((namespace,)) if own else frozenset(term.namespaces),
        namespace_selector=term.namespace_selector,
        selector=narrowed(
            term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys
        ),
    )


def narrowed(
    selector: LabelSelector | None,
    labels: Mapping[str, str],
    match_keys: Sequence[str],
    mismatch_keys: Sequence[str] = (),
) -> LabelSelector | None:
    """Return the selector with the pod's own values of ``match_keys`` required.

    Values of ``mismatch_keys`` are excluded.  A key that the pod itself lacks is ignored.
    """
    if selector is None or not (match_keys or mismatch_keys):
        return selector
    more = [
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for keys, operator in ((match_keys, "In"), (mismatch_keys, "NotIn"))
        for key in keys
        if key in labels
    ]
    return LabelSelector(
        match_labels=selector.match_labels,
        match_expressions=(*selector.match_expressions, *more),
    )
