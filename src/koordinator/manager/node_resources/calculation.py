"""Resources that a node should publish, from its usage, devices and CPU model.

Mid resources are reclaimable requests of prod pods, and a part of the unallocated capacity.

unallocated  capacity - reserved - requests of all but mid, batch and free pods, at least 0
mid          min(min(reclaimable, unused) + part of unallocated, part of capacity)

Source: koordinator pkg/slo-controller/noderesource/framework, plugins; koordinator
pkg/slo-controller/noderesource/plugins/midresource/plugin.go; plugins/util/util.go,
``CalculateMidResourceByPolicy``, ``CalculateMidResourceByStaticMode``.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from enum import StrEnum
from typing import Final

from koordinator.api.annotations.node import read_cpu_normalization_ratio
from koordinator.api.annotations.numa import CPU_BASIC_INFO
from koordinator.api.core import ResourceList
from koordinator.api.device import Device, DeviceInfo, DeviceType
from koordinator.api.labels import (
    CPU_NORMALIZATION_ENABLED,
    GPU_DRIVER_VERSION,
    GPU_MODEL,
    GPU_VENDOR,
    GpuVendor,
)
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.node_metric import NodeMetric
from koordinator.api.qos import PriorityBand
from koordinator.api.resource_names import GPU, GPU_CORE, GPU_SHARED, RDMA, WHOLE_DEVICE
from koordinator.domain.devices.allocation import NAMES
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.manager.configuration.ranges import Strategy
from koordinator.manager.configuration.strategies import NodeStrategies
from koordinator.manager.node_resources.batch import BatchTerms, batch_terms, has_zones, zone_terms
from koordinator.manager.node_resources.node import (
    ZERO,
    CpuMemory,
    NodePod,
    NodeUse,
    cpu_and_memory,
    giga,
    milli,
    node_reserved,
    node_use,
    plain,
    system_usage,
    units,
)
from koordinator.manager.node_resources.ratios import (
    NEUTRAL,
    amplification_ratios,
    normalization_ratio,
    round_ratio,
)

_PERCENT = 100
_GIGA = 10**9

#: All GPU resources, including resources of single vendors.
GPU_RESOURCES: Final = (GPU, *NAMES[DeviceType.GPU], GPU_SHARED)
GPU_LABELS: Final = (GPU_VENDOR, GPU_MODEL, GPU_DRIVER_VERSION)
_WRAPPED = frozenset(("", GpuVendor.NVIDIA))  # vendors whose GPUs are also published as one name

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class NodePlugin(StrEnum):
    """Plugin names of the flag ``--noderesource-plugins``."""

    MID = "MidResource"
    BATCH = "BatchResource"
    NORMALIZATION = "CPUNormalization"
    AMPLIFICATION = "ResourceAmplification"
    GPU = "GPUDeviceResource"
    RDMA = "RDMADeviceResource"


@dataclass(frozen=True, slots=True)
class MidTerms:
    """Terms of the formulas.  In static mode, only the strategy and the capacity are used."""

    strategy: Strategy
    capacity: CpuMemory
    reclaimable: CpuMemory = ZERO
    unused: CpuMemory = ZERO
    unallocated: CpuMemory = ZERO

    @property
    def cpu_milli(self) -> int:
        """Mid CPU in milli-CPU."""
        strategy, capacity = self.strategy, milli(self.capacity.cpu)
        most = int(capacity * (strategy.mid_cpu_percent / _PERCENT))
        if strategy.mid_is_static:
            return min(int(capacity * (strategy.mid_static_cpu_percent / _PERCENT)), most)
        base = _reclaimable(milli(self.reclaimable.cpu), milli(self.unused.cpu))
        return min(base + int(milli(self.unallocated.cpu) * self._ratio), most)

    @property
    def memory_bytes(self) -> int:
        """Mid memory in bytes."""
        strategy, capacity = self.strategy, units(self.capacity.memory)
        most = int(capacity * (strategy.mid_memory_percent / _PERCENT))
        if strategy.mid_is_static:
            return min(int(capacity * (strategy.mid_static_memory_percent / _PERCENT)), most)
        base = _reclaimable(units(self.reclaimable.memory), units(self.unused.memory))
        return min(base + int(units(self.unallocated.memory) * self._ratio), most)

    def cpu_message(self) -> str:
        """Return the CPU formula with its terms, in milli-CPU."""
        percents = self.strategy.mid_static_cpu_percent, self.strategy.mid_cpu_percent
        return self._message(
            "CPU(milli-core)", self.cpu_milli, lambda amounts: milli(amounts.cpu), percents
        )

    def memory_message(self) -> str:
        """Return the memory formula with its terms, in 10^9 bytes."""
        percents = self.strategy.mid_static_memory_percent, self.strategy.mid_memory_percent
        return self._message(
            "Memory(GB)",
            -(-self.memory_bytes // _GIGA),
            lambda amounts: giga(amounts.memory),
            percents,
        )

    def _message(
        self, name: str, result: int, shown: Callable[[CpuMemory], int], percents: tuple[int, int]
    ) -> str:
        static, most = (plain(percent / _PERCENT) for percent in percents)
        head, capacity = f"midAllocatable[{name}]:{result} = min(", shown(self.capacity)
        if self.strategy.mid_is_static:
            return (
                f"{head}nodeCapacity:{capacity} * staticReservedPercent:{static}, "
                f"nodeCapacity:{capacity} * thresholdRatio:{most})"
            )
        return (
            f"{head}min(ProdReclaimable:{shown(self.reclaimable)}, "
            f"NodeUnused:{shown(self.unused)}) + Unallocated:{shown(self.unallocated)} * "
            f"midUnallocatedRatio:{plain(self._ratio)}, "
            f"NodeCapacity:{capacity} * thresholdRatio:{most})"
        )

    @property
    def _ratio(self) -> float:
        return self.strategy.mid_unallocated_percent / _PERCENT


def mid_terms(strategy: Strategy, node: Node, use: NodeUse) -> MidTerms:
    """Return the terms of a node."""
    capacity = cpu_and_memory(node.status.capacity)
    if strategy.mid_is_static:
        return MidTerms(strategy, capacity)
    reserved = system_usage(use, PriorityBand.MID).larger(node_reserved(node))
    cpu = capacity.cpu - reserved.cpu
    memory = capacity.memory - reserved.memory
    for pod in use.pods:
        if not pod.is_low and pod.band is not PriorityBand.MID:
            cpu -= pod.request.cpu
            memory -= pod.request.memory
    return MidTerms(
        strategy=strategy,
        capacity=capacity,
        reclaimable=use.reclaimable,
        unused=capacity.minus(use.node) if use.node is not None else ZERO,
        unallocated=CpuMemory(max(cpu, 0), max(memory, 0)),
    )


def _reclaimable(reclaimable: int, unused: int) -> int:
    return max(min(reclaimable, unused), 0)


def gpu_resources(device: Device | None, *, shows_shared: bool) -> ResourceList | None:
    """Return the sum of the healthy GPUs; None without any.

    ``shows_shared`` is the gate EnableSyncGPUSharedResource.
    """
    gpus = _healthy(device, DeviceType.GPU)
    if device is None or not gpus:
        return None
    sums: ResourceList = {}
    for gpu in gpus:
        for name, amount in gpu.resources.items():
            if name in GPU_RESOURCES:
                sums[name] = sums[name] + amount if name in sums else amount
    if device.metadata.labels.get(GPU_VENDOR, "") in _WRAPPED:
        sums[GPU] = sums.get(GPU_CORE, Quantity(0))
    if shows_shared:
        sums[GPU_SHARED] = Quantity.from_int(len(gpus) * WHOLE_DEVICE)
    return sums


def gpu_labels(device: Device | None) -> dict[str, str]:
    """Return the labels that are copied to the node; empty without healthy GPUs."""
    if device is None or not _healthy(device, DeviceType.GPU):
        return {}
    labels = device.metadata.labels
    return {key: labels[key] for key in GPU_LABELS if key in labels}


def rdma_resources(device: Device | None) -> ResourceList | None:
    """Return the sum of the healthy RDMA cards; None without any."""
    cards = _healthy(device, DeviceType.RDMA)
    return {RDMA: Quantity.from_int(len(cards) * WHOLE_DEVICE)} if cards else None


def _healthy(device: Device | None, kind: DeviceType) -> list[DeviceInfo]:
    if device is None:
        return []
    return [each for each in device.spec.devices if each.type == kind and each.health]


ALL_PLUGINS: Final = frozenset(NodePlugin)


@dataclass(frozen=True, slots=True)
class ManagedNode:
    """A node with its NodeMetric, pods, topology and devices."""

    node: Node
    metric: NodeMetric | None = None
    pods: Sequence[NodePod] = ()
    topology: NodeResourceTopology | None = None
    device: Device | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResourceResult:
    """Resources that a node should publish.  Only fields of ``plugins`` are applied.

    None removes batch, mid and device resources and the amplification annotation; it keeps the
    normalization annotation.
    """

    plugins: AbstractSet[NodePlugin]
    batch: BatchTerms | None = None
    zones: Sequence[BatchTerms] = ()
    mid: MidTerms | None = None
    normalization: float | None = None
    amplification: dict[str, float] | None = None
    gpus: ResourceList | None = None
    gpu_labels: dict[str, str] = field(default_factory=dict)
    rdma: ResourceList | None = None
    degrades_s: float | None = None  # time at which the NodeMetric expires
    problems: Sequence[tuple[NodePlugin, str]] = ()


def calculate(
    view: ManagedNode,
    strategy: Strategy,
    strategies: NodeStrategies,
    plugins: AbstractSet[NodePlugin],
    now_s: float,
    *,
    shows_shared_gpus: bool = False,
) -> NodeResourceResult:
    """Return the resources that a colocated node should publish."""
    problems: list[tuple[NodePlugin, str]] = []
    normalization = amplification = None
    if NodePlugin.NORMALIZATION in plugins:
        try:
            normalization = _normalization(view, strategies)
        except InputError as error:
            problems.append((NodePlugin.NORMALIZATION, str(error)))
    if NodePlugin.AMPLIFICATION in plugins:
        try:
            amplification = _amplification(view.node, strategies)
        except InputError as error:
            problems.append((NodePlugin.AMPLIFICATION, str(error)))
    use, degrades_s = _use(view, strategy, now_s)
    batch, zones, mid = None, list[BatchTerms](), None
    if use is not None and NodePlugin.MID in plugins and view.node.status.allocatable:
        mid = mid_terms(strategy, view.node, use)
    if use is not None and NodePlugin.BATCH in plugins:
        batch = batch_terms(strategy, view.node, use)
        if view.topology is not None and has_zones(view.topology):
            zones = zone_terms(strategy, view.node, view.topology, use)
    return NodeResourceResult(
        plugins=plugins,
        batch=batch,
        zones=zones,
        mid=mid,
        normalization=normalization,
        amplification=amplification,
        gpus=gpu_resources(view.device, shows_shared=shows_shared_gpus),
        gpu_labels=gpu_labels(view.device),
        rdma=rdma_resources(view.device),
        degrades_s=degrades_s,
        problems=problems,
    )


def reset(plugins: AbstractSet[NodePlugin]) -> NodeResourceResult:
    """Return the result for a node that is not colocated; devices and normalization are kept."""
    kept = {NodePlugin.NORMALIZATION, NodePlugin.GPU, NodePlugin.RDMA}
    return NodeResourceResult(plugins=plugins - kept)


def _use(
    view: ManagedNode, strategy: Strategy, now_s: float
) -> tuple[NodeUse | None, float | None]:
    """Return the usage and its expiry; None if the NodeMetric is missing or expired."""
    status = view.metric.status if view.metric is not None else None
    if status is None or status.update_time is None or status.node_metric is None:
        return None, None
    degrades_s = to_epoch_s(status.update_time) + strategy.degrade_s
    if now_s > degrades_s:
        return None, None
    return node_use(status, view.pods), degrades_s


def _normalization(view: ManagedNode, strategies: NodeStrategies) -> float:
    """Return the CPU normalization ratio, rounded to two decimals as in the annotation.

    Raises InputError if the configuration, the label or the CPU model gives none.
    """
    strategy = strategies.normalization
    if strategy is None:
        raise InputError("there is no valid configuration of CPU normalization")
    labelled = view.node.metadata.labels.get(CPU_NORMALIZATION_ENABLED)
    if labelled is not None and labelled not in _TRUE | _FALSE:
        raise InputError(
            f"must be true or false, got {labelled!r}",
            path=f"metadata.labels[{CPU_NORMALIZATION_ENABLED}]",
        )
    if not (labelled in _TRUE if labelled is not None else strategy.enable):
        return NEUTRAL
    topology = view.topology
    info = CPU_BASIC_INFO.read(topology.metadata) if topology is not None else None
    if info is None:
        raise InputError(f"the CPU model is unknown: {CPU_BASIC_INFO.path} is missing")
    return round_ratio(normalization_ratio(strategy, info))


def _amplification(node: Node, strategies: NodeStrategies) -> dict[str, float] | None:
    """Return the amplification ratios; None without any.  Raises InputError for invalid ratios."""
    strategy = strategies.amplification
    if strategy is None:
        raise InputError("there is no valid configuration of resource amplification")
    configured = strategy.resource_amplification_ratio if strategy.enable else {}
    current = read_cpu_normalization_ratio(node.metadata)
    return amplification_ratios(configured, current) or None
