"""Explanations of pending pods: causes, and remedies tried on a copy of the state.

``obstacles``     verdicts of all plugins on all nodes, and minimal sets of causes
``question``      the explained pod with the cluster and its obstacles; nodes by nearness
``pods``          reports of causes, nearest nodes and the empty cluster; changes of the pod:
                  tolerations, selectors, amounts
``remedies``      changes after which the pod starts, tried on the state
``gangs``         capacity that all unplaced members of a gang need; remedies for incomplete gangs
``sentences``     reasons as plain sentences
``explanation``   the explanation as data: causes, remedies, position in the queue; groups of pods
                  with the same cause

The package changes nothing in the cluster and restores the state that it tries remedies on.
"""

from koordinator.scheduler.explanations.explanation import (
    CauseReport,
    EmptyCluster,
    Explanation,
    Forecast,
    NearNode,
    QueueStatus,
    Remedy,
    by_cause,
    changed_object,
    group_text,
    in_short,
    queue_status,
    sentence_of,
)
from koordinator.scheduler.explanations.gangs import short_gang, smaller_gang, together
from koordinator.scheduler.explanations.obstacles import Cause, Obstacles, obstacles
from koordinator.scheduler.explanations.pods import causes, empty_cluster, nearest_nodes
from koordinator.scheduler.explanations.question import Question, question_about
from koordinator.scheduler.explanations.remedies import limited_together, remedies
from koordinator.scheduler.explanations.victims import pending_resize

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
    "by_cause",
    "causes",
    "changed_object",
    "empty_cluster",
    "group_text",
    "in_short",
    "limited_together",
    "nearest_nodes",
    "obstacles",
    "pending_resize",
    "question_about",
    "queue_status",
    "remedies",
    "sentence_of",
    "short_gang",
    "smaller_gang",
    "together",
]
