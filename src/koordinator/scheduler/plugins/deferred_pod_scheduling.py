"""Bound pods whose resize is deferred: the profiles with this plugin preempt for them.

The feature ``deferred_resizes`` decides about these pods; they are in no queue.

Source: kubernetes pkg/scheduler/framework/plugins/deferredpodscheduling.
"""

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.domain.resized_pods import is_deferred
from koordinator.scheduler.contract import NoArgs, Permit, PluginSpec, Refusal
from koordinator.scheduler.plugin_lists import DEFERRED_PODS
from koordinator.scheduler.snapshot import PodClass, ResourceAxis

FITS = "pod resize fits, waiting for Kubelet actuation"
DISABLED = "node had resize preemption disabled"


class DeferredPodScheduling:
    """Plugin that leaves the resize itself to the kubelet."""

    def applies(self, pod: PodClass) -> bool:  # noqa: ARG002 -- none is on a node
        """Return False: pods to be scheduled have no node yet that could defer a resize."""
        return False

    def permit(self, pod: Pod, _node: str) -> Permit:
        """Keep a pod back whose resize fits by now; its node grants it."""
        return Permit(refusal=Refusal(FITS)) if is_deferred(pod) else Permit()

    def why_disabled(self, node: Node) -> str:
        """Return why no pod of the node is preempted for a resize; empty if that is allowed."""
        policy = node.spec.pod_preemption_policy
        return DISABLED if policy is not None and policy.disable_resize_preemption else ""


def build(_args: NoArgs, _axis: ResourceAxis) -> DeferredPodScheduling:
    return DeferredPodScheduling()


PLUGIN = PluginSpec(DEFERRED_PODS, NoArgs, build)
