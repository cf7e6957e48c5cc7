"""NUMA topology hints of a device claim.

Source: koordinator pkg/scheduler/plugins/deviceshare/topology_hint.go, ``generateTopologyHints``.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from koordinator.api.device import DeviceType
from koordinator.domain.devices.free_devices import FreeDevices
from koordinator.domain.devices.model import NumaSet
from koordinator.domain.devices.plan import DevicePlan, State
from koordinator.domain.devices.shortage import NO_NUMA_NODE, DeviceShortage
from koordinator.foundation.arrays import IntArray

#: Score of NUMA nodes with the GPUs of the unconstrained choice; above any CPU or memory score.
SAME_GPUS = 500


class NumaHint(NamedTuple):
    """A set of NUMA nodes with room for every requested type of device."""

    nodes: tuple[int, ...]
    preferred: bool  # the smallest number of nodes
    score: int


def numa_hints(
    plan: DevicePlan,
    headrooms: Mapping[DeviceType, FreeDevices],
    totals: Mapping[DeviceType, IntArray],
) -> tuple[NumaHint, ...] | DeviceShortage:
    """Return the feasible sets of NUMA nodes, small ones first, or the whole node's shortage.

    Empty if no device is on a NUMA node: then the claim has no preference.
    """

    def gpus_on(place: NumaSet) -> frozenset[int] | DeviceShortage:
        allocation = plan.allocate(headrooms, totals, numa=place.nodes, early=True)
        if isinstance(allocation, DeviceShortage):
            return allocation
        return frozenset(taken.minor for taken in allocation.get(DeviceType.GPU, ()))

    return _hints(plan, gpus_on)


class NumaHintTable:
    """Cache of the NUMA hints of one plan for all nodes of its model, by state."""

    def __init__(self, plan: DevicePlan) -> None:
        self._plan = plan
        self._answers: dict[State, tuple[NumaHint, ...] | DeviceShortage] = {}

    def of(self, state: State) -> tuple[NumaHint, ...] | DeviceShortage:
        """Return the hints for a node state; not applicable to a plan that ``never`` works."""
        known = self._answers.get(state)
        if known is None:
            known = self._answers[state] = self._of(state)
        return known

    def _of(self, state: State) -> tuple[NumaHint, ...] | DeviceShortage:
        def gpus_on(place: NumaSet) -> frozenset[int] | DeviceShortage:
            choice = self._plan.choose(state, place.near)
            if isinstance(choice, DeviceShortage):
                return choice
            return frozenset(choice.minors.get(DeviceType.GPU, ()))

        return _hints(self._plan, gpus_on)


def _hints(
    plan: DevicePlan, gpus_on: Callable[[NumaSet], frozenset[int] | DeviceShortage]
) -> tuple[NumaHint, ...] | DeviceShortage:
    """Return the hints; ``gpus_on`` returns the GPUs chosen on a set of NUMA nodes."""
    placements: list[tuple[tuple[int, ...], frozenset[int]]] = []
    whole: frozenset[int] | DeviceShortage = frozenset()
    for place in plan.model.numa_sets:
        whole = NO_NUMA_NODE if _is_too_few(plan, place) else gpus_on(place)
        if not isinstance(whole, DeviceShortage):
            placements.append((place.nodes, whole))
    if isinstance(whole, DeviceShortage):  # the last set has all NUMA nodes
        return whole
    fewest = len(placements[0][0]) if placements else 0  # sorted by size
    return tuple(
        NumaHint(nodes, preferred=len(nodes) == fewest, score=SAME_GPUS if gpus == whole else 0)
        for nodes, gpus in placements
    )


def _is_too_few(plan: DevicePlan, place: NumaSet) -> bool:
    """Return whether a type has devices on these nodes, but fewer than requested."""
    return any(0 < place.there[part.kind] < part.count for part in plan.early)
