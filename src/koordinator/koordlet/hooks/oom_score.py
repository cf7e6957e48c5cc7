"""OOM score adjustments from annotations: the order in which the kernel kills processes.

The author of a pod writes these annotations, so they must not protect it better than pods of a
better class: the lowest allowed value is the kubelet's value for the class.
Source: koordinator pkg/koordlet/runtimehooks/hooks/oomscoreadj; kubernetes
pkg/kubelet/qos/policy.go.
"""

from typing import Final

from koordinator.api.qos import KubeQos
from koordinator.koordlet.intents import Intent, SetOomScore
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_MOST: Final = 1000
#: Lowest value that the kubelet sets for a pod of the class.
_LEAST: Final = {KubeQos.GUARANTEED: -997, KubeQos.BURSTABLE: 3, KubeQos.BEST_EFFORT: 3}
_CRITICAL_PRIORITY: Final = 2_000_000_000  # system-cluster-critical


def plan_oom_scores(view: NodeView) -> list[Intent]:
    """Return the adjustments of containers that have one.

    An invalid value, or one below the minimum of the pod's class, is ignored, not clamped.
    """
    intents: list[Intent] = []
    for pod in view.active_pods:
        by_container, default = pod.oom_scores
        least = least_score(pod)
        for container in pod.containers:
            value = by_container.get(container.name, default)
            if value is not None and least <= value <= _MOST:
                owner = f"{pod.key}/{container.name}"
                intents.append(SetOomScore(container.folder, value, "OOM score annotation", owner))
    return intents


def least_score(pod: PodView) -> int:
    """Return the lowest allowed adjustment; critical pods are treated as Guaranteed ones."""
    is_critical = (pod.pod.spec.priority or 0) >= _CRITICAL_PRIORITY
    return _LEAST[KubeQos.GUARANTEED if is_critical else pod.kube_qos]
