"""Which pod of a node has which CPUs for itself: the one that named them first keeps them.

The scheduler gives no CPU to two pods.  Who may change a pod could name CPUs of another one in its
annotation, so one that names them later does not get them.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from koordinator.foundation.path_component import PathComponent
from koordinator.koordlet.view.pods import PodView


class CpuHolders:
    """Mutable: remembers the pods in the order in which they named their CPUs."""

    def __init__(self) -> None:
        self._stated: dict[PathComponent, int] = {}  # masks by UID, the first one first

    def resolved(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """Return the pods, each without the CPUs that others had before it.

        Pods that are new together are in the order in which the kubelet started them.  An
        annotation that has changed counts as new.  Pods whose resources are for others, as those
        of a reservation, share their CPUs with these.
        """
        found = tuple(pods)
        holders = {
            pod.uid: pod
            for pod in found
            if pod.is_active and pod.stated_cpus and not pod.offers_resources
        }
        stated = {
            uid: mask
            for uid, mask in self._stated.items()
            if uid in holders and holders[uid].stated_cpus == mask
        }
        new = [pod for uid, pod in holders.items() if uid not in stated]
        stated |= {pod.uid: pod.stated_cpus for pod in sorted(new, key=_start)}
        self._stated = stated
        if not stated:
            return found
        held = 0
        changed: dict[PathComponent, PodView] = {}
        for uid, mask in stated.items():
            pod = holders[uid]
            if mask & held:
                pod = changed[uid] = replace(pod, others_cpus=held)
            held |= pod.bound_cpus
        return tuple(changed.get(pod.uid, pod) for pod in found) if changed else found


def _start(pod: PodView) -> tuple[float, str]:
    started = pod.pod.status.start_time
    return (started.timestamp() if started is not None else math.inf, pod.key)
