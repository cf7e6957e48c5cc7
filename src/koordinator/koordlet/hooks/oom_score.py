"""Whom the kernel ends first when memory runs out.

The author of a pod writes these annotations, so they can't put it before pods of a better class:
what is allowed begins where the kubelet begins for the class.
Source: koordinator pkg/koordlet/runtimehooks/hooks/oomscoreadj; kubernetes
pkg/kubelet/qos/policy.go.
"""

from typing import Final

from koordinator.api.qos import KubeQos
from koordinator.koordlet.intents import Intent, SetOomScore
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_MOST: Final = 1000
#: What the kubelet gives to the pods of a class that it would lose last.
_LEAST: Final = {KubeQos.GUARANTEED: -997, KubeQos.BURSTABLE: 3, KubeQos.BEST_EFFORT: 3}
_CRITICAL_PRIORITY: Final = 2_000_000_000  # system-cluster-critical


def plan_oom_scores(view: NodeView) -> list[Intent]:
    """Return the adjustment of containers that have one.

    One that is bad, or better than the pod's class allows, is left out, not clamped.
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
    """Return how far a pod may be spared: a Guaranteed or critical one as the kubelet spares it."""
    is_critical = (pod.pod.spec.priority or 0) >= _CRITICAL_PRIORITY
    return _LEAST[KubeQos.GUARANTEED if is_critical else pod.kube_qos]
