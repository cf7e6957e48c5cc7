"""Nominations that a pod has to respect."""

from collections.abc import Mapping, Sequence

from koordinator.api.pod import Pod
from koordinator.scheduler.snapshot import PodClass

#: Pods that preemption has made room for, with their classes, by node name.
Nominations = Mapping[str, Sequence[tuple[Pod, PodClass]]]


def nominated_pods_with_priority(
    pod: Pod, nominated: Nominations
) -> dict[str, list[tuple[Pod, PodClass]]]:
    """Return the nominations that the pod has to respect: other pods' of at least its priority."""
    priority = pod.spec.priority or 0
    rivals = {
        node: [n for n in pods if n[0].key != pod.key and (n[0].spec.priority or 0) >= priority]
        for node, pods in nominated.items()
    }
    return {node: pods for node, pods in rivals.items() if pods}


def priority_of(pod: Pod) -> int:
    """Return the priority by which pods are compared."""
    return pod.spec.priority or 0
