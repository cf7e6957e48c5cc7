"""GPUs, whole or in parts: which nodes have enough, and which devices the pod gets.

Done so far: GPUs reported by Device objects, all valid resource combinations, one or several shared
GPUs, whole GPUs, the ``device-allocated`` annotation.  Topology, partitions, RDMA, vendors'
templates come with the device issue.

Source: koordinator pkg/scheduler/plugins/deviceshare.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from koordinator.api.annotations.devices import ALLOCATED, DeviceAllocation
from koordinator.api.device import Device, DeviceType
from koordinator.api.kubescheduler import DeviceShareArgs
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.domain.gpu_request import GpuRequest, GpuRequestError
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import (
    Action,
    EventHint,
    Holding,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
)
from koordinator.scheduler.snapshot import BoolArray, IntArray, PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.gpu_view import request_of
from koordinator.scheduler.snapshot.nodes import MEMORY_OF_GPU, RATIO_OF_GPU

REASON = "Insufficient GPU Devices"


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A node whose devices nobody reports is left to its kubelet.

    It passes and nothing is allocated.
    """

    pack: bool  # give out the fullest device that fits (MostAllocated) instead of the emptiest
    reads: ClassVar = Reads.PLACED

    def key(self, pod: PodClass) -> Hashable:
        return pod.demand

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        request = request_of(snapshot, pod)
        return Refusal(str(request)) if isinstance(request, GpuRequestError) else None

    def filters(self, snapshot: Snapshot, pod: PodClass) -> bool:
        return isinstance(request_of(snapshot, pod), GpuRequest)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        request = request_of(snapshot, pod)
        if not isinstance(request, GpuRequest):
            return Rejections.none(snapshot)
        enough = _fitting(snapshot, request).sum(axis=1) >= request.count
        return Rejections.where(snapshot.gpu_known & ~enough, REASON)

    def reserve(self, node: Snapshot, pod: PodClass, wish: IntArray | None) -> Holding | Refusal:
        """Take the devices that the score plugin wished for.

        Else by free share, lowest minor first.
        """
        request = request_of(node, pod)
        if not isinstance(request, GpuRequest) or not node.gpu_known[0]:
            return Holding()
        fitting = np.flatnonzero(_fitting(node, request)[0])
        if len(fitting) < request.count:
            return Refusal(REASON, resolvable=True)
        if wish is None:
            free = node.gpu_free[0, :, RATIO_OF_GPU]
            wish = -free if self.pack else free
        minors = fitting[np.argsort(-wish[fitting], kind="stable")[: request.count]]
        total = node.gpu_total[0]
        devices = tuple(
            (int(m), _complete(request, int(total[m, MEMORY_OF_GPU]))) for m in sorted(minors)
        )
        return Holding(devices=devices, annotations=annotation(node, devices))


def _fitting(snapshot: Snapshot, request: GpuRequest) -> BoolArray:
    """Return ``(n, n_minors)``: the device exists, is healthy and has enough free."""
    fits: BoolArray = snapshot.gpu_total[:, :, RATIO_OF_GPU] > 0
    for index, amount in enumerate(request.amounts):
        if amount:
            fits &= snapshot.gpu_free[:, :, index] >= amount
    return fits


def _complete(request: GpuRequest, total_memory: int) -> IntArray:
    """Return (core, memory, ratio).

    The one of memory and ratio that was not asked for is filled in.
    """
    memory, ratio = request.memory, request.ratio
    if memory and not ratio:
        ratio = memory * 100 // max(total_memory, 1)
    elif ratio and not memory:
        memory = ratio * total_memory // 100
    return np.array((request.core, memory, ratio), np.int64)


def annotation(node: Snapshot, devices: Sequence[tuple[int, IntArray]]) -> dict[str, str]:
    """Return the ``device-allocated`` annotation, with the ids of the node's Device object."""
    reported = node.objects.get(Device, node.node_names[0])
    ids = {
        info.minor: info.id
        for info in (reported.spec.devices if reported else ())
        if info.type == DeviceType.GPU
    }
    allocations = []
    for minor, (core, memory, ratio) in devices:
        amounts = {
            GPU_CORE: Quantity.from_int(int(core)),
            GPU_MEMORY: Quantity.from_int(int(memory), binary=True),
            GPU_MEMORY_RATIO: Quantity.from_int(int(ratio)),
        }
        asked = {name: amount for name, amount in amounts.items() if amount.value()}
        allocations.append(DeviceAllocation(minor=minor, resources=asked, id=ids.get(minor, "")))
    return ALLOCATED.entry({DeviceType.GPU: tuple(allocations)})


def build(args: DeviceShareArgs, _axis: ResourceAxis) -> DeviceShare:
    strategy = args.scoring_strategy
    return DeviceShare(pack=strategy is not None and strategy.type == "MostAllocated")


PLUGIN = PluginSpec(
    "DeviceShare",
    DeviceShareArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.DELETE),
        EventHint("Device", Action.ADD | Action.UPDATE | Action.DELETE),
        EventHint("Node", Action.ADD),
    ),
)
