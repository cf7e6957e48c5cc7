"""Scheduling gates: a pod with gates does not enter the queue.

Source: kubernetes pkg/scheduler/framework/plugins/schedulinggates.
"""

from koordinator.api.pod import Pod
from koordinator.scheduler.contract import Action, EventHint, NoArgs, PluginSpec, Refusal
from koordinator.scheduler.snapshot import ObjectTable, ResourceAxis


class SchedulingGates:
    def pre_enqueue(self, pod: Pod, _objects: ObjectTable) -> Refusal | None:
        names = " ".join(gate.name for gate in pod.spec.scheduling_gates)
        return Refusal(f"waiting for scheduling gates: [{names}]") if names else None


def build(_args: NoArgs, _axis: ResourceAxis) -> SchedulingGates:
    return SchedulingGates()


PLUGIN = PluginSpec(
    "SchedulingGates", NoArgs, build, events=(EventHint("Pod", Action.UPDATE_GATES_ELIMINATED),)
)
