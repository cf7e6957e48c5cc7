"""One claim on nodes of one model: which have room, and which devices it gets.

Source: koordinator pkg/scheduler/plugins/deviceshare: device_allocator.go; plugin.go ``allocate``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from koordinator.api.annotations.devices import AllocatedVirtualFunction
from koordinator.api.device import DeviceType, VirtualFunction
from koordinator.domain.devices.allocation import Allocation, Taken, completed
from koordinator.domain.devices.amounts import IntArray
from koordinator.domain.devices.choice import Choice, Chooser, Ranking, Standing, all_alike
from koordinator.domain.devices.claim import DeviceClaim
from koordinator.domain.devices.masks import mask_of
from koordinator.domain.devices.model import NodeModel
from koordinator.domain.devices.parts import Part, early_parts_of, parts_of
from koordinator.domain.devices.room import Room
from koordinator.domain.devices.shortage import Shortage

BoolArray = npt.NDArray[np.bool_]

_WORD = 8  # bytes of the integers that are cheap to sort


#: By part: the devices that fit, and those in use, as masks.
State = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Rooms:
    """What is left of the devices of one type on n nodes; arrays are ``(n, width)`` by minor."""

    fit: BoolArray  # healthy, has enough left, and a free virtual function if one is needed
    used: BoolArray  # somebody holds some of it


class DevicePlan:
    """Answers are remembered by what is free: ask one plan about all nodes of its model."""

    def __init__(self, model: NodeModel, claim: DeviceClaim) -> None:
        self.model, self.claim = model, claim
        early = early_parts_of(model, claim)
        #: why no node of the model will ever do
        self.never = early if isinstance(early, Shortage) else None
        #: what is looked at before a node is chosen
        self.early = () if isinstance(early, Shortage) else early
        self._parts = parts_of(model, claim)
        self._answers: dict[State, Shortage | None] = {}

    def shortages(self, rooms: Sequence[Rooms]) -> tuple[list[Shortage | None], IntArray]:
        """Return different answers, and ``(n,)`` for each node which of them is its.

        ``rooms`` are those of the parts in ``early``, in their order.  A plan that ``never`` works
        has none and is not asked.
        """
        states, which = distinct_states(rooms)
        answers = []
        for state in states:
            if state not in self._answers:
                choice = self.choose(state)
                self._answers[state] = choice if isinstance(choice, Shortage) else None
            answers.append(self._answers[state])
        return answers, which

    def allocate(
        self,
        rooms: Mapping[DeviceType, Room],
        totals: Mapping[DeviceType, IntArray],
        *,
        ranking: Ranking = all_alike,
        numa: Collection[int] | None = None,
        preferred: Mapping[DeviceType, Collection[int]] | None = None,
        early: bool = False,
    ) -> Allocation | Shortage:
        """Return the devices for the claim on a node, or why there are not enough.

        ``totals`` are those of ``NodeDevices``.  ``numa``: only devices on these NUMA nodes.
        ``preferred`` minors, such as those of a reservation, go first where each device counts for
        itself.  ``early``: only what has to be looked at before a node is chosen.
        """
        if self.never is not None:
            return self.never
        parts = self.early if early else self._parts
        if isinstance(parts, Shortage):
            return parts
        first = preferred or {}
        standings = {
            part.kind: _standing(part, rooms[part.kind], numa, first.get(part.kind, ()))
            for part in parts
        }
        choice = Chooser(self.model, self.claim, parts, standings, ranking).choose()
        if isinstance(choice, Shortage):
            return choice
        return {
            part.kind: tuple(
                _taken(part, minor, choice, rooms[part.kind], totals[part.kind])
                for minor in choice.minors[part.kind]
            )
            for part in parts
        }

    def choose(self, state: State, numa: Collection[int] | None = None) -> Choice | Shortage:
        """Return the early choice for one state, of NUMA nodes if some are given."""
        standings = {}
        for part, (fit, used) in zip(self.early, state, strict=True):
            offered = part.candidates(part.group.mask, numa)
            standings[part.kind] = Standing(offered, fit & offered, used)
        return Chooser(self.model, self.claim, self.early, standings).choose()


def distinct_states(rooms: Sequence[Rooms]) -> tuple[list[State], IntArray]:
    """Return the different states of some nodes, and ``(n,)`` which of them each node is in."""
    columns = [column for room in rooms for column in (room.fit, room.used)]
    packed = [np.packbits(column, axis=1, bitorder="little") for column in columns]
    found, which = _distinct(np.concatenate(packed, axis=1))
    ends = np.cumsum([bits.shape[1] for bits in packed]).tolist()
    states = []
    for row in found:
        masks = [
            int.from_bytes(row[start:end], "little")
            for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        states.append(tuple(zip(masks[::2], masks[1::2], strict=True)))
    return states, which


def _distinct(states: npt.NDArray[np.uint8]) -> tuple[list[bytes], IntArray]:
    """Return the different rows as bytes, and which of them each row is."""
    width = states.shape[1]
    if width <= _WORD:
        padded = np.zeros((len(states), _WORD), np.uint8)
        padded[:, :width] = states
        words, which = np.unique(padded.view(np.uint64).ravel(), return_inverse=True)
        return [word.tobytes()[:width] for word in words], which
    rows = np.ascontiguousarray(states).view(np.dtype((np.void, width))).ravel()
    found, which = np.unique(rows, return_inverse=True)
    return [row.tobytes() for row in found], which


def _standing(
    part: Part, room: Room, numa: Collection[int] | None, preferred: Collection[int]
) -> Standing:
    offered = part.candidates(room.offered, numa)
    return Standing(
        offered=offered,
        fit=room.fitting(part) & offered,
        # What is given back counts as in use where the pod may not take it.
        used=room.used & offered | room.held & ~offered,
        preferred=mask_of(preferred),
    )


def _taken(part: Part, minor: int, choice: Choice, room: Room, totals: IntArray) -> Taken:
    amounts, template = part.amounts, ""
    if part.kind is DeviceType.GPU:
        amounts, template = completed(amounts, totals[minor].tolist()), choice.template
    function = part.free_function(minor, room.functions.get(minor, ()))
    functions = () if function is None else (_allocated(function),)
    return Taken(minor, amounts, functions, template)


def _allocated(function: VirtualFunction) -> AllocatedVirtualFunction:
    return AllocatedVirtualFunction(minor=function.minor, bus_id=function.bus_id)
