"""Completes the kubelet's answers by what the loop published last of pods.

The service names pods without UIDs, and its askers (Multus, before a pod has its network) come
within milliseconds of the pod's start.  So a pod counts only while its cgroup is there, which the
kubelet makes before it asks for the network and removes before a pod of the same name may follow;
and one that the kubelet knows earlier than we do is waited for.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError
from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.pod_resources.messages import (
    ContainerDevices,
    PodResources,
    PodResourcesList,
)
from koordinator.koordlet.pod_resources.pod_devices import pod_devices
from koordinator.koordlet.view.pods import PodView

log = logging.getLogger(__name__)

LONGEST_WAIT_S: Final = 1.0  # for news of pods; Multus waits ten seconds
_POLL_S: Final = 0.02  # of cgroups, which tell nobody that they are there

Devices = Mapping[str, tuple[str, ...]]  # ids by resource name


@dataclass(frozen=True, slots=True)
class _KnownPod:
    view: PodView
    devices: Devices
    problem: str = ""  # why they are not told; looked at again whenever pods change


_Waiting = tuple[str, str]  # pod and UID; no UID: of a pod of which nothing is known


class PodResourcesAnswers:
    """Safe to ask from any thread; ``publish`` is called by the loop alone.

    ``cgroups`` is not the loop's; news of pods are waited for ``longest_wait_s`` at the most.
    ``check_devices`` raises InputError for a pod whose devices are another's.
    """

    def __init__(
        self,
        clock: Clock,
        cgroups: CgroupTree,
        *,
        check_devices: Callable[[PodView], None],
        longest_wait_s: float = LONGEST_WAIT_S,
    ) -> None:
        self._clock = clock
        self._longest_wait_s = longest_wait_s
        self._cgroups = cgroups
        self._check_devices = check_devices
        self._pods: Mapping[str, _KnownPod] = MappingProxyType({})
        self._news = threading.Condition()
        self._given_up: frozenset[_Waiting] = frozenset()

    def publish(self, pods: Iterable[PodView]) -> None:
        """Answer from these from now on."""
        known = {pod.key: self._known(pod) for pod in pods}
        with self._news:
            self._pods = known
            self._news.notify_all()

    def complete(self, answer: bytes) -> bytes:
        """Return an answer of List or Get with the devices of its pods.

        Each pod's are told of its first container; a resource of which the kubelet itself tells
        something for the pod is left as it is.  What can't be read is returned as it is.
        """
        try:
            found = decode_message(PodResourcesList, answer)
        except InputError as error:
            log.warning("answer of the kubelet not read", extra={"error": error})
            return answer
        pods = self._settled([pod.key for pod in found.pods])
        completed = tuple(_completed(pod, pods.get(pod.key)) for pod in found.pods)
        return answer if completed == found.pods else encode_message(replace(found, pods=completed))

    def _known(self, pod: PodView) -> _KnownPod:
        before = self._pods.get(pod.key)
        if not pod.is_active:  # what it had may be another's
            return _KnownPod(pod, {})
        if before is not None and before.view is pod and not before.problem:
            return before
        try:
            devices = pod_devices(pod.devices)
            if devices:
                self._check_devices(pod)
        except InputError as error:
            problem = str(error)
            if before is None or before.problem != problem:
                log.warning("devices of a pod not told", extra={"pod": pod.key, "error": problem})
            return _KnownPod(pod, {}, problem)
        return _KnownPod(pod, devices)

    def _settled(self, keys: Collection[str]) -> Mapping[str, Devices]:
        """Return devices by pod, of pods that are on the machine now.

        What is waited for in vain once is not waited for again.
        """
        deadline_s = self._clock.now_s() + self._longest_wait_s
        while True:
            pods = self._pods
            there, waiting = self._look(keys, pods)
            left_s = deadline_s - self._clock.now_s()
            if waiting <= self._given_up or left_s <= 0:
                self._given_up = waiting
                return there
            with self._news:
                self._news.wait_for(lambda seen=pods: self._pods is not seen, min(left_s, _POLL_S))  # type: ignore[misc]

    def _look(
        self, keys: Collection[str], pods: Mapping[str, _KnownPod]
    ) -> tuple[Mapping[str, Devices], frozenset[_Waiting]]:
        """Return devices by pod, and the pods, with UIDs where known, that are not there yet."""
        there, waiting = {}, set()
        for key in keys:
            known = pods.get(key)
            if known is None:
                waiting.add((key, ""))
            elif known.devices and self._cgroups.exists(known.view.folder):
                there[key] = known.devices
            elif known.devices:
                waiting.add((key, str(known.view.uid)))
        return there, frozenset(waiting)


def _completed(pod: PodResources, devices: Devices | None) -> PodResources:
    if not devices or not pod.containers:
        return pod
    told = {each.resource_name for container in pod.containers for each in container.devices}
    added = [
        ContainerDevices(resource_name=name, device_ids=ids)
        for name, ids in devices.items()
        if name not in told
    ]
    if not added:
        return pod
    first, *others = pod.containers
    sorted_devices = sorted((*first.devices, *added), key=lambda each: each.resource_name)
    first = replace(first, devices=tuple(sorted_devices))
    return replace(pod, containers=(first, *others))
