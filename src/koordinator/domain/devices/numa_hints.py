"""What a claim prefers of a node's NUMA nodes.

Source: koordinator pkg/scheduler/plugins/deviceshare/topology_hint.go, ``generateTopologyHints``.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from koordinator.api.device import DeviceType
from koordinator.domain.devices.amounts import IntArray
from koordinator.domain.devices.plan import DevicePlan, State
from koordinator.domain.devices.room import Room
from koordinator.domain.devices.shortage import NO_NUMA_NODE, Shortage
from koordinator.domain.numa.masks import subsets, zones_of

#: Of NUMA nodes with the GPUs that would be taken anyway; more than CPU and memory ever get.
SAME_GPUS = 500


class NumaHint(NamedTuple):
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

    def gpus_on(nodes: Collection[int]) -> frozenset[int] | Shortage:
        allocation = plan.allocate(rooms, totals, numa=nodes, early=True)
        if isinstance(allocation, Shortage):
            return allocation
        return frozenset(taken.minor for taken in allocation.get(DeviceType.GPU, ()))

    return _hints(plan, gpus_on)


class NumaHintTable:
    """The same for many nodes of one model: answers are remembered by state."""

    def __init__(self, plan: DevicePlan) -> None:
        self._plan = plan
        self._answers: dict[State, tuple[NumaHint, ...] | Shortage] = {}

    def of(self, state: State) -> tuple[NumaHint, ...] | Shortage:
        """Return the hints on a node in that state; a plan that ``never`` works has none."""
        known = self._answers.get(state)
        if known is None:
            known = self._answers[state] = self._of(state)
        return known

    def _of(self, state: State) -> tuple[NumaHint, ...] | Shortage:
        def gpus_on(nodes: Collection[int]) -> frozenset[int] | Shortage:
            choice = self._plan.choose(state, nodes)
            if isinstance(choice, Shortage):
                return choice
            return frozenset(choice.minors.get(DeviceType.GPU, ()))

        return _hints(self._plan, gpus_on)


def _hints(
    plan: DevicePlan, gpus_on: Callable[[Collection[int]], frozenset[int] | Shortage]
) -> tuple[NumaHint, ...] | Shortage:
    """Return the hints; ``gpus_on`` says which GPUs some NUMA nodes would give."""
    found: list[tuple[tuple[int, ...], frozenset[int]]] = []
    whole: frozenset[int] | Shortage = frozenset()
    for nodes in map(zones_of, subsets(plan.model.numa_nodes)):
        whole = NO_NUMA_NODE if _is_too_few(plan, nodes) else gpus_on(nodes)
        if not isinstance(whole, Shortage):
            found.append((nodes, whole))
    if isinstance(whole, Shortage):  # the last one was of all NUMA nodes
        return whole
    fewest = min((len(nodes) for nodes, _ in found), default=0)
    return tuple(
        NumaHint(nodes, preferred=len(nodes) == fewest, score=SAME_GPUS if gpus == whole else 0)
        for nodes, gpus in found
    )


def _is_too_few(plan: DevicePlan, nodes: Collection[int]) -> bool:
    """Return whether some type has devices there, but fewer than are asked for."""
    for part in plan.early:
        by_numa = part.group.by_numa
        there = sum(by_numa.get(node, 0).bit_count() for node in nodes)
        if 0 < there < part.count:
            return True
    return False
