"""The scheduling queue: a pure state machine; the caller passes the time.

``queued_pod``        ``QueuedPod``, its states and the allowed moves between them; ``Need``:
                      pods that wait for room for a whole gang
``scheduling_queue``  ``SchedulingQueue``: the transitions of pods
``pools``             the pods of each state, every index over them, and events during attempts
``queued_groups``     ``QueuedGroups``: the pod groups of queued pods, for metrics
``hints``             listeners of events and their queueing hints; the meaning of a pod's update
``nominator``         ``Nominator``: pods nominated to nodes by preemption

Source: kubernetes v1.35 pkg/scheduler/backend/queue.
"""

from koordinator.scheduler.queue.hints import EVERYTHING, pod_changes
from koordinator.scheduler.queue.nominator import Nominator
from koordinator.scheduler.queue.queued_pod import MOVES, Need, QueuedPod, QueueState
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue

__all__ = [
    "EVERYTHING",
    "MOVES",
    "Need",
    "Nominator",
    "QueueState",
    "QueuedPod",
    "SchedulingQueue",
    "pod_changes",
]
