"""Ownership of bound CPUs: the first pod that states a CPU in its annotation keeps it.

The scheduler allocates no CPU to two pods.  A client that may patch a pod could state the CPUs of
another one, so a pod that states them later does not get them.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from koordinator.foundation.path_component import PathComponent
from koordinator.koordlet.view.pods import PodView


class CpuHolders:
    """Mutable registry of pods, in the order in which they stated their CPUs."""

    def __init__(self) -> None:
        self._stated: dict[PathComponent, int] = {}  # masks by UID, in order of precedence

    def resolved(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """Return the pods, each without the CPUs of pods with precedence.

        Pods that are new in the same call are ordered by their start.  A changed annotation counts
        as new.  Pods that offer their resources to others, such as the pod of a reservation, share
        their CPUs with these.
        """
        listed = tuple(pods)
        owners = {
            pod.uid: pod
            for pod in listed
            if pod.is_active and pod.stated_cpus and not pod.offers_resources
        }
        stated = {
            uid: mask
            for uid, mask in self._stated.items()
            if uid in owners and owners[uid].stated_cpus == mask
        }
        new = [pod for uid, pod in owners.items() if uid not in stated]
        stated |= {pod.uid: pod.stated_cpus for pod in sorted(new, key=_start)}
        self._stated = stated
        if not stated:
            return listed
        taken = 0
        changed: dict[PathComponent, PodView] = {}
        for uid, mask in stated.items():
            pod = owners[uid]
            if mask & taken:
                pod = changed[uid] = replace(pod, others_cpus=taken)
            taken |= pod.bound_cpus
        return tuple(changed.get(pod.uid, pod) for pod in listed) if changed else listed


def _start(pod: PodView) -> tuple[float, str]:
    started = pod.pod.status.start_time
    return (started.timestamp() if started is not None else math.inf, pod.key)
