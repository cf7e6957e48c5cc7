"""Job queues of quotas: jobs wait in order, and only the front is tried.

No I/O, no clock.  A job is a complete gang group or a single pod.

``job``       ``QueuedJob``: attributes of a waiting job
``rules``     ``QueueRules``: order and number of jobs tried at a time
``queue``     ``JobQueue``: the jobs of one quota
``cache``     ``JobQueueCache``: all queues and their fronts
``positions`` rate-limited reports of queue positions

The original has no queues; the design follows kube-queue (github.com/kube-queue/kube-queue).
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
