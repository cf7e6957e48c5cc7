"""Batch resources of the NUMA nodes of a node, which the report doesn't tell apart.

What belongs to nobody in particular is split evenly, and what pods use over the NUMA nodes that
they were given.
Source: koordinator pkg/slo-controller/noderesource/plugins/batchresource/plugin.go,
``calculateOnNUMALevel``; plugins/util/util.go, ``GetPodNUMARequestAndUsage``,
``UpdateNRTZoneListIfNeeded``.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology, Zone, ZoneResource
from koordinator.api.qos import PriorityBand
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordinator.foundation.quantity import Notation, Quantity
from koordinator.manager.configuration.resource_strategy import Strategy
from koordinator.manager.node_resources.amounts import (
    ZERO,
    CpuMemory,
    cpu_and_memory,
    milli,
)
from koordinator.manager.node_resources.batch import BatchTerms, ProdClaims
from koordinator.manager.node_resources.difference import is_different
from koordinator.manager.node_resources.node import (
    NodePod,
    NodeUse,
    node_reserved,
    system_usage,
)

_COUNTED = frozenset((CPU, MEMORY))


def has_zones(topology: NodeResourceTopology) -> bool:
    """Return whether any zone has CPUs or memory; nothing is written otherwise."""
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
            claims=ProdClaims(requested[i], used[i], largest[i]),
        )
        for i, zone in enumerate(topology.zones)
    ]


def zone_amounts(terms: Sequence[BatchTerms], cpu_ratio: float) -> list[dict[str, Quantity]]:
    """Return what the zones show; CPUs that are worth more are more."""
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
    """Return the zones with what differs enough in place; the very same if nothing does."""
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
    """Return the zones of a pod, and by how much it is divided; ids that can't be don't count.

    An id that is named twice divides twice: so the original.
    """
    known = [each for each in pod.numa_nodes if 0 <= each < zones]
    return (sorted(set(known)), len(known)) if known else (range(zones), zones)
