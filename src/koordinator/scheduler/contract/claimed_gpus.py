"""Queueing hint for pods that request GPUs which claims may hold."""

from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.meta import KubeObject
from koordinator.domain.dynamic_resources.node_gpus import claimed_gpus
from koordinator.scheduler.contract.events import ClusterEvent, QueueingHint


def on_claimed_gpus(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if a claim has released GPUs that pods may request."""
    had = isinstance(event.old, ResourceClaim) and claimed_gpus(event.old)
    has = isinstance(event.new, ResourceClaim) and claimed_gpus(event.new)
    return QueueingHint.QUEUE if had and had != has else QueueingHint.SKIP
