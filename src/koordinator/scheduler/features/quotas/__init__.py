"""Elastic quotas: job queues, statuses and revocation.

``feature``     hooks of the loop, and pages
``queues``      job queues of quotas, with ``queue_rules``
``places``      reports of queue positions
``status``      statuses of ElasticQuota objects
``revocation``  evictions from quotas with sustained overuse; terminating pods that no longer count
``gauges``, ``metrics``  what is shown
"""

from koordinator.scheduler.features.quotas.feature import (
    JobQueueFeature,
    QuotaFeature,
    TerminatingPodFeature,
)

__all__ = ["JobQueueFeature", "QuotaFeature", "TerminatingPodFeature"]
