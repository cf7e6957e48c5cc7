"""Completion of the kubelet's PodResources answers by the devices that Koordinator allocated.

The kubelet itself knows devices of device plugins only.  The service identifies pods by name, and
its clients (Multus, before the pod has a network) call within milliseconds of the pod's start.
Therefore a pod counts only while its cgroup exists: the kubelet creates the cgroup before it sets
up the network, and removes it before a pod of the same name can follow.  A pod that the kubelet
knows first is awaited for a short time.  Undeclared fields of messages are passed through.
Source: k8s.io/kubelet pkg/apis/podresources/v1/api.proto; koordinator
pkg/koordlet/statesinformer/impl/states_pod_resources.go, ``fillPodDevicesAllocatedByKoord``.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Final

from koordinator.api.annotations.devices import DeviceAllocation, DeviceAllocations
from koordinator.api.device import DeviceType
from koordinator.api.resource_names import FPGA, NVIDIA_GPU, RDMA
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.protobuf import (
    FieldNumber,
    UnknownFields,
    decode_message,
    encode_message,
)
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.view.pods import PodView

SERVICES: Final = ("v1.PodResourcesLister", "v1alpha1.PodResourcesLister")
#: Calls whose response contains devices of pods; the older service has only the first.
COMPLETED: Final = (
    "v1.PodResourcesLister/List",
    "v1.PodResourcesLister/Get",
    "v1alpha1.PodResourcesLister/List",
)

MOST_DEVICES: Final = 1024  # of one type, virtual functions included; no machine has more
#: Resource names by type; device plugins report devices of other types.
NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {DeviceType.GPU: NVIDIA_GPU, DeviceType.RDMA: RDMA, DeviceType.FPGA: FPGA}
)

log = logging.getLogger(__name__)

LONGEST_WAIT_S: Final = 1.0  # for a pod to be published; Multus waits ten seconds
_POLL_S: Final = 0.02  # of cgroups, whose creation causes no event here


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices:
    """Devices of one resource, by id."""

    resource_name: Annotated[str, FieldNumber(1)] = ""
    device_ids: Annotated[tuple[str, ...], FieldNumber(2)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources:
    """Resources of a container."""

    name: Annotated[str, FieldNumber(1)] = ""
    devices: Annotated[tuple[ContainerDevices, ...], FieldNumber(2)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """Resources of a pod's containers; the service has no UIDs."""

    name: Annotated[str, FieldNumber(1)] = ""
    namespace: Annotated[str, FieldNumber(2)] = ""
    containers: Annotated[tuple[ContainerResources, ...], FieldNumber(3)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResourcesList:
    """Response of List and of Get; Get returns at most one pod in the same field."""

    pods: Annotated[tuple[PodResources, ...], FieldNumber(1)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


def pod_devices(allocated: DeviceAllocations) -> dict[str, tuple[str, ...]]:
    """Return ids by resource name, sorted by name.

    Virtual functions and whole RDMA cards are listed by PCI address, GPUs by UUID.
    """
    by_name = {NAMES[kind]: _ids(devices) for kind, devices in allocated.items() if kind in NAMES}
    return {name: ids for name, ids in sorted(by_name.items()) if ids}


def _ids(devices: Iterable[DeviceAllocation]) -> tuple[str, ...]:
    ids = []
    for device in devices:
        functions = device.extension.vfs if device.extension is not None else ()
        ids += [vf.bus_id for vf in functions] or [device.id]
    return tuple(dict.fromkeys(each for each in ids if each))[:MOST_DEVICES]


Devices = Mapping[str, tuple[str, ...]]  # ids by resource name


@dataclass(frozen=True, slots=True)
class _KnownPod:
    view: PodView
    devices: Devices
    problem: str = ""  # why the devices are withheld; checked again when pods are published


_Waiting = tuple[str, str]  # pod and UID; no UID for an unknown pod


class PodResourcesAnswers:
    """Thread-safe completion of answers; only the loop calls ``publish``.

    ``cgroups`` must not be shared with the loop.  Unpublished pods are awaited at most
    ``longest_wait_s``.  ``check_devices`` raises InputError for a pod whose device another pod
    owns.
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
        self._changed = threading.Condition()
        self._not_awaited: frozenset[_Waiting] = frozenset()  # after a wait in vain

    def publish(self, pods: Iterable[PodView]) -> None:
        """Replace the pods from which calls are answered."""
        known = {pod.key: self._known(pod) for pod in pods}
        with self._changed:
            self._pods = known
            self._changed.notify_all()

    def complete(self, answer: bytes) -> bytes:
        """Return an answer of List or Get with the devices of its pods added.

        The devices are added to the pod's first container.  A resource that the kubelet reports
        for the pod itself is kept, and an unreadable answer is returned unchanged.
        """
        try:
            resources = decode_message(PodResourcesList, answer)
        except InputError as error:
            log.warning("answer of the kubelet not decodable", extra={"error": error})
            return answer
        pods = self._wait_for([pod.key for pod in resources.pods])
        completed = tuple(_completed(pod, pods.get(pod.key)) for pod in resources.pods)
        if completed == resources.pods:
            return answer
        return encode_message(replace(resources, pods=completed))

    def _known(self, pod: PodView) -> _KnownPod:
        before = self._pods.get(pod.key)
        if not pod.is_active:  # another pod may have its devices
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
                log.warning("devices of a pod withheld", extra={"pod": pod.key, "error": problem})
            return _KnownPod(pod, {}, problem)
        return _KnownPod(pod, devices)

    def _wait_for(self, keys: Collection[str]) -> Mapping[str, Devices]:
        """Return the devices of the pods that exist on the machine, by pod.

        A pod that did not appear in time is not awaited again.
        """
        deadline_s = self._clock.now_s() + self._longest_wait_s
        while True:
            pods = self._pods
            devices, waiting = self._existing(keys, pods)
            left_s = deadline_s - self._clock.now_s()
            if waiting <= self._not_awaited or left_s <= 0:
                self._not_awaited = waiting
                return devices
            with self._changed:
                self._changed.wait_for(
                    lambda seen=pods: self._pods is not seen,  # type: ignore[misc]
                    min(left_s, _POLL_S),
                )

    def _existing(
        self, keys: Collection[str], pods: Mapping[str, _KnownPod]
    ) -> tuple[Mapping[str, Devices], frozenset[_Waiting]]:
        """Return the devices by pod, and the pods (with UIDs if known) that do not exist yet."""
        devices, waiting = {}, set()
        for key in keys:
            known = pods.get(key)
            if known is None:
                waiting.add((key, ""))
            elif known.devices and self._cgroups.exists(known.view.folder):
                devices[key] = known.devices
            elif known.devices:
                waiting.add((key, str(known.view.uid)))
        return devices, frozenset(waiting)


def _completed(pod: PodResources, devices: Devices | None) -> PodResources:
    if not devices or not pod.containers:
        return pod
    reported = {each.resource_name for container in pod.containers for each in container.devices}
    added = [
        ContainerDevices(resource_name=name, device_ids=ids)
        for name, ids in devices.items()
        if name not in reported
    ]
    if not added:
        return pod
    first, *others = pod.containers
    sorted_devices = sorted((*first.devices, *added), key=lambda each: each.resource_name)
    first = replace(first, devices=tuple(sorted_devices))
    return replace(pod, containers=(first, *others))
