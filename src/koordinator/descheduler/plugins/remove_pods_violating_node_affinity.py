"""RemovePodsViolatingNodeAffinity: evicts pods whose node no longer matches their node affinity.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/removepodsviolatingnodeaffinity.
"""

from collections.abc import Callable, Sequence
from typing import Final

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.candidates import (
    CandidateFilter,
    ScopedPluginArgs,
    scoped_candidates,
)
from koordinator.descheduler.configuration import field_error
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.descheduler.node_fit import fits_beside
from koordinator.domain.node_selection import admits_pod, preferred_weight
from koordinator.foundation.lazy_dataclass import dataclass

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class RemovePodsViolatingNodeAffinityArgs(ScopedPluginArgs, frozen=True, kw_only=True):
    """Considered types of terms: required and preferred ones."""

    node_affinity_type: tuple[str, ...] = ()  # types of affinity to check

    def validate(self) -> None:
        super().validate()
        if not self.node_affinity_type:
            raise field_error("nodeAffinityType", [], "nodeAffinityType needs to be set")
        for index, kind in enumerate(self.node_affinity_type):
            if kind not in (REQUIRED, PREFERRED):
                message = f"must be {REQUIRED} or {PREFERRED}"
                raise field_error(f"nodeAffinityType[{index}]", kind, message)


@dataclass(frozen=True, slots=True)
class RemovePodsViolatingNodeAffinity:
    """Plugin that evicts violating pods if another node fits."""

    args: RemovePodsViolatingNodeAffinityArgs
    handle: Handle
    candidates: CandidateFilter

    def deschedule(self, nodes: Sequence[Node]) -> None:
        for kind in self.args.node_affinity_type:
            misplaced = _is_unfit if kind == REQUIRED else _is_worse
            for node in nodes:
                self._evict_from(node, nodes, misplaced)

    def _evict_from(
        self,
        node: Node,
        nodes: Sequence[Node],
        misplaced: Callable[[Pod, Node, Sequence[Node]], bool],
    ) -> None:
        view = self.handle.view
        violating = [
            pod
            for pod in view.active_pods_on(node.metadata.name)
            if misplaced(pod, node, nodes)
            and self.candidates.is_candidate(pod)
            and any(fits_beside(other, pod, view) for other in nodes)
        ]
        for pod in violating:
            self.handle.evictor.evict(pod)


def build_remove_pods_violating_node_affinity(
    args: RemovePodsViolatingNodeAffinityArgs, handle: Handle
) -> RemovePodsViolatingNodeAffinity:
    """Build the plugin."""
    return RemovePodsViolatingNodeAffinity(args, handle, scoped_candidates(handle, args))


def _is_unfit(pod: Pod, node: Node, _: Sequence[Node]) -> bool:
    """Return whether a pod with required terms is on a node that does not match."""
    return pod.spec.required_node_affinity is not None and not admits_pod(node, pod.spec)


def _is_worse(pod: Pod, node: Node, nodes: Sequence[Node]) -> bool:
    """Return whether another node has a higher preferred weight."""
    affinity = pod.spec.node_affinity
    if affinity is None or not affinity.preferred_during_scheduling_ignored_during_execution:
        return False
    weight = preferred_weight(node, pod.spec)
    return any(preferred_weight(other, pod.spec) > weight for other in nodes)


REMOVE_PODS_VIOLATING_NODE_AFFINITY = DeschedulerPluginSpec(
    "RemovePodsViolatingNodeAffinity",
    RemovePodsViolatingNodeAffinityArgs,
    build_remove_pods_violating_node_affinity,
)
