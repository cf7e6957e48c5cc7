"""Orders of eviction.

Source: koordinator pkg/descheduler/utils/sorter.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from koordinator.api.annotations.descheduling import (
    PREFERS_NO_EVICTION,
    eviction_cost,
    pod_deletion_cost,
)
from koordinator.api.pod import Pod
from koordinator.api.qos import KubeQos, PriorityBand, QosClass, band_of, kube_qos_of, qos_of
from koordinator.foundation.clock import to_epoch_s

_BANDS: Final[Mapping[PriorityBand, int]] = {
    PriorityBand.FREE: 1,
    PriorityBand.BATCH: 2,
    PriorityBand.MID: 3,
    PriorityBand.PROD: 4,
    PriorityBand.NONE: 5,
}
_KUBE_QOS: Final[Mapping[KubeQos, int]] = {
    KubeQos.BEST_EFFORT: 1,
    KubeQos.BURSTABLE: 2,
    KubeQos.GUARANTEED: 3,
}
_QOS: Final[Mapping[QosClass, int]] = {
    QosClass.BE: 1,
    QosClass.LS: 2,
    QosClass.LSR: 3,
    QosClass.LSE: 4,
    QosClass.SYSTEM: 4,
    QosClass.NONE: 5,
}

Rank = tuple[float, ...]


def eviction_rank(pod: Pod, usage: float | None = None) -> Rank:
    """Return a sort key; the lowest pod is evicted first.

    ``usage`` is the relief by the eviction of the pod: among equals the largest comes first, and
    unknown ones (None) last.  Then younger pods come before older ones.
    """
    meta = pod.metadata
    return (
        _BANDS[band_of(pod)],
        pod.spec.priority or 0,
        _KUBE_QOS[kube_qos_of(pod)],
        _QOS[qos_of(pod)],
        pod_deletion_cost(meta),
        eviction_cost(meta),
        1 if usage is None else 0,
        -(usage or 0.0),
        -to_epoch_s(meta.creation_timestamp),
    )


def in_eviction_order(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods in the order of eviction, without regard to their usage."""
    return sorted(pods, key=eviction_rank)


def in_low_priority_order(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods in the order of upstream's plugins: by priority, then by Kubernetes QoS.

    Pods annotated to prefer no eviction come after their equals; other equals are reversed, as by
    upstream's sort of a few pods.
    Source: kubernetes-sigs/descheduler pkg/descheduler/pod/pods.go,
    ``SortPodsBasedOnPriorityLowToHigh``.
    """

    def key(pod: Pod) -> tuple[bool, int, int, bool]:
        priority = pod.spec.priority
        prefers_no_eviction = PREFERS_NO_EVICTION in pod.metadata.annotations
        return priority is not None, priority or 0, _KUBE_QOS[kube_qos_of(pod)], prefers_no_eviction

    backwards = list(pods)[::-1]
    return sorted(backwards, key=key)
