"""Mid resources: reclaimable requests of prod pods, and a part of the unallocated capacity.

unallocated  capacity - reserved - requests of all but mid, batch and free pods, at least 0
mid          min(min(reclaimable, unused) + part of unallocated, part of capacity)

Source: koordinator pkg/slo-controller/noderesource/plugins/midresource/plugin.go;
plugins/util/util.go, ``CalculateMidResourceByPolicy``, ``CalculateMidResourceByStaticMode``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from koordinator.api.node import Node
from koordinator.api.qos import PriorityBand
from koordinator.manager.configuration.defaults import Strategy
from koordinator.manager.node_resources.node import (
    ZERO,
    CpuMemory,
    NodeUse,
    cpu_and_memory,
    giga,
    milli,
    node_reserved,
    plain,
    system_usage,
    units,
)

_PERCENT = 100
_GIGA = 10**9


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
