"""Pods and plugins with queueing hints, shared by the tests of the scheduling queue."""

from collections.abc import Callable, Sequence

from koordinator.api.core import ResourceRequirements, Toleration
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, PodSchedulingGate, PodSpec, SchedulingGroup
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import Action, ClusterEvent, EventHint, QueueGate
from koordinator.scheduler.queue import QueuedPod, QueueState, SchedulingQueue

ACTIVE, BACKOFF, UNSCHEDULABLE, GATED, IN_FLIGHT = QueueState

NODE_ADDED = ClusterEvent("Node", Action.ADD)
NODE_TAINTED = ClusterEvent("Node", Action.UPDATE_TAINTS)
POD_DELETED = ClusterEvent("AssignedPod", Action.DELETE)
EVERYTHING = ClusterEvent("*", Action.ALL)

HINTS: dict[str, Sequence[EventHint]] = {
    "SchedulingGates": [EventHint("Pod", Action.UPDATE_GATES_ELIMINATED)],
    "Fit": [
        EventHint("Node", Action.ADD | Action.UPDATE_ALLOCATABLE),
        EventHint("AssignedPod", Action.DELETE),
    ],
    "Taints": [
        EventHint("Node", Action.ADD | Action.UPDATE_TAINTS),
        EventHint("Pod", Action.UPDATE_TOLERATIONS),
    ],
}


def make_pod(
    name: str,
    priority: int | None = None,
    *,
    uid: str = "",
    gates: Sequence[str] = (),
    tolerations: Sequence[Toleration] = (),
    cpu: str = "1",
    group: str = "",
) -> Pod:
    requests = ResourceRequirements(requests={"cpu": Quantity.parse(cpu)})
    return Pod(
        metadata=ObjectMeta(namespace="ns", name=name, uid=uid),
        spec=PodSpec(
            containers=(Container(name="main", resources=requests),),
            priority=priority,
            scheduling_gates=tuple(PodSchedulingGate(name=gate) for gate in gates),
            tolerations=tuple(tolerations),
            scheduling_group=SchedulingGroup(pod_group_name=group) if group else None,
        ),
    )


def scheduling_gates(pod: Pod) -> QueueGate | None:
    if pod.spec.scheduling_gates:
        return QueueGate("SchedulingGates", "waiting for scheduling gates")
    return None


def make_queue(
    hints: dict[str, Sequence[EventHint]] | None = None,
    pre_enqueue: Callable[[Pod], QueueGate | None] = scheduling_gates,
    *,
    pop_from_backoff: bool = True,
    has_groups: bool = False,
) -> SchedulingQueue:
    chosen = HINTS if hints is None else hints
    return SchedulingQueue(
        chosen, pre_enqueue, pop_from_backoff=pop_from_backoff, has_groups=has_groups
    )


def pop(queue: SchedulingQueue, now_s: float = 0.0) -> QueuedPod:
    queued = queue.pop(now_s)
    assert queued is not None
    return queued


def in_flight(queue: SchedulingQueue, name: str = "a", now_s: float = 0.0) -> QueuedPod:
    queue.add(make_pod(name), None, now_s)
    return pop(queue, now_s)


def names(queued: Sequence[QueuedPod]) -> list[str]:
    return [q.pod.metadata.name for q in queued]
