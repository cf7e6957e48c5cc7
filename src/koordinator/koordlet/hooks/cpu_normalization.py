"""Quotas on CPUs that are worth more than others: less time for the same work.

Source: koordinator pkg/koordlet/runtimehooks/hooks/cpunormalization/cpu_normalization.go.
"""

from collections.abc import Iterator

from koordinator.api.qos import QosClass
from koordinator.domain.cgroups.files import CgroupFile, quota_of_milli
from koordinator.koordlet.hooks.batch_resources import normalized
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_BURSTING = ("auto", "cfsQuotaBurstOnly")


def plan_cpu_normalization(view: NodeView) -> list[Intent]:
    """Return the quotas of pods that share CPUs; a ratio of 1 or none restores those of their spec.

    While the NodeSLO lets quotas burst, they are left to CPU burst.
    """
    return [intent for pod in view.active_pods for intent in pod_cpu_normalization(view, pod)]


def pod_cpu_normalization(view: NodeView, pod: PodView) -> Iterator[Intent]:
    """Yield the quotas of one pod and of its containers."""
    burst, ratio = view.slo.cpu_burst_strategy, view.machine.cpu_normalization_ratio
    if ratio is None or (burst is not None and burst.policy in _BURSTING):
        return
    if not pod.is_active or not _shares_cpus(pod):
        return
    reason = f"CPU normalization: ratio {ratio:g}"
    limits = [container.cpu_limit_milli for container in pod.containers]
    if limits and all(limits):
        value = str(normalized(quota_of_milli(sum(limits)), ratio))
        yield SetCgroup(CgroupFile.CFS_QUOTA, pod.folder, value, reason, pod.key)
    for container in pod.containers:
        if container.cpu_limit_milli > 0:
            value = str(normalized(quota_of_milli(container.cpu_limit_milli), ratio))
            owner = f"{pod.key}/{container.name}"
            yield SetCgroup(CgroupFile.CFS_QUOTA, container.folder, value, reason, owner)


def _shares_cpus(pod: PodView) -> bool:
    if pod.labelled_qos is QosClass.NONE:
        return not pod.bound_cpus
    return pod.labelled_qos is QosClass.LS
