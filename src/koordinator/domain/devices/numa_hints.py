"""What a claim prefers of a node's NUMA nodes.

Source: koordinator pkg/scheduler/plugins/deviceshare/topology_hint.go, ``generateTopologyHints``.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import Allocation
from koordinator.domain.devices.amounts import IntArray
from koordinator.domain.devices.plan import DevicePlan
from koordinator.domain.devices.room import Room
from koordinator.domain.devices.shortage import NO_NUMA_NODE, Shortage

#: Of NUMA nodes with the GPUs that would be taken anyway; more than CPU and memory ever get.
SAME_GPUS = 500


@dataclass(frozen=True, slots=True)
class NumaHint:
    """NUMA nodes that have room, for each type of device that is asked for."""

    nodes: tuple[int, ...]
    preferred: bool  # no fewer nodes would do
    score: int


def numa_hints(
    plan: DevicePlan, rooms: Mapping[DeviceType, Room], totals: Mapping[DeviceType, IntArray]
) -> tuple[NumaHint, ...] | Shortage:
    """Return the sets of NUMA nodes with room, small ones first, or what a whole node lacks.

    None at all if no device is on a NUMA node: then the claim has no opinion.
    """
    found: list[tuple[tuple[int, ...], Allocation]] = []
    whole: Allocation | Shortage = {}
    for nodes in _subsets(plan.model.numa_nodes):
        whole = _allocation(plan, rooms, totals, nodes)
        if not isinstance(whole, Shortage):
            found.append((nodes, whole))
    if isinstance(whole, Shortage):  # the last one was of all NUMA nodes
        return whole
    fewest = min((len(nodes) for nodes, _ in found), default=0)
    return tuple(
        NumaHint(
            nodes=nodes,
            preferred=len(nodes) == fewest,
            score=SAME_GPUS if _gpus(allocation) == _gpus(whole) else 0,
        )
        for nodes, allocation in found
    )


def _allocation(
    plan: DevicePlan,
    rooms: Mapping[DeviceType, Room],
    totals: Mapping[DeviceType, IntArray],
    nodes: Collection[int],
) -> Allocation | Shortage:
    for part in plan.early:
        there = sum(device.numa in nodes for device in part.group.devices)
        if 0 < there < part.count:
            return NO_NUMA_NODE
    return plan.allocate(rooms, totals, numa=nodes, early=True)


def _subsets(nodes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the subsets by size, then in lexicographic order; not the empty one."""
    for size in range(1, len(nodes) + 1):
        yield from combinations(nodes, size)


def _gpus(allocation: Allocation) -> set[int]:
    return {taken.minor for taken in allocation.get(DeviceType.GPU, ())}
