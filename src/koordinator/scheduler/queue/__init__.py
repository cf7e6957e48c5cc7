"""Where pods wait for a node: a pure state machine that is told what time it is.

``queued_pod``        ``QueuedPod``, its states and the allowed moves between them
``scheduling_queue``  ``SchedulingQueue``: what moves a pod, and where to
``pools``             the pods of each state, and every index over them
``heap``              pods in order; leaving early is cheap
``event_log``         what happened while pods were being scheduled
``needs``             ``Need``: pods that wait for room for a whole gang, by how much
``hints``             which plugins want to hear of an event, and what they answer
``pod_changes``       what an update of a waiting pod means for scheduling
``nominator``         ``Nominator``: pods that wait for room which preemption makes on a node

Source: kubernetes v1.35 pkg/scheduler/backend/queue.
"""

from koordinator.scheduler.queue.hints import EVERYTHING
from koordinator.scheduler.queue.nominator import Nominator
from koordinator.scheduler.queue.pod_changes import pod_changes
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
