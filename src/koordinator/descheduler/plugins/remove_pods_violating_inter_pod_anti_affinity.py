"""RemovePodsViolatingInterPodAntiAffinity: evicts pods that violate required anti-affinity.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/removepodsviolatinginterpodantiaffinity;
pkg/utils/predicates.go ``CheckPodsWithAntiAffinityExist``.
"""

from collections.abc import Mapping, Sequence

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.candidates import (
    CandidateFilter,
    ScopedPluginArgs,
    in_low_priority_order,
    scoped_candidates,
)
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.descheduler.node_fit import is_covered
from koordinator.domain.pod_affinity import scope_of
from koordinator.foundation.lazy_dataclass import dataclass


class RemovePodsViolatingInterPodAntiAffinityArgs(ScopedPluginArgs, frozen=True, kw_only=True):
    """Selected pods; other pods are ignored."""


@dataclass(frozen=True, slots=True)
class RemovePodsViolatingInterPodAntiAffinity:
    """Plugin that evicts pods with violated required anti-affinity, low priorities first."""

    handle: Handle
    candidates: CandidateFilter

    def deschedule(self, nodes: Sequence[Node]) -> None:
        by_name = {node.metadata.name: node for node in nodes}
        on = {
            name: list(filter(self.candidates.is_in_scope, self.handle.view.active_pods_on(name)))
            for name in by_name
        }
        pods = {pod.key: pod for node_pods in on.values() for pod in node_pods}
        for name in by_name:
            repelling = (pod for pod in on[name] if pod.spec.required_pod_anti_affinity)
            for pod in in_low_priority_order(repelling):
                if (
                    self._is_too_near(pod, pods, by_name)
                    and self.candidates.may_go(pod)
                    and self.handle.evictor.evict(pod)
                ):
                    del pods[pod.key]

    def _is_too_near(self, pod: Pod, pods: Mapping[str, Pod], nodes: Mapping[str, Node]) -> bool:
        node = nodes[pod.spec.node_name]
        for term in pod.spec.required_pod_anti_affinity:
            scope = scope_of(term, pod.metadata.namespace, pod.metadata.labels)
            for other in pods.values():
                if (
                    other.key != pod.key
                    and is_covered(scope, other, self.handle.view)
                    and _are_together(node, nodes[other.spec.node_name], term.topology_key)
                ):
                    return True
        return False


def build_remove_pods_violating_inter_pod_anti_affinity(
    args: RemovePodsViolatingInterPodAntiAffinityArgs, handle: Handle
) -> RemovePodsViolatingInterPodAntiAffinity:
    """Build the plugin."""
    return RemovePodsViolatingInterPodAntiAffinity(handle, scoped_candidates(handle, args))


def _are_together(one: Node, other: Node, key: str) -> bool:
    """Return whether two nodes are in one domain; a node always is with itself."""
    if one.metadata.name == other.metadata.name:
        return True
    value = one.metadata.labels.get(key)
    return value is not None and other.metadata.labels.get(key) == value


REMOVE_PODS_VIOLATING_INTER_POD_ANTI_AFFINITY = DeschedulerPluginSpec(
    "RemovePodsViolatingInterPodAntiAffinity",
    RemovePodsViolatingInterPodAntiAffinityArgs,
    build_remove_pods_violating_inter_pod_anti_affinity,
)
