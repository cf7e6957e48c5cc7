"""Quotas on CPUs that are worth more than others: less time for the same work.

The quotas of running containers are composed with CPU burst in ``qos.cpu_quota``; here is what a
container gets when the runtime makes it.
Source: koordinator pkg/koordlet/runtimehooks/hooks/cpunormalization/cpu_normalization.go.
"""

from collections.abc import Iterator

from koordinator.domain.cgroups.files import CgroupFile, normalized_quota, quota_of_milli
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView


def pod_cpu_normalization(view: NodeView, pod: PodView) -> Iterator[Intent]:
    """Yield the quotas of a pod's containers, of the limits that the kubelet asks for."""
    ratio = view.cpu_ratio(pod)
    if ratio is None:
        return
    reason = f"CPU normalization: ratio {ratio:g}"
    for container in pod.containers:
        if container.cpu_limit_milli > 0:
            value = str(normalized_quota(quota_of_milli(container.cpu_limit_milli), ratio))
            owner = f"{pod.key}/{container.name}"
            yield SetCgroup(CgroupFile.CFS_QUOTA, container.folder, value, reason, owner)
