"""Batch resources of a node and of its NUMA nodes: the unused part of prod pods, minus a margin.

usage            capacity - margin - max(system usage, reserved) - usage of prod pods
request          capacity - margin - reserved - requests of prod pods
maxUsageRequest  capacity - margin - max(system usage, reserved) - the larger of both of each pod

A NodeMetric has no figures per NUMA node: shared usage is split evenly, usage of a pod over the
NUMA nodes that were allocated to it.
Source: koordinator pkg/slo-controller/noderesource/plugins/batchresource/plugin.go,
``calculateOnNode``, ``calculateOnNUMALevel``; plugins/util/util.go,
``CalculateBatchResourceByPolicy``, ``GetPodNUMARequestAndUsage``, ``UpdateNRTZoneListIfNeeded``.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from koordinator.api.node import Node, NodeResourceTopology, Zone, ZoneResource
from koordinator.api.qos import PriorityBand
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Notation, Quantity
from koordinator.manager.configuration.ranges import MAX_USAGE_REQUEST, REQUEST, Strategy
from koordinator.manager.node_resources.node import (
    ZERO,
    CpuMemory,
    NodePod,
    NodeUse,
    cpu_and_memory,
    giga,
    milli,
    node_reserved,
    plain,
    scaled_milli,
    scaled_units,
    system_usage,
)

_PERCENT = 100

_COUNTED = frozenset((CPU, MEMORY))


def is_different(old: Quantity | None, new: Quantity | None, difference: float) -> bool:
    """Return whether the amounts differ by more than the fraction ``difference`` of the old one.

    A missing amount differs from any present one.
    """
    if old is None or new is None:
        return old is not new
    return abs(new.milli() - old.milli()) > old.milli() * difference


@dataclass(frozen=True, slots=True)
class ProdDemand:
    """Resources that prod and mid pods need, under each calculation policy."""

    requested: CpuMemory
    used: CpuMemory
    largest: CpuMemory  # sum of the larger of usage and request


@dataclass(frozen=True, slots=True)
class BatchTerms:
    """Terms of the formulas, for a node or one NUMA node."""

    strategy: Strategy
    capacity: CpuMemory
    system: CpuMemory
    reserved: CpuMemory
    prod: ProdDemand

    @property
    def margin(self) -> CpuMemory:
        """The safety margin; negative if the reclaim percentage is above 100."""
        strategy = self.strategy
        return CpuMemory(
            scaled_milli(self.capacity.cpu, (_PERCENT - strategy.cpu_reclaim_percent) / _PERCENT),
            scaled_units(
                self.capacity.memory, (_PERCENT - strategy.memory_reclaim_percent) / _PERCENT
            ),
        )

    def batch(self) -> CpuMemory:
        """Return the batch resources in nanos of a CPU and of a byte."""
        kept = self.capacity.minus(self.margin)
        busy = self.system.larger(self.reserved)
        prod, strategy = self.prod, self.strategy
        demand = prod.used if strategy.cpu_policy != MAX_USAGE_REQUEST else prod.largest
        cpu = max(kept.cpu - busy.cpu - demand.cpu, 0)
        if strategy.memory_policy == REQUEST:
            memory = kept.memory - self.reserved.memory - prod.requested.memory
        elif strategy.memory_policy == MAX_USAGE_REQUEST:
            memory = kept.memory - busy.memory - prod.largest.memory
        else:
            memory = kept.memory - busy.memory - prod.used.memory
        memory = max(memory, 0)
        if strategy.batch_cpu_percent is not None:
            ratio = strategy.batch_cpu_percent / _PERCENT
            cpu = min(cpu, scaled_milli(self.capacity.cpu, ratio))
        if strategy.batch_memory_percent is not None:
            ratio = strategy.batch_memory_percent / _PERCENT
            memory = min(memory, scaled_units(self.capacity.memory, ratio))
        return CpuMemory(cpu, memory)

    def cpu_message(self) -> str:
        """Return the CPU formula with its terms, in milli-CPU."""
        prod = self.prod
        name, demand = "podHPUsed", prod.used.cpu
        if self.strategy.cpu_policy == MAX_USAGE_REQUEST:
            name, demand = "podHPMaxUsedRequest", prod.largest.cpu
        capacity = milli(self.capacity.cpu)
        sum_ = (
            f"nodeCapacity:{capacity} - nodeSafetyMargin:{milli(self.margin.cpu)} - "
            f"systemUsageOrNodeReserved:{milli(max(self.system.cpu, self.reserved.cpu))} - "
            f"{name}:{milli(demand)}"
        )
        limited = _limited(sum_, capacity, self.strategy.batch_cpu_percent)
        return f"batchAllocatable[CPU(Milli-Core)]:{milli(self.batch().cpu)} = {limited}"

    def memory_message(self) -> str:
        """Return the memory formula with its terms, in 10^9 bytes."""
        prod, limit = self.prod, self.strategy.batch_memory_percent
        busy_name, busy = "systemUsage", max(self.system.memory, self.reserved.memory)
        if self.strategy.memory_policy == REQUEST:
            name, demand = "podHPRequest", prod.requested.memory
            busy_name, busy = "nodeReserved", self.reserved.memory
        elif self.strategy.memory_policy == MAX_USAGE_REQUEST or limit is not None:
            name, demand = "podHPMaxUsedRequest", prod.largest.memory
        else:
            name, demand = "podHPUsed", prod.used.memory
        capacity = giga(self.capacity.memory)
        sum_ = (
            f"nodeCapacity:{capacity} - nodeSafetyMargin:{giga(self.margin.memory)} - "
            f"{busy_name}:{giga(busy)} - {name}:{giga(demand)}"
        )
        limited = _limited(sum_, capacity, limit)
        return f"batchAllocatable[Mem(GB)]:{giga(self.batch().memory)} = {limited}"


def batch_terms(strategy: Strategy, node: Node, use: NodeUse) -> BatchTerms:
    """Return the terms of a whole node.

    As in the original, a pod without usage counts with its request, but not in ``largest``.
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
        prod=ProdDemand(CpuMemory(requested_cpu, requested_memory), used, largest),
    )


def _limited(sum_: str, capacity: int, percent: int | None) -> str:
    if percent is None:
        return sum_
    return f"min(nodeCapacity:{capacity} * thresholdRatio:{plain(percent / _PERCENT)}, {sum_})"


def has_zones(topology: NodeResourceTopology) -> bool:
    """Return whether any zone has CPUs or memory; a topology without them is not written."""
    return any(r.name in _COUNTED for zone in topology.zones for r in zone.resources)


def zone_terms(
    strategy: Strategy, node: Node, topology: NodeResourceTopology, use: NodeUse
) -> list[BatchTerms]:
    """Return the terms of every zone, in order; zone i is NUMA node i."""
    zones = len(topology.zones)
    requested, used, largest = ([ZERO] * zones for _ in range(3))
    for pod in use.pods:
        if pod.is_low:
            continue
        usage = use.usages.get(pod.key)
        shares, parts = _shares(pod, zones)
        request = pod.request.divided(parts)
        use_part = request if usage is None else usage.divided(parts)
        counted = CpuMemory(request.cpu, use_part.memory) if pod.keeps_cpus else use_part
        for zone in shares:
            requested[zone] = requested[zone].plus(request)
            used[zone] = used[zone].plus(counted)
            largest[zone] = largest[zone].plus(request.larger(use_part))
    for usage in use.dangling:
        part = usage.divided(zones)
        used = [each.plus(part) for each in used]
        largest = [each.plus(part) for each in largest]
    system = system_usage(use, PriorityBand.BATCH).divided(zones)
    reserved = node_reserved(node).divided(zones)
    return [
        BatchTerms(
            strategy=strategy,
            capacity=cpu_and_memory({r.name: r.allocatable for r in zone.resources}),
            system=system,
            reserved=reserved,
            prod=ProdDemand(requested[i], used[i], largest[i]),
        )
        for i, zone in enumerate(topology.zones)
    ]


def zone_amounts(terms: Sequence[BatchTerms], cpu_ratio: float) -> list[dict[str, Quantity]]:
    """Return the batch resources that each zone publishes, with normalized CPU."""
    shown = []
    for each in terms:
        batch = each.batch()
        cpu = Quantity.from_int(milli(batch.cpu))
        if cpu_ratio > 1:
            cpu = Quantity.from_milli(int(cpu.milli() * cpu_ratio))
        shown.append({BATCH_CPU: cpu, BATCH_MEMORY: Quantity(batch.memory, Notation.BINARY_SI)})
    return shown


def with_amounts(
    zones: Sequence[Zone], amounts: Sequence[dict[str, Quantity]], difference: float
) -> tuple[Zone, ...]:
    """Return the zones with the amounts that differ enough; equal zones if none does."""
    return tuple(
        _with_amounts(zone, wanted, difference) for zone, wanted in zip(zones, amounts, strict=True)
    )


def _with_amounts(zone: Zone, wanted: dict[str, Quantity], difference: float) -> Zone:
    resources = list(zone.resources)
    for name, amount in wanted.items():
        place = next((i for i, each in enumerate(resources) if each.name == name), None)
        if place is None:
            new = ZoneResource(name=name, capacity=amount, allocatable=amount, available=amount)
            resources = sorted([*resources, new], key=lambda each: each.name)
            continue
        old = resources[place]
        resources[place] = replace(
            old,
            capacity=_changed(old.capacity, amount, difference),
            allocatable=_changed(old.allocatable, amount, difference),
            available=_changed(old.available, amount, difference),
        )
    return replace(zone, resources=tuple(resources))


def _changed(old: Quantity, new: Quantity, difference: float) -> Quantity:
    return new if is_different(old, new, difference) else old


def _shares(pod: NodePod, zones: int) -> tuple[Sequence[int], int]:
    """Return the zones of a pod, and the divisor of its amounts; unknown NUMA IDs are ignored.

    As in the original, a repeated ID increases the divisor.
    """
    known = [each for each in pod.numa_nodes if 0 <= each < zones]
    return (sorted(set(known)), len(known)) if known else (range(zones), zones)
