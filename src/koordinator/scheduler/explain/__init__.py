"""Why a pod waits, and what would help: the answer to the question that users ask most.

``obstacles``    every plugin's verdict on every node, and the ways out
``question``     the pod, the cluster and the obstacles together; the order of nearness
``pods``         causes, nearest nodes, the empty cluster: as they are told
``remedies``     what would let the pod start, tried on the state
``changed_pods``  the same for the pod: tolerations, selectors, amounts
``gangs``        what all members of a gang need that find no place
``short_gangs``  what a gang needs that is short of members
``sentences``    reasons in plain words
``attempts``        where the pod is in the queue, and what brings it on
``explanation``  what is told, as data

Reads the state and leaves it as it was; writes nothing and decides nothing.
"""

from koordinator.scheduler.explain.explanation import (
    CauseReport,
    EmptyCluster,
    Explanation,
    Forecast,
    NearNode,
    QueueStatus,
    Remedy,
)
from koordinator.scheduler.explain.gangs import together
from koordinator.scheduler.explain.obstacles import Cause, Obstacles, obstacles
from koordinator.scheduler.explain.pods import causes, empty_cluster, nearest_nodes
from koordinator.scheduler.explain.question import Question, ask
from koordinator.scheduler.explain.queue_status import queue_status
from koordinator.scheduler.explain.remedies import remedies
from koordinator.scheduler.explain.short_gangs import short_gang, smaller_gang

__all__ = [
    "Cause",
    "CauseReport",
    "EmptyCluster",
    "Explanation",
    "Forecast",
    "NearNode",
    "Obstacles",
    "Question",
    "QueueStatus",
    "Remedy",
    "ask",
    "causes",
    "empty_cluster",
    "nearest_nodes",
    "obstacles",
    "queue_status",
    "remedies",
    "short_gang",
    "smaller_gang",
    "together",
]
