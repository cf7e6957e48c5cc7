"""What quotas know of a pod, and which of two pods is the more important.

Source: koordinator pkg/scheduler/plugins/elasticquota/core/quota_info.go, ``PodInfo``;
kubernetes pkg/scheduler/util/utils.go, ``MoreImportantPod``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from koordinator.api.labels import QUOTA_NAME, is_quota_preemptible
from koordinator.api.pod import Pod
from koordinator.domain.quota.amounts import Amounts
from koordinator.foundation.clock import to_epoch_s


@dataclass(frozen=True, slots=True)
class QuotaPod:
    """A pod that exists and has not ended."""

    key: str
    namespace: str
    requests: Amounts
    quota_label: str = ""  # the quota that it names; empty if none
    is_preemptible: bool = True  # if not, it has to fit into the minimum, and is never evicted
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    started_s: float = inf  # since the epoch; not yet started is later than all that have


def quota_pod(pod: Pod, requests: Amounts) -> QuotaPod:
    """Return the pod as quotas see it; ``requests`` as ``pod_requests`` returns them."""
    labels = pod.metadata.labels
    return QuotaPod(
        key=pod.key,
        namespace=pod.metadata.namespace,
        requests=requests,
        quota_label=labels.get(QUOTA_NAME, ""),
        is_preemptible=is_quota_preemptible(labels),
        priority=pod.spec.priority or 0,
        labels=labels,
        started_s=to_epoch_s(pod.status.start_time, default=inf),
    )


def by_importance(pod: QuotaPod) -> tuple[int, float, str]:
    """Return a sort key, the most important pod first: priority, then who started earlier."""
    return -pod.priority, pod.started_s, pod.key
