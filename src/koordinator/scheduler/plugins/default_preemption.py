"""Preemption: room for a pod by evicting pods of lower priority from one node.

It evicts as few and as cheap pods as possible.  Upstream serves the members of a gang one by one
and evicts pods for gangs that do not start afterwards; here a gang is served as a whole.

Source: kubernetes pkg/scheduler/framework/plugins/defaultpreemption and framework/preemption.
"""

from dataclasses import replace

from koordinator.api.kube_version import DEFAULT_LEVEL, V1_37, KubeVersion
from koordinator.api.kubescheduler import DefaultPreemptionArgs, FeatureGates
from koordinator.api.pod import Pod
from koordinator.domain.reserve_pod import is_reserve_pod
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import Action, EventHint, PluginSpec
from koordinator.scheduler.post_filter import Attempt, PostFilterResult
from koordinator.scheduler.preemption.single_node import headroom_for_job, preempt
from koordinator.scheduler.snapshot import PlacedPod, ResourceAxis


@dataclass(frozen=True, slots=True)
class DefaultPreemption:
    """PostFilter plugin that selects victims of lower priority."""

    min_percentage: int
    min_absolute: int
    level: KubeVersion = DEFAULT_LEVEL

    def with_gates(self, gates: FeatureGates) -> "DefaultPreemption":
        """Count disruption budgets and word the message as the release does."""
        return replace(self, level=gates.level)

    def may_preempt(self, pod: Pod, _victim: PlacedPod) -> bool:
        return not is_reserve_pod(pod.metadata)

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Nominate a node and its victims, or return why not; for a gang, nominate all its nodes.

        Reservations are skipped: the reservation plugin decides about their preemption.
        """
        if attempt.members:
            return headroom_for_job(attempt, attempt.members)
        if is_reserve_pod(attempt.pod.metadata):
            return PostFilterResult()
        is_new = self.level >= V1_37
        result = preempt(attempt, self.min_percentage, self.min_absolute, to_first_exhausted=is_new)
        if is_new and result.node:
            text = (
                f"preemption: found a potential placement for pod on node {result.node}, "
                f"preempting {len(result.victims)} victims"
            )
            return replace(result, message=text)
        return result


def build(args: DefaultPreemptionArgs, _axis: ResourceAxis) -> DefaultPreemption:
    return DefaultPreemption(args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute)


PLUGIN = PluginSpec(
    "DefaultPreemption",
    DefaultPreemptionArgs,
    build,
    events=(EventHint("AssignedPod", Action.DELETE),),
)
