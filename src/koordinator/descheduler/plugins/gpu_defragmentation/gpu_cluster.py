"""Arrays for the search for room: rows are nodes, columns resources and GPUs.

Volumes, pod affinity and topology spread are not represented: pods with these are not moved, and
the proof of the moves verifies that the pending members can be placed.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from koordinator.api.annotations.devices import ALLOCATED, read_gpu_partitions
from koordinator.api.annotations.gang import gang_name
from koordinator.api.device import Device, DeviceType
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation, ReservationPhase
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY_RATIO
from koordinator.descheduler.contract import ClusterView
from koordinator.descheduler.node_fit import AcceptingNodes, free_on
from koordinator.descheduler.plugins.gpu_defragmentation.room import RoomCluster, RoomPod
from koordinator.domain.amounts import bounded
from koordinator.domain.devices.requests import DEVICE_NAMES
from koordinator.domain.gangs.terms import group_reference
from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.domain.gpus.options import GpuRequestError, gpu_request
from koordinator.domain.pod_requests import Requests
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

_MILLI_PER_PERCENT = WHOLE_GPU // 100
SlotGroups = tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class GpuCluster:
    """Input of the search (``room``) with the objects of its rows and positions."""

    nodes: Sequence[Node]
    pods: Sequence[Pod]  # as ``room.pods``
    resources: Sequence[str]  # columns
    room: RoomCluster
    devices: Sequence[Device | None]  # by row
    accepting: AcceptingNodes

    @classmethod
    def of(
        cls, nodes: Sequence[Node], view: ClusterView, may_move: Callable[[Pod], bool]
    ) -> "GpuCluster":
        """Return the arrays of nodes, their pods and available reservations."""
        devices = [view.objects(Device).get(node.metadata.name) for node in nodes]
        free = [free_on(node, view) for node in nodes]
        resources = sorted({name for each in free for name in each if name not in DEVICE_NAMES})
        slots = max((_slots(device) for device in devices), default=0)
        gpu_free = np.full((len(nodes), slots), -1)
        for row, device in enumerate(devices):
            for info in device.spec.devices if device is not None else ():
                if info.type == DeviceType.GPU and info.minor is not None:
                    gpu_free[row, info.minor] = WHOLE_GPU if info.health else 0
        amounts = np.array([[each.get(name, 0) for name in resources] for each in free], np.int64)
        made = cls(
            nodes,
            [],
            resources,
            RoomCluster(amounts.reshape(len(nodes), len(resources)), gpu_free, ()),
            devices,
            AcceptingNodes(nodes),
        )
        return made._with_pods(view, may_move)

    def amounts(self, requests: Requests) -> "np.typing.NDArray[np.int64] | None":
        """Return requests as ``(n_resources,)``; None if no node has a requested resource."""
        wanted = {**requests, "pods": 1}
        if any(
            wanted[name] and name not in self.resources for name in wanted.keys() - DEVICE_NAMES
        ):
            return None
        return np.array([wanted.get(name, 0) for name in self.resources], np.int64)

    def partitions(self, gpus: int) -> SlotGroups:
        """Return by row the GPU partitions of the size ``gpus``, from the Device objects."""
        groups = []
        for device in self.devices:
            try:
                table = read_gpu_partitions(device.metadata) if device is not None else None
            except InputError:
                table = None
            groups.append(tuple(tuple(p.minors) for p in (table or {}).get(gpus, ())))
        return tuple(groups)

    def numa_nodes(self) -> SlotGroups:
        """Return by row the GPUs of each NUMA node."""
        groups = []
        for device in self.devices:
            by_node: dict[int, list[int]] = {}
            for info in device.spec.devices if device is not None else ():
                if info.type == DeviceType.GPU and info.minor is not None and info.topology:
                    by_node.setdefault(info.topology.node_id, []).append(info.minor)
            groups.append(tuple(tuple(sorted(minors)) for minors in by_node.values()))
        return tuple(groups)

    def _with_pods(self, view: ClusterView, may_move: Callable[[Pod], bool]) -> "GpuCluster":
        pods, placed = [], []
        rows = {node.metadata.name: row for row, node in enumerate(self.nodes)}
        for name, row in rows.items():
            for pod in view.active_pods_on(name):
                placement = self._room_pod(pod, view.allocation_of(pod), row, may_move)
                if placement is None:
                    self.room.gpu_free[row] = np.minimum(self.room.gpu_free[row], 0)
                    continue
                pods.append(pod)
                placed.append(placement)
                self.room.gpu_free[row, list(placement.gpus)] -= placement.gpu_milli
        for reservation in view.objects(Reservation).values():
            self._deduct(reservation, rows)
        np.maximum(self.room.gpu_free, -1, out=self.room.gpu_free)
        room = RoomCluster(self.room.free, self.room.gpu_free, tuple(placed))
        return GpuCluster(self.nodes, pods, self.resources, room, self.devices, self.accepting)

    def _room_pod(
        self, pod: Pod, requests: Requests, row: int, may_move: Callable[[Pod], bool]
    ) -> RoomPod | None:
        """Return the pod with its allocation ``requests``; None if a GPU of it is unknown."""
        amounts = self.amounts(requests)
        allocated = _allocated_gpus(pod.metadata)
        try:
            gpus = gpu_request(requests)
        except GpuRequestError:
            return None
        known = {minor for minor in allocated if 0 <= minor < self.room.gpu_free.shape[1]}
        if (gpus is not None and not allocated) or len(known) < len(allocated):
            return None
        milli = max(allocated.values(), default=0)
        return RoomPod(
            key=pod.key,
            row=row,
            requests=np.zeros(len(self.resources), np.int64) if amounts is None else amounts,
            gpus=tuple(sorted(allocated)),
            gpu_milli=milli,
            accepts=self.accepting.of(pod),
            may_move=amounts is not None
            and len(set(allocated.values())) <= 1
            and _is_plain(pod, requests)
            and may_move(pod),
            cost=1.0 + max(pod.spec.priority or 0, 0) / 1e6,
        )

    def _deduct(self, reservation: Reservation, rows: Mapping[str, int]) -> None:
        """Deduct a reservation: its GPUs completely, of other resources the unused amount."""
        row = rows.get(reservation.status.node_name)
        if row is None or reservation.status.phase != ReservationPhase.AVAILABLE:
            return
        status = reservation.status
        for column, name in enumerate(self.resources):
            if name in status.allocatable:
                kept = bounded(name, status.allocatable[name])
                used = bounded(name, status.allocated[name]) if name in status.allocated else 0
                self.room.free[row, column] -= max(kept - used, 0)
        for minor in _allocated_gpus(reservation.metadata):
            if 0 <= minor < self.room.gpu_free.shape[1]:
                self.room.gpu_free[row, minor] = min(self.room.gpu_free[row, minor], 0)


def _slots(device: Device | None) -> int:
    infos = device.spec.devices if device is not None else ()
    return 1 + max(
        (i.minor for i in infos if i.type == DeviceType.GPU and i.minor is not None), default=-1
    )


def _allocated_gpus(meta: ObjectMeta) -> dict[int, int]:
    """Return the allocated GPU milli of a pod or a reservation, by minor."""
    try:
        allocated = (ALLOCATED.read(meta) or {}).get(DeviceType.GPU, ())
    except InputError:
        return {-1: WHOLE_GPU}
    milli_by_minor = {}
    for each in allocated:
        quantity = each.resources.get(GPU_MEMORY_RATIO) or each.resources.get(GPU_CORE)
        percent = quantity.value() if quantity is not None else 100
        milli_by_minor[each.minor] = min(max(percent, 0), 100) * _MILLI_PER_PERCENT
    return milli_by_minor


def _is_plain(pod: Pod, requests: Requests) -> bool:
    """Return whether the arrays represent all placement rules of a pod."""
    spec = pod.spec
    affinity = spec.affinity
    others = affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )
    try:
        gpus = gpu_request(requests)
    except GpuRequestError:
        return False
    devices = {name for name in requests if name in DEVICE_NAMES}
    return not (
        others
        or spec.topology_spread_constraints
        or any(volume.persistent_volume_claim for volume in spec.volumes)
        or gang_name(pod.metadata)
        or group_reference(spec) is not None
        or (devices and gpus is None)
    )
