"""Annotations of elastic quotas and their profiles.

Source: koordinator apis/extension/elastic_quota.go.
"""

from enum import StrEnum
from typing import Final

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.foundation.errors import InputError

DEFAULT_RESOURCE_KEYS = ("cpu", "memory")

# Set by users and the profile controller.
#: weight in the sharing of what is free; default max
SHARED_WEIGHT = AnnotationCodec("quota.scheduling.koordinator.sh/shared-weight", ResourceList)
#: namespaces whose pods belong to the quota
NAMESPACES = AnnotationCodec("quota.scheduling.koordinator.sh/namespaces", tuple[str, ...])
#: largest amounts of the pods that the webhook admits
ADMISSION = AnnotationCodec("quota.scheduling.koordinator.sh/admission", ResourceList)
#: amounts of the tree's nodes
TOTAL_RESOURCE = AnnotationCodec("quota.scheduling.koordinator.sh/total-resource", ResourceList)
UNSCHEDULABLE_RESOURCE = AnnotationCodec(
    "quota.scheduling.koordinator.sh/unschedulable-resource", ResourceList
)  # amounts of cordoned nodes
#: resources that the profile counts
RESOURCE_KEYS = AnnotationCodec("quota.scheduling.koordinator.sh/resource-keys", tuple[str, ...])
MAX_STRICT_CHECK_RESOURCE_KEYS = AnnotationCodec(
    "quota.scheduling.koordinator.sh/max-strict-check-resource-keys", tuple[str, ...]
)  # resources whose max binds strictly

#: Namespaces, or * for all, whose quotas may be children; ours, as are queues below.
CHILD_NAMESPACES = AnnotationCodec(
    "quota.scheduling.koordinator.sh/child-namespaces", tuple[str, ...]
)

# Set by users; ours: the original has no queues.
#: queue of jobs: none, strict, backfill or best-effort
QUEUE_POLICY: Final = "quota.scheduling.koordinator.sh/queue-policy"
#: order of jobs: fifo or fair-share
QUEUE_ORDER: Final = "quota.scheduling.koordinator.sh/queue-order"
#: jobs considered behind the first
QUEUE_DEPTH: Final = "quota.scheduling.koordinator.sh/queue-depth"

# Reported by the scheduler.
#: amounts that the quota may use now
RUNTIME = AnnotationCodec("quota.scheduling.koordinator.sh/runtime", ResourceList)
#: requests of all pods of the quota
REQUEST = AnnotationCodec("quota.scheduling.koordinator.sh/request", ResourceList)
#: requests of the quotas below
CHILD_REQUEST = AnnotationCodec("quota.scheduling.koordinator.sh/child-request", ResourceList)
#: guaranteed amounts
GUARANTEED = AnnotationCodec("quota.scheduling.koordinator.sh/guaranteed", ResourceList)
#: guaranteed amounts that are used
ALLOCATED = AnnotationCodec("quota.scheduling.koordinator.sh/allocated", ResourceList)
NON_PREEMPTIBLE_REQUEST = AnnotationCodec(
    "quota.scheduling.koordinator.sh/non-preemptible-request", ResourceList
)  # requests of pods that are not preemptible
NON_PREEMPTIBLE_USED = AnnotationCodec(
    "quota.scheduling.koordinator.sh/non-preemptible-used", ResourceList
)  # usage of pods that are not preemptible

REPORTED: Final = frozenset(
    annotation.key
    for annotation in (
        RUNTIME,
        REQUEST,
        CHILD_REQUEST,
        GUARANTEED,
        ALLOCATED,
        NON_PREEMPTIBLE_REQUEST,
        NON_PREEMPTIBLE_USED,
    )
)


class QueuePolicy(StrEnum):
    """Choice of the waiting jobs of a quota that may be tried."""

    NONE = "none"  # all: there is no queue
    STRICT = "strict"  # the first
    BACKFILL = "backfill"  # the first, and close followers that request less
    BEST_EFFORT = "best-effort"  # the first, and those close behind


class QueueOrder(StrEnum):
    """Order of jobs of equal priority."""

    FIFO = "fifo"  # who came first
    FAIR_SHARE = "fair-share"  # whose namespace uses the smallest part of the quota


def shared_weight(quota: ElasticQuota) -> ResourceList:
    """Return the weights, or the maximum if they are missing, broken or all zero."""
    try:
        weights = SHARED_WEIGHT.read(quota.metadata)
    except InputError:
        weights = None
    if weights and any(weight.nanos for weight in weights.values()):
        return weights
    return quota.spec.max


def bound_namespaces(quota: ElasticQuota) -> tuple[str, ...]:
    """Return the namespaces whose unlabelled pods use the quota; none if they can't be read."""
    try:
        return NAMESPACES.read(quota.metadata) or ()
    except InputError:
        return ()
