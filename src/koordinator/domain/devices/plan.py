"""Plan of a device request on a device model, and its NUMA hints.

Source: koordinator pkg/scheduler/plugins/deviceshare: device_allocator.go; plugin.go
``allocate``; koordinator pkg/scheduler/plugins/deviceshare/topology_hint.go,
``generateTopologyHints``.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from koordinator.api.annotations.devices import AllocatedVirtualFunction
from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import (
    NO_NUMA_NODE,
    Allocation,
    DeviceShortage,
    TakenDevice,
    completed,
)
from koordinator.domain.devices.choice import Chooser, DeviceChoice, DeviceStanding, Ranking
from koordinator.domain.devices.free_devices import FreeDevices
from koordinator.domain.devices.model import NodeModel, NumaSet
from koordinator.domain.devices.pod_request import (
    DevicePart,
    PodDeviceRequest,
    early_parts_of,
    parts_of,
)
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.masks import mask_of

#: Alternating masks for each early part of a request: devices that fit, devices in use.
State = tuple[int, ...]


class DevicePlan:
    """Plan of a request with answers cached by state; one plan serves all nodes of its model."""

    def __init__(self, model: NodeModel, pod_request: PodDeviceRequest) -> None:
        self.model, self.pod_request = model, pod_request
        self._parts = parts_of(model, pod_request)
        early = early_parts_of(model, pod_request, self._parts)
        #: reason why no node of the model can serve the request, None if one can
        self.never = early if isinstance(early, DeviceShortage) else None
        #: parts that are checked before a node is chosen
        self.early = () if isinstance(early, DeviceShortage) else early
        self._answers: dict[State, DeviceShortage | None] = {}

    def shortage(self, state: State) -> DeviceShortage | None:
        """Return the reason why a node in that state has no room, None if it has.

        Not applicable to a plan that ``never`` works.
        """
        if state not in self._answers:
            choice = self.choose(state)
            self._answers[state] = choice if isinstance(choice, DeviceShortage) else None
        return self._answers[state]

    def allocate(
        self,
        headrooms: Mapping[DeviceType, FreeDevices],
        totals: Mapping[DeviceType, IntArray],
        *,
        ranking: Ranking | None = None,
        numa: Collection[int] | None = None,
        preferred: Mapping[DeviceType, Collection[int]] | None = None,
        early: bool = False,
    ) -> Allocation | DeviceShortage:
        """Return the devices for the request on a node, or the reason for a shortage.

        ``totals`` are ``NodeDevices.totals``. ``numa`` restricts the devices to these NUMA nodes.
        ``preferred`` minors, such as a reservation's, are taken first, except within partitions.
        ``early`` restricts the result to the parts that are checked before a node is chosen.
        """
        if self.never is not None:
            return self.never
        parts = self.early if early else self._parts
        if isinstance(parts, DeviceShortage):
            return parts
        first = preferred or {}
        standings = {
            part.kind: _standing(part, headrooms[part.kind], numa, first.get(part.kind, ()))
            for part in parts
        }
        choice = Chooser(self.model, self.pod_request, parts, standings, ranking).choose()
        if isinstance(choice, DeviceShortage):
            return choice
        return {
            part.kind: tuple(
                _taken(part, minor, choice, headrooms[part.kind], totals[part.kind])
                for minor in choice.minors[part.kind]
            )
            for part in parts
        }

    def state(self, headrooms: Mapping[DeviceType, FreeDevices]) -> State:
        """Return the state of a node whose devices are all offered."""
        masks: list[int] = []
        for part in self.early:
            headroom = headrooms[part.kind]
            masks += (headroom.fitting(part), headroom.in_use)
        return tuple(masks)

    def choose(
        self, state: State, near: Mapping[DeviceType, int] | None = None
    ) -> DeviceChoice | DeviceShortage:
        """Return the early choice for a state, from the devices ``near`` NUMA nodes if given.

        ``near`` must contain all types of the model.
        """
        standings = {}
        for part, fit, used in zip(self.early, state[::2], state[1::2], strict=True):
            offered = part.selected if near is None else part.selected & near[part.kind]
            standings[part.kind] = DeviceStanding(offered, fit & offered, used)
        return Chooser(self.model, self.pod_request, self.early, standings).choose()


def _standing(
    part: DevicePart,
    headroom: FreeDevices,
    numa: Collection[int] | None,
    preferred: Collection[int],
) -> DeviceStanding:
    offered = part.candidates(headroom.offered, numa)
    return DeviceStanding(
        offered=offered,
        fit=headroom.fitting(part) & offered,
        # Freed amounts count as used on devices that the pod may not take.
        used=headroom.used & offered | headroom.in_use & ~offered,
        preferred=mask_of(preferred),
    )


def _taken(
    part: DevicePart, minor: int, choice: DeviceChoice, headroom: FreeDevices, totals: IntArray
) -> TakenDevice:
    amounts, template = part.amounts, ""
    if part.kind is DeviceType.GPU:
        amounts, template = completed(amounts, totals[minor].tolist()), choice.template
    function = part.free_function(minor, headroom.functions.get(minor, ()))
    functions = (
        ()
        if function is None
        else (AllocatedVirtualFunction(minor=function.minor, bus_id=function.bus_id),)
    )
    return TakenDevice(minor, amounts, functions, template)


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

    Empty if no device is on a NUMA node: then the request has no preference.
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
    return any(0 < place.counts[part.kind] < part.count for part in plan.early)
