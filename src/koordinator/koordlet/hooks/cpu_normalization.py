"""Quotas on CPUs that are worth more than others: less time for the same work.

Source: koordinator pkg/koordlet/runtimehooks/hooks/cpunormalization/cpu_normalization.go.
"""

from koordinator.api.qos import QosClass
from koordinator.domain.cgroups.files import CgroupFile, quota_of_milli
from koordinator.koordlet.hooks.batch_resources import normalization_ratio, normalized
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_BURSTING = ("auto", "cfsQuotaBurstOnly")


def plan_cpu_normalization(view: NodeView) -> list[Intent]:
    """Return the quotas of pods that share CPUs; a ratio of 1 or none restores those of their spec.

    While the NodeSLO lets quotas burst, they are left to CPU burst.
    """
    burst = view.slo.cpu_burst_strategy
    if burst is not None and burst.policy in _BURSTING:
        return []
    ratio = normalization_ratio(view)
    if ratio is None:
        return []
    reason = f"CPU normalization: ratio {ratio:g}"
    intents: list[Intent] = []
    for pod in view.pods:
        if not pod.is_active or not _shares_cpus(view, pod):
            continue
        limits = [container.cpu_limit_milli for container in pod.containers]
        if limits and all(limits):
            value = str(normalized(quota_of_milli(sum(limits)), ratio))
            intents.append(SetCgroup(CgroupFile.CFS_QUOTA, pod.folder, value, reason, pod.key))
        for container in pod.containers:
            if container.cpu_limit_milli > 0:
                value = str(normalized(quota_of_milli(container.cpu_limit_milli), ratio))
                owner = f"{pod.key}/{container.name}"
                intents.append(
                    SetCgroup(CgroupFile.CFS_QUOTA, container.folder, value, reason, owner)
                )
    return intents


def _shares_cpus(view: NodeView, pod: PodView) -> bool:
    if pod.labelled_qos is QosClass.NONE:
        return not view.bound_cpus(pod)
    return pod.labelled_qos is QosClass.LS
