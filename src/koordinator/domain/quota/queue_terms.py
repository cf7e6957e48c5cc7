"""How the jobs of a quota wait for each other, as its annotations say.

The original has no queues; the idea is that of kube-queue (github.com/kube-queue/kube-queue).
"""

from dataclasses import dataclass

from koordinator.api.annotations.codec import annotation_path
from koordinator.api.annotations.quota import QUEUE_DEPTH, QUEUE_ORDER, QUEUE_POLICY
from koordinator.api.annotations.quota import QueueOrder as Order
from koordinator.api.annotations.quota import QueuePolicy as Policy
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.labels import parse_int32
from koordinator.api.syntax import refusal

QUEUE_KEYS = (QUEUE_POLICY, QUEUE_ORDER, QUEUE_DEPTH)


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """What a quota says; None where it says nothing that can be read."""

    policy: Policy | None = None
    order: Order | None = None
    depth: int | None = None

    @classmethod
    def of(cls, quota: ElasticQuota) -> "QueueTerms":
        """Return what the annotations say; what can't be read counts as missing."""
        said = quota.metadata.annotations
        depth = parse_int32(said.get(QUEUE_DEPTH, ""))
        return cls(
            next((one for one in Policy if one == said.get(QUEUE_POLICY)), None),
            next((one for one in Order if one == said.get(QUEUE_ORDER)), None),
            depth if depth is not None and depth > 0 else None,
        )


NO_TERMS = QueueTerms()


def check_queue_terms(quota: ElasticQuota) -> None:
    """Raise InputError, without subject, if an annotation about the queue can't be read."""
    read = QueueTerms.of(quota)
    for key, value, accepted in (
        (QUEUE_POLICY, read.policy, f"one of {', '.join(Policy)}"),
        (QUEUE_ORDER, read.order, f"one of {', '.join(Order)}"),
        (QUEUE_DEPTH, read.depth, "a whole number above 0"),
    ):
        text = quota.metadata.annotations.get(key, "")
        if text and value is None:
            raise refusal(annotation_path(key), text, accepted)
