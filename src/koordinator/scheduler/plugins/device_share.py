"""GPUs, whole or in parts: which nodes have enough, and which devices the pod gets.

Done so far: GPUs reported by Device objects, all valid resource combinations, one or several shared GPUs, whole GPUs,
the ``device-allocated`` annotation.  Topology, partitions, RDMA, vendors' templates come with the device issue.

Source: koordinator pkg/scheduler/plugins/deviceshare.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from koordinator.api.kubescheduler import DeviceShareArgs
from koordinator.domain.gpu_request import CORE, MEMORY, RATIO, GpuRequest, GpuRequestError, gpu_request
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
from koordinator.scheduler.snapshot.nodes import GPU_MEMORY, GPU_RATIO

REASON = "Insufficient GPU Devices"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A node whose devices nobody reports is left to its kubelet: it passes and nothing is allocated."""

    axis: ResourceAxis
    pack: bool  # give out the fullest device that fits (MostAllocated) instead of the emptiest
    reads: ClassVar = Reads.PLACED

    def key(self, pod: PodClass) -> Hashable:
        return pod.demand

    def prefilter(self, _snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        request = self._request(pod)
        return Refusal(str(request)) if isinstance(request, GpuRequestError) else None

    def filters(self, _snapshot: Snapshot, pod: PodClass) -> bool:
        return isinstance(self._request(pod), GpuRequest)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        request = self._request(pod)
        if not isinstance(request, GpuRequest):
            return Rejections.none(snapshot)
        enough = _fitting(snapshot, request).sum(axis=1) >= request.count
        return Rejections.where(snapshot.gpu_known & ~enough, REASON)

    def reserve(self, node: Snapshot, pod: PodClass, wish: IntArray | None) -> Holding | Refusal:
        """Take the devices that the score plugin wished for, else by free share, lowest minor first."""
        request = self._request(pod)
        if not isinstance(request, GpuRequest) or not node.gpu_known[0]:
            return Holding()
        fitting = np.flatnonzero(_fitting(node, request)[0])
        if len(fitting) < request.count:
            return Refusal(REASON, resolvable=True)
        if wish is None:
            free = node.gpu_free[0, :, GPU_RATIO]
            wish = -free if self.pack else free
        minors = fitting[np.argsort(-wish[fitting], kind="stable")[: request.count]]
        total = node.gpu_total[0]
        devices = tuple((int(m), _complete(request, int(total[m, GPU_MEMORY]))) for m in sorted(minors))
        return Holding(devices=devices, annotations={ALLOCATED: annotation(devices)})

    def _request(self, pod: PodClass) -> GpuRequest | GpuRequestError | None:
        if DeviceShare not in pod.facts:
            names = self.axis.names
            try:
                request = gpu_request({names[column]: amount for column, amount in pod.demand})
            except GpuRequestError as error:
                pod.facts[DeviceShare] = error
            else:
                pod.facts[DeviceShare] = request
        known: GpuRequest | GpuRequestError | None = pod.facts[DeviceShare]
        return known


def _fitting(snapshot: Snapshot, request: GpuRequest) -> BoolArray:
    """Return ``(n, n_minors)``: the device exists, is healthy and has enough free."""
    fits: BoolArray = snapshot.gpu_total[:, :, GPU_RATIO] > 0
    for index, amount in enumerate(request.amounts):
        if amount:
            fits &= snapshot.gpu_free[:, :, index] >= amount
    return fits


def _complete(request: GpuRequest, total_memory: int) -> IntArray:
    """Return (core, memory, ratio) with the one of memory and ratio that was not asked for filled in."""
    memory, ratio = request.memory, request.ratio
    if memory and not ratio:
        ratio = memory * 100 // max(total_memory, 1)
    elif ratio and not memory:
        memory = ratio * total_memory // 100
    return np.array((request.core, memory, ratio), np.int64)


def annotation(devices: tuple[tuple[int, IntArray], ...]) -> str:
    """Return the text of the ``device-allocated`` annotation."""
    entries = []
    for minor, (core, memory, ratio) in devices:
        resources = {
            CORE: str(core),
            MEMORY: Quantity.from_int(int(memory), binary=True).canonical(),
            RATIO: str(ratio),
        }
        asked = {name: text for name, text in resources.items() if text != "0"}
        entries.append({"minor": minor, "resources": asked})
    return msgspec.json.encode({"gpu": entries}).decode()


def build(args: DeviceShareArgs, axis: ResourceAxis) -> DeviceShare:
    strategy = args.scoring_strategy
    return DeviceShare(axis, pack=strategy is not None and strategy.type == "MostAllocated")


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
