"""Gangs of Workloads and PodGroups of Kubernetes for profiles that have no Coscheduling.

Where a profile has Coscheduling, that one keeps these gangs too, and this plugin is left out.
Different from the original: the members of a gang are decided together, so that two gangs never
hold places that both need.

Source: kubernetes pkg/scheduler/framework/plugins/gangscheduling,
``permitTimeoutDuration``.
"""

from dataclasses import dataclass, replace
from typing import Final

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangCache, GangDefaults, WorkloadRefs
from koordinator.scheduler.contract import NoArgs, Permit, PluginSpec, Refusal
from koordinator.scheduler.plugins.coscheduling.gate import gang_gate, gang_permit
from koordinator.scheduler.snapshot import ObjectTable, ResourceAxis

WAIT_S: Final = 300.0  # of members with places for the others


@dataclass(frozen=True, slots=True)
class GangScheduling:
    """Keeps members of gangs of Workloads gated until there are enough, and then together."""

    gangs: GangCache
    notifies_all_members: bool = True

    def with_gates(self, gates: FeatureGates) -> "GangScheduling":
        """Return the plugin with the groups that the release has."""
        return replace(self, gangs=GangCache(replace(self.gangs.defaults, level=gates.level)))

    def pre_enqueue(self, pod: Pod, _objects: ObjectTable) -> Refusal | None:
        """Return what the pod's gang lacks, or who speaks for it; None: the pod may be tried."""
        return gang_gate(self.gangs, pod)

    def permit(self, pod: Pod, _node: str) -> Permit:
        """Let a pod go when enough members of its gang have their places."""
        return gang_permit(self.gangs, pod)


def build(_args: NoArgs, _axis: ResourceAxis) -> GangScheduling:
    return GangScheduling(GangCache(GangDefaults(WAIT_S, refs=WorkloadRefs.ONLY)))


GANG_SCHEDULING_PLUGIN = PluginSpec("GangScheduling", NoArgs, build)
