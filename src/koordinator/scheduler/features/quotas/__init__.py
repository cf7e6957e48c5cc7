"""Elastic quotas: their queues, their statuses, and what is taken back.

``feature``           what the loop asks and tells
``queues``            jobs that wait in the queue of their quota, with ``queue_rules``
``places``            what they are told of their places
``status``            what quotas use and may use, written into their objects
``revocation``        evictions of what a quota uses for too long
``terminating_pods``  pods that leave their quotas before they are gone
``pages``, ``gauges``, ``metrics``  what is shown
"""

from koordinator.scheduler.features.quotas.feature import (
    JobQueueFeature,
    QuotaFeature,
    TerminatingPodFeature,
)

__all__ = ["JobQueueFeature", "QuotaFeature", "TerminatingPodFeature"]
