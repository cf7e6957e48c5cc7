"""Nominated pods with at least a pod's priority: filters count them as placed."""

from collections.abc import Mapping, Sequence

from koordinator.api.pod import Pod
from koordinator.scheduler.snapshot import PodClass

#: Pods that preemption has made room for, with their classes, by node name.
Nominations = Mapping[str, Sequence[tuple[Pod, PodClass]]]


def nominated_pods_with_priority(
    pod: Pod, nominated: Nominations
) -> dict[str, list[tuple[Pod, PodClass]]]:
    """Return the other nominated pods with at least the pod's priority, by node."""
    priority = pod.spec.priority or 0
    nominated_pods = {
        node: [n for n in pods if n[0].key != pod.key and (n[0].spec.priority or 0) >= priority]
        for node, pods in nominated.items()
    }
    return {node: pods for node, pods in nominated_pods.items() if pods}


def priority_of(pod: Pod) -> int:
    """Return the priority by which pods are compared."""
    return pod.spec.priority or 0
