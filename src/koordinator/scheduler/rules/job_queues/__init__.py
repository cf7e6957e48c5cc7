"""Queues: the jobs of a quota wait in order, and only those in front are tried.

No I/O, no clock.  A job is a gang group all of whose members are there, or a single pod.

``job``       ``QueuedJob``: what counts of a job that waits
``rules``     ``QueueRules``: in which order, and how many at once
``queue``     ``JobQueue``: the jobs of one quota
``cache``     ``JobQueueCache``: all queues, and who has newly come to the front
``positions`` who is to be told of a place in a queue, and when again

The original has no queues; the idea is that of kube-queue (github.com/kube-queue/kube-queue).
"""

from koordinator.scheduler.rules.job_queues.cache import (
    JobQueueCache,
    QueuePosition,
    ReportedPositions,
)
from koordinator.scheduler.rules.job_queues.queue import JobQueue, QueuedJob, QueueRules, is_smaller

__all__ = [
    "JobQueue",
    "JobQueueCache",
    "QueuePosition",
    "QueueRules",
    "QueuedJob",
    "ReportedPositions",
    "is_smaller",
]
