"""RemovePodsViolatingNodeTaints: evicts pods that don't tolerate the taints of their nodes.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/removepodsviolatingnodetaints.
"""

from collections.abc import Sequence

from koordinator.api.core import Taint
from koordinator.api.node import Node
from koordinator.descheduler.candidates import (
    CandidateFilter,
    ScopedPluginArgs,
    scoped_candidates,
)
from koordinator.descheduler.configuration import field_error
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.domain.node_selection import untolerated
from koordinator.foundation.lazy_dataclass import dataclass


class RemovePodsViolatingNodeTaintsArgs(ScopedPluginArgs, frozen=True, kw_only=True):
    """Considered taints, as ``key`` or ``key=value``."""

    include_prefer_no_schedule: bool = False  # whether PreferNoSchedule taints count too
    excluded_taints: tuple[str, ...] = ()  # taints to ignore, as key or key=value
    included_taints: tuple[str, ...] | None = None  # the only taints to check, as key or key=value

    def validate(self) -> None:
        super().validate()
        if self.excluded_taints and self.included_taints:
            message = "either includedTaints or excludedTaints can be set, but not both"
            raise field_error("includedTaints", list(self.included_taints), message)

    def counts(self, taint: Taint) -> bool:
        """Return whether a taint is considered."""
        names = {taint.key, f"{taint.key}={taint.value}" if taint.value else taint.key}
        if not names.isdisjoint(self.excluded_taints):
            return False
        return self.included_taints is None or not names.isdisjoint(self.included_taints)


@dataclass(frozen=True, slots=True)
class RemovePodsViolatingNodeTaints:
    """Plugin for NoSchedule and PreferNoSchedule; Kubernetes itself evicts for NoExecute."""

    args: RemovePodsViolatingNodeTaintsArgs
    handle: Handle
    candidates: CandidateFilter

    def deschedule(self, nodes: Sequence[Node]) -> None:
        effects = ["NoSchedule"]
        if self.args.include_prefer_no_schedule:
            effects.append("PreferNoSchedule")
        for node in nodes:
            taints = [taint for taint in node.spec.taints if self.args.counts(taint)]
            violating = [
                pod
                for pod in self.handle.view.active_pods_on(node.metadata.name)
                if untolerated(taints, pod.spec.tolerations, effects)
                and self.candidates.is_candidate(pod)
            ]
            for pod in violating:
                self.handle.evictor.evict(pod)


def build_remove_pods_violating_node_taints(
    args: RemovePodsViolatingNodeTaintsArgs, handle: Handle
) -> RemovePodsViolatingNodeTaints:
    """Build the plugin."""
    return RemovePodsViolatingNodeTaints(args, handle, scoped_candidates(handle, args))


REMOVE_PODS_VIOLATING_NODE_TAINTS = DeschedulerPluginSpec(
    "RemovePodsViolatingNodeTaints",
    RemovePodsViolatingNodeTaintsArgs,
    build_remove_pods_violating_node_taints,
)
