"""Make room for a pod by evicting pods of lower priority from one node.

As few and as cheap ones as possible.  Unlike upstream, where members of a gang are served one by
one and pods are evicted for gangs that don't start then, a gang is served as a whole.

Source: kubernetes pkg/scheduler/framework/plugins/defaultpreemption and framework/preemption.
"""

from dataclasses import dataclass, replace

from koordinator.api.kube_version import DEFAULT_LEVEL, V1_37, KubeVersion
from koordinator.api.kubescheduler import DefaultPreemptionArgs, FeatureGates
from koordinator.api.pod import Pod
from koordinator.domain.reserve_pod import is_reserve_pod
from koordinator.scheduler.contract import Action, EventHint, PluginSpec
from koordinator.scheduler.post_filter import Attempt, PostFilterResult
from koordinator.scheduler.preemption import headroom_for_job, preempt
from koordinator.scheduler.snapshot import PlacedPod, ResourceAxis


@dataclass(frozen=True, slots=True)
class DefaultPreemption:
    """PostFilter."""

    min_percentage: int
    min_absolute: int
    level: KubeVersion = DEFAULT_LEVEL

    def with_gates(self, gates: FeatureGates) -> "DefaultPreemption":
        """Count budgets, and tell what was found, as the release does."""
        return replace(self, level=gates.level)

    def may_preempt(self, pod: Pod, _victim: PlacedPod) -> bool:
        return not is_reserve_pod(pod.metadata)

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Nominate a node and name its victims, or say why not; for a gang, all of its nodes.

        Reservations are not served: whether they may preempt is said elsewhere.
        """
        if attempt.members:
            return headroom_for_job(attempt, attempt.members)
        if is_reserve_pod(attempt.pod.metadata):
            return PostFilterResult()
        is_new = self.level >= V1_37
        found = preempt(attempt, self.min_percentage, self.min_absolute, to_first_exhausted=is_new)
        if is_new and found.node:
            text = (
                f"preemption: found a potential placement for pod on node {found.node}, "
                f"preempting {len(found.victims)} victims"
            )
            return replace(found, message=text)
        return found


def build(args: DefaultPreemptionArgs, _axis: ResourceAxis) -> DefaultPreemption:
    return DefaultPreemption(args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute)


PLUGIN = PluginSpec(
    "DefaultPreemption",
    DefaultPreemptionArgs,
    build,
    events=(EventHint("AssignedPod", Action.DELETE),),
)
