"""One claim on nodes of one model: which have room, and which devices it gets.

Source: koordinator pkg/scheduler/plugins/deviceshare: device_allocator.go; plugin.go ``allocate``.
"""

from collections.abc import Collection, Mapping

from koordinator.api.annotations.devices import AllocatedVirtualFunction
from koordinator.api.device import DeviceType, VirtualFunction
from koordinator.domain.devices.allocation import Allocation, Taken, completed
from koordinator.domain.devices.choice import Chooser, DeviceChoice, DeviceStanding, Ranking
from koordinator.domain.devices.claim import DeviceClaim
from koordinator.domain.devices.free_devices import FreeDevices
from koordinator.domain.devices.model import NodeModel
from koordinator.domain.devices.parts import DevicePart, early_parts_of, parts_of
from koordinator.domain.devices.shortage import DeviceShortage
from koordinator.domain.masks import mask_of
from koordinator.foundation.arrays import IntArray

#: What is left for each early part of a claim, as masks: devices that fit, devices in use, ….
State = tuple[int, ...]


class DevicePlan:
    """Answers are remembered by what is free: ask one plan about all nodes of its model."""

    def __init__(self, model: NodeModel, claim: DeviceClaim) -> None:
        self.model, self.claim = model, claim
        self._parts = parts_of(model, claim)
        early = early_parts_of(model, claim, self._parts)
        #: why no node of the model will ever do
        self.never = early if isinstance(early, DeviceShortage) else None
        #: what is looked at before a node is chosen
        self.early = () if isinstance(early, DeviceShortage) else early
        self._answers: dict[State, DeviceShortage | None] = {}

    def shortage(self, state: State) -> DeviceShortage | None:
        """Return why a node in that state has no room, None if it has.

        A plan that ``never`` works is not asked.
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
        """Return the devices for the claim on a node, or why there are not enough.

        ``totals`` are those of ``NodeDevices``.  ``numa``: only devices on these NUMA nodes.
        ``preferred`` minors, such as those of a reservation, go first; partitions are taken as
        they are.  ``early``: only what has to be looked at before a node is chosen.
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
        choice = Chooser(self.model, self.claim, parts, standings, ranking).choose()
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
        """Return what is left on a node of which everything is offered."""
        masks: list[int] = []
        for part in self.early:
            headroom = headrooms[part.kind]
            masks += (headroom.fitting(part), headroom.held)
        return tuple(masks)

    def choose(
        self, state: State, near: Mapping[DeviceType, int] | None = None
    ) -> DeviceChoice | DeviceShortage:
        """Return the early choice for one state, of the devices ``near`` some NUMA nodes if given.

        Those have all types of the model.
        """
        standings = {}
        for part, fit, used in zip(self.early, state[::2], state[1::2], strict=True):
            offered = part.selected if near is None else part.selected & near[part.kind]
            standings[part.kind] = DeviceStanding(offered, fit & offered, used)
        return Chooser(self.model, self.claim, self.early, standings).choose()


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
        # What is given back counts as in use where the pod may not take it.
        used=headroom.used & offered | headroom.held & ~offered,
        preferred=mask_of(preferred),
    )


def _taken(
    part: DevicePart, minor: int, choice: DeviceChoice, headroom: FreeDevices, totals: IntArray
) -> Taken:
    amounts, template = part.amounts, ""
    if part.kind is DeviceType.GPU:
        amounts, template = completed(amounts, totals[minor].tolist()), choice.template
    function = part.free_function(minor, headroom.functions.get(minor, ()))
    functions = () if function is None else (_allocated(function),)
    return Taken(minor, amounts, functions, template)


def _allocated(function: VirtualFunction) -> AllocatedVirtualFunction:
    return AllocatedVirtualFunction(minor=function.minor, bus_id=function.bus_id)
