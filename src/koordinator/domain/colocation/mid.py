"""Mid resources: what prod pods have requested and will hardly use, and a part of the rest.

unallocated  capacity - reserved - requests of all but mid, batch and free pods, at least 0
mid          min(min(reclaimable, unused) + part of unallocated, part of capacity)

Source: koordinator pkg/slo-controller/noderesource/plugins/midresource/plugin.go;
plugins/util/util.go, ``CalculateMidResourceByPolicy``, ``CalculateMidResourceByStaticMode``.
"""

from dataclasses import dataclass

from koordinator.api.node import Node
from koordinator.api.qos import PriorityBand
from koordinator.domain.colocation.amounts import (
    ZERO,
    CpuMemory,
    cpu_and_memory,
    giga,
    milli,
    plain,
    units,
)
from koordinator.domain.colocation.node import NodeUse, node_reserved, system_usage
from koordinator.domain.colocation.strategy import Strategy

_PERCENT = 100
_GIGA = 10**9


@dataclass(frozen=True, slots=True)
class MidAmounts:
    """Milli-CPU and bytes, and how they came about."""

    cpu_milli: int
    memory_bytes: int
    cpu_message: str
    memory_message: str


def mid_amounts(strategy: Strategy, node: Node, use: NodeUse) -> MidAmounts:
    """Return what mid pods may have of a node."""
    capacity = cpu_and_memory(node.status.capacity)
    if strategy.mid_is_static:
        return _static(strategy, capacity)
    reserved = system_usage(use, PriorityBand.MID).larger(node_reserved(node))
    allocated = ZERO
    for pod in use.pods:
        if not pod.is_low and pod.band is not PriorityBand.MID:
            allocated = allocated.plus(pod.request)
    unallocated = capacity.minus(reserved).minus(allocated).larger(ZERO)
    unused = capacity.minus(use.node) if use.node is not None else ZERO
    ratio = strategy.mid_unallocated_percent / _PERCENT
    cpu_ratio = strategy.mid_cpu_percent / _PERCENT
    memory_ratio = strategy.mid_memory_percent / _PERCENT
    cpu = _default(milli(use.reclaimable.cpu), milli(unused.cpu), milli(unallocated.cpu), ratio)
    memory = _default(
        units(use.reclaimable.memory), units(unused.memory), units(unallocated.memory), ratio
    )
    cpu = min(cpu, int(milli(capacity.cpu) * cpu_ratio))
    memory = min(memory, int(units(capacity.memory) * memory_ratio))
    return MidAmounts(
        cpu,
        memory,
        f"midAllocatable[CPU(milli-core)]:{cpu} = min(min("
        f"ProdReclaimable:{milli(use.reclaimable.cpu)}, NodeUnused:{milli(unused.cpu)}) + "
        f"Unallocated:{milli(unallocated.cpu)} * midUnallocatedRatio:{plain(ratio)}, "
        f"NodeCapacity:{milli(capacity.cpu)} * thresholdRatio:{plain(cpu_ratio)})",
        f"midAllocatable[Memory(GB)]:{_giga(memory)} = min(min("
        f"ProdReclaimable:{giga(use.reclaimable.memory)}, NodeUnused:{giga(unused.memory)}) + "
        f"Unallocated:{giga(unallocated.memory)} * midUnallocatedRatio:{plain(ratio)}, "
        f"NodeCapacity:{giga(capacity.memory)} * thresholdRatio:{plain(memory_ratio)})",
    )


def _default(reclaimable: int, unused: int, unallocated: int, ratio: float) -> int:
    return max(min(reclaimable, unused), 0) + int(unallocated * ratio)


def _static(strategy: Strategy, capacity: CpuMemory) -> MidAmounts:
    cpu_part = strategy.mid_static_cpu_percent / _PERCENT
    memory_part = strategy.mid_static_memory_percent / _PERCENT
    cpu_most = strategy.mid_cpu_percent / _PERCENT
    memory_most = strategy.mid_memory_percent / _PERCENT
    cpu_capacity, memory_capacity = milli(capacity.cpu), units(capacity.memory)
    cpu = min(int(cpu_capacity * cpu_part), int(cpu_capacity * cpu_most))
    memory = min(int(memory_capacity * memory_part), int(memory_capacity * memory_most))
    return MidAmounts(
        cpu,
        memory,
        f"midAllocatable[CPU(milli-core)]:{cpu} = min("
        f"nodeCapacity:{cpu_capacity} * staticReservedPercent:{plain(cpu_part)}, "
        f"nodeCapacity:{cpu_capacity} * thresholdRatio:{plain(cpu_most)})",
        f"midAllocatable[Memory(GB)]:{_giga(memory)} = min("
        f"nodeCapacity:{giga(capacity.memory)} * staticReservedPercent:{plain(memory_part)}, "
        f"nodeCapacity:{giga(capacity.memory)} * thresholdRatio:{plain(memory_most)})",
    )


def _giga(amount: int) -> int:
    return -(-amount // _GIGA)
