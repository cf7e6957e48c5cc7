"""Gangs of Kubernetes Workloads and PodGroups for profiles without Coscheduling.

Coscheduling handles these gangs too, so a profile that has it leaves this plugin out.
Unlike upstream, the members of a gang are decided together, so two gangs cannot hold places that
both need.

Source: kubernetes pkg/scheduler/framework/plugins/gangscheduling,
``permitTimeoutDuration``.
"""

from dataclasses import dataclass, replace
from typing import Final

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.kubescheduler.gates import COMPOSITE_POD_GROUPS
from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangCache, GangDefaults, WorkloadRefs
from koordinator.scheduler.contract import NoArgs, Permit, PluginSpec, Refusal
from koordinator.scheduler.snapshot import ObjectTable, ResourceAxis


def gang_gate(gangs: GangCache, pod: Pod) -> Refusal | None:
    """Return reason the gang must wait or which member represents it; None if the pod may enter."""
    reason = gangs.why_gated(pod) if gangs.id_of(pod) else ""
    return Refusal(reason) if reason else None


def gang_permit(gangs: GangCache, pod: Pod) -> Permit:
    """Allow pods outside gangs, and members once enough members of their gang have nodes."""
    if not gangs.id_of(pod):
        return Permit()
    gang = gangs.gang_of(pod)
    if gang is None or gang.terms is None:
        return Permit(refusal=Refusal("Gang not found"))
    return Permit() if gangs.may_start(pod) else Permit(wait_s=gang.terms.wait_s)


WAIT_S: Final = 300.0  # how long members with a node wait for the others


@dataclass(frozen=True, slots=True)
class GangScheduling:
    """Gate for members of gangs until there are enough of them, and joint permit."""

    gangs: GangCache

    def with_gates(self, gates: FeatureGates) -> "GangScheduling":
        """Return the plugin with the gang features of the release."""
        trees = COMPOSITE_POD_GROUPS in gates
        defaults = replace(self.gangs.defaults, level=gates.level, trees=trees)
        return replace(self, gangs=GangCache(defaults))

    def pre_enqueue(self, pod: Pod, _objects: ObjectTable) -> Refusal | None:
        """Return why the gang waits or which member represents it; None if the pod may enter."""
        return gang_gate(self.gangs, pod)

    def permit(self, pod: Pod, _node: str) -> Permit:
        """Allow the pod once enough members of its gang have nodes; until then wait."""
        return gang_permit(self.gangs, pod)


def build(_args: NoArgs, _axis: ResourceAxis) -> GangScheduling:
    return GangScheduling(GangCache(GangDefaults(WAIT_S, refs=WorkloadRefs.ONLY)))


GANG_SCHEDULING_PLUGIN = PluginSpec("GangScheduling", NoArgs, build)
