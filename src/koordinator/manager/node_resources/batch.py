"""Batch resources: what important pods leave unused, but for a margin.

usage            capacity - margin - max(system usage, reserved) - usage of important pods
request          capacity - margin - reserved - requests of important pods
maxUsageRequest  capacity - margin - max(system usage, reserved) - the larger of both of each pod

Source: koordinator pkg/slo-controller/noderesource/plugins/batchresource/plugin.go,
``calculateOnNode``; plugins/util/util.go, ``CalculateBatchResourceByPolicy``.
"""

from dataclasses import dataclass

from koordinator.api.node import Node
from koordinator.api.qos import PriorityBand
from koordinator.manager.configuration.resource_strategy import MAX_USAGE_REQUEST, REQUEST, Strategy
from koordinator.manager.node_resources.amounts import (
    CpuMemory,
    cpu_and_memory,
    giga,
    milli,
    plain,
    scaled_milli,
    scaled_units,
)
from koordinator.manager.node_resources.node import NodeUse, node_reserved, system_usage

_PERCENT = 100


@dataclass(frozen=True, slots=True)
class ProdClaims:
    """What important pods claim, in the sense of each policy."""

    requested: CpuMemory
    used: CpuMemory
    largest: CpuMemory  # sum of the larger of usage and request


@dataclass(frozen=True, slots=True)
class BatchTerms:
    """The amounts of the formulas, of a node or of one NUMA node."""

    strategy: Strategy
    capacity: CpuMemory
    system: CpuMemory
    reserved: CpuMemory
    claims: ProdClaims

    @property
    def margin(self) -> CpuMemory:
        """What is kept back; negative where more than everything may be given away."""
        strategy = self.strategy
        return CpuMemory(
            scaled_milli(self.capacity.cpu, (_PERCENT - strategy.cpu_reclaim_percent) / _PERCENT),
            scaled_units(
                self.capacity.memory, (_PERCENT - strategy.memory_reclaim_percent) / _PERCENT
            ),
        )

    def batch(self) -> CpuMemory:
        """Return what batch pods may have; each in nanos, CPU as CPU."""
        kept = self.capacity.minus(self.margin)
        busy = self.system.larger(self.reserved)
        claims, strategy = self.claims, self.strategy
        cpu_claim = claims.used if strategy.cpu_policy != MAX_USAGE_REQUEST else claims.largest
        cpu = max(kept.cpu - busy.cpu - cpu_claim.cpu, 0)
        if strategy.memory_policy == REQUEST:
            memory = kept.memory - self.reserved.memory - claims.requested.memory
        elif strategy.memory_policy == MAX_USAGE_REQUEST:
            memory = kept.memory - busy.memory - claims.largest.memory
        else:
            memory = kept.memory - busy.memory - claims.used.memory
        memory = max(memory, 0)
        if strategy.batch_cpu_percent is not None:
            ratio = strategy.batch_cpu_percent / _PERCENT
            cpu = min(cpu, scaled_milli(self.capacity.cpu, ratio))
        if strategy.batch_memory_percent is not None:
            ratio = strategy.batch_memory_percent / _PERCENT
            memory = min(memory, scaled_units(self.capacity.memory, ratio))
        return CpuMemory(cpu, memory)

    def cpu_message(self) -> str:
        """Return the sum in words, milli-CPU."""
        claims = self.claims
        name, claim = "podHPUsed", claims.used.cpu
        if self.strategy.cpu_policy == MAX_USAGE_REQUEST:
            name, claim = "podHPMaxUsedRequest", claims.largest.cpu
        capacity = milli(self.capacity.cpu)
        sum_ = (
            f"nodeCapacity:{capacity} - nodeSafetyMargin:{milli(self.margin.cpu)} - "
            f"systemUsageOrNodeReserved:{milli(max(self.system.cpu, self.reserved.cpu))} - "
            f"{name}:{milli(claim)}"
        )
        limited = _limited(sum_, capacity, self.strategy.batch_cpu_percent)
        return f"batchAllocatable[CPU(Milli-Core)]:{milli(self.batch().cpu)} = {limited}"

    def memory_message(self) -> str:
        """Return the sum in words, in 10^9 bytes."""
        claims, limit = self.claims, self.strategy.batch_memory_percent
        busy_name, busy = "systemUsage", max(self.system.memory, self.reserved.memory)
        if self.strategy.memory_policy == REQUEST:
            name, claim = "podHPRequest", claims.requested.memory
            busy_name, busy = "nodeReserved", self.reserved.memory
        elif self.strategy.memory_policy == MAX_USAGE_REQUEST or limit is not None:
            name, claim = "podHPMaxUsedRequest", claims.largest.memory
        else:
            name, claim = "podHPUsed", claims.used.memory
        capacity = giga(self.capacity.memory)
        sum_ = (
            f"nodeCapacity:{capacity} - nodeSafetyMargin:{giga(self.margin.memory)} - "
            f"{busy_name}:{giga(busy)} - {name}:{giga(claim)}"
        )
        limited = _limited(sum_, capacity, limit)
        return f"batchAllocatable[Mem(GB)]:{giga(self.batch().memory)} = {limited}"


def batch_terms(strategy: Strategy, node: Node, use: NodeUse) -> BatchTerms:
    """Return the terms of a whole node.

    A pod without usage counts with its request, but not in the largest of both: so the original.
    """
    requested_cpu = requested_memory = used_cpu = used_memory = largest_cpu = largest_memory = 0
    for pod in use.pods:
        if pod.is_low:
            continue
        cpu, memory = pod.request
        requested_cpu += cpu
        requested_memory += memory
        usage = use.usages.get(pod.key)
        if usage is None:
            used_cpu += cpu
            used_memory += memory
            continue
        used_cpu += cpu if pod.keeps_cpus else usage.cpu
        used_memory += usage.memory
        largest_cpu += max(cpu, usage.cpu)
        largest_memory += max(memory, usage.memory)
    used, largest = CpuMemory(used_cpu, used_memory), CpuMemory(largest_cpu, largest_memory)
    for usage in use.dangling:
        used, largest = used.plus(usage), largest.plus(usage)
    return BatchTerms(
        strategy=strategy,
        capacity=cpu_and_memory(node.status.capacity),
        system=system_usage(use, PriorityBand.BATCH),
        reserved=node_reserved(node),
        claims=ProdClaims(CpuMemory(requested_cpu, requested_memory), used, largest),
    )


def _limited(sum_: str, capacity: int, percent: int | None) -> str:
    if percent is None:
        return sum_
    return f"min(nodeCapacity:{capacity} * thresholdRatio:{plain(percent / _PERCENT)}, {sum_})"
