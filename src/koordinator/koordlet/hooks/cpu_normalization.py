"""CPU normalization of new containers: smaller quotas on faster CPUs.

``qos.cpu_quota`` combines the quotas of running containers with CPU burst.
Source: koordinator pkg/koordlet/runtimehooks/hooks/cpunormalization/cpu_normalization.go.
"""

from collections.abc import Iterator

from koordinator.domain.cgroups.files import CgroupFile, normalized_quota, quota_of_milli
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView


def pod_cpu_normalization(view: NodeView, pod: PodView) -> Iterator[Intent]:
    """Yield the normalized quotas of a pod's containers, from the limits in the spec."""
    ratio = view.cpu_ratio(pod)
    if ratio is None:
        return
    reason = f"CPU normalization: ratio {ratio:g}"
    for container in pod.containers:
        if container.cpu_limit_milli > 0:
            value = str(normalized_quota(quota_of_milli(container.cpu_limit_milli), ratio))
            owner = f"{pod.key}/{container.name}"
            yield SetCgroup(CgroupFile.CFS_QUOTA, container.folder, value, reason, owner)
