"""Which pods a plugin looks at: by namespace, by label, and as far as they may go."""

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
    """Arguments of upstream's plugins: pods of some namespaces with some labels."""

    namespaces: NamespaceLists | None = None
    label_selector: LabelSelector | None = None

    def validate(self) -> None:
        check_namespaces(self.namespaces, "namespaces")
        check_selector(self.label_selector, "labelSelector")


@dataclass(frozen=True, slots=True)
class CandidateFilter:
    """Pods in some namespaces that one of the selectors covers and that may go."""

    may_go: Callable[[Pod], bool]
    namespaces: NamespaceLists | None = None
    selectors: tuple[LabelSelector, ...] = ()  # none: all

    def is_meant(self, pod: Pod) -> bool:
        """Return whether the plugin is about a pod at all, be it one that has to stay."""
        if self.namespaces is not None and not self.namespaces.covers(pod.metadata.namespace):
            return False
        labels = pod.metadata.labels
        return not self.selectors or any(matches(each, labels) for each in self.selectors)

    def admits(self, pod: Pod) -> bool:
        """Return whether the pod is meant and may go."""
        return self.is_meant(pod) and self.may_go(pod)


def candidates_of(
    handle: Handle, namespaces: NamespaceLists | None, selectors: Sequence[NamedPodSelector]
) -> CandidateFilter:
    """Return the filter of a plugin with named selectors; one that selects nothing is left out."""
    given = tuple(each.selector for each in selectors if each.selector is not None)
    return CandidateFilter(handle.evictor.filter, namespaces, given)


def scoped_candidates(handle: Handle, args: ScopedPluginArgs) -> CandidateFilter:
    """Return the filter of one of upstream's plugins.

    What holds right before an eviction is not looked at: in the original they reach the evictor
    through an adaptor that asks the plain filter instead.
    """
    selectors = () if args.label_selector is None else (args.label_selector,)
    return CandidateFilter(handle.evictor.filter, args.namespaces, selectors)


def selected_nodes(nodes: Sequence[Node], selector: LabelSelector | None) -> Sequence[Node]:
    """Return the nodes with the labels; no selector selects all."""
    if selector is None:
        return nodes
    return [node for node in nodes if matches(selector, node.metadata.labels)]
