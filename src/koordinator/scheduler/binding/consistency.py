"""Invariants between the state, the queue, the nominations and the bindings of one scheduler.

Each part validates itself; here they are compared with each other.  For tests and the fuzzer: the
scheduler does not call it.
"""

from collections.abc import Container

from koordinator.foundation.errors import BugError
from koordinator.scheduler.binding.bindings import Bindings
from koordinator.scheduler.queue import Nominator, QueueState, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState


def validate_waiting(
    state: ClusterState,
    queue: SchedulingQueue,
    nominator: Nominator,
    schedulers: Container[str],
    bindings: Bindings,
) -> None:
    """Check that each pod waits, is on its way or has its node, and only one of these.

    Between two steps.  Raises BugError.
    """
    for queued in queue.pods(*QueueState):
        on_its_way = bindings.has(queued.key)
        if state.has_place(queued.key) != on_its_way:
            where = "has a place" if not on_its_way else "has none"
            raise BugError(f"{queued.key} is {queued.state} and {where}")
        if on_its_way != (queued.state is QueueState.IN_FLIGHT):
            raise BugError(f"{queued.key} is {queued.state}, its binding under way: {on_its_way}")
        if queued.key not in state.unbound:
            raise BugError(f"{queued.key} is {queued.state} and not known as waiting")
    for key, (pod, _) in state.unbound.items():
        is_ours = pod.spec.scheduler_name in schedulers and not pod.metadata.deletion_timestamp
        if is_ours and queue.get(key) is None and not state.has_place(key):
            raise BugError(f"{key} has no node and is not in the queue")
    for node in nominator.nodes():
        for pod in nominator.on_node(node):
            if queue.get(pod.key) is None or state.has_place(pod.key):
                raise BugError(f"{pod.key} is nominated to {node} and does not wait")
