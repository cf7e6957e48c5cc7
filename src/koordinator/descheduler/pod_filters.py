"""Eviction candidates of plugins: by namespace, by label and by the filters of the profile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.selectors import matches
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamedPodSelector,
    NamespaceLists,
    check_namespaces,
    check_selector,
)
from koordinator.descheduler.contract import Handle


class ScopedPluginArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Arguments of upstream's plugins that select pods by namespace and label."""

    namespaces: NamespaceLists | None = None
    label_selector: LabelSelector | None = None

    def validate(self) -> None:
        check_namespaces(self.namespaces, "namespaces")
        check_selector(self.label_selector, "labelSelector")


@dataclass(frozen=True, slots=True)
class CandidateFilter:
    """Pods in some namespaces that a selector matches and that the filters pass."""

    may_go: Callable[[Pod], bool]
    namespaces: NamespaceLists | None = None
    selectors: tuple[LabelSelector, ...] = ()  # none: all

    def is_in_scope(self, pod: Pod) -> bool:
        """Return whether namespaces and selectors cover the pod."""
        if self.namespaces is not None and not self.namespaces.covers(pod.metadata.namespace):
            return False
        labels = pod.metadata.labels
        return not self.selectors or any(matches(each, labels) for each in self.selectors)

    def is_candidate(self, pod: Pod) -> bool:
        """Return whether the pod is in scope and may be evicted."""
        return self.is_in_scope(pod) and self.may_go(pod)


def candidates_of(
    handle: Handle, namespaces: NamespaceLists | None, selectors: Sequence[NamedPodSelector]
) -> CandidateFilter:
    """Return the filter of a plugin with named selectors; those without a selector are skipped."""
    given = tuple(each.selector for each in selectors if each.selector is not None)
    return CandidateFilter(handle.evictor.filter, namespaces, given)


def scoped_candidates(handle: Handle, args: ScopedPluginArgs) -> CandidateFilter:
    """Return the filter of one of upstream's plugins.

    It does not include ``pre_eviction_filter``: the original's adaptor for these plugins calls the
    plain filter instead.
    """
    selectors = () if args.label_selector is None else (args.label_selector,)
    return CandidateFilter(handle.evictor.filter, args.namespaces, selectors)


def selected_nodes(nodes: Sequence[Node], selector: LabelSelector | None) -> Sequence[Node]:
    """Return the nodes that the selector matches; None matches all."""
    if selector is None:
        return nodes
    return [node for node in nodes if matches(selector, node.metadata.labels)]
