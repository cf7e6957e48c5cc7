"""What of a node's pools a search can tell apart.

Nodes of one shape whose devices are used in the same way get the same answer, whatever the pools
and their devices are called.  Slices that several nodes see are told apart by name, and so are
their devices: how these are used is no matter of one node.
"""

from collections.abc import Hashable, Sequence
from itertools import chain, count
from typing import Final

from koordinator.api.codec import encode_part
from koordinator.domain.dynamic_resources.allocator import AllocatorGates
from koordinator.domain.dynamic_resources.constraints import AttributeConstraint
from koordinator.domain.dynamic_resources.inventory import OfferedDevice, OfferedSlice, Pool
from koordinator.domain.dynamic_resources.requests import (
    AllocationError,
    PendingClaim,
    RequestOption,
)
from koordinator.domain.dynamic_resources.shares import DevicesInUse, consumption, limits_of

NUMBERS: Final = 1 << 12


class ShapeReader:
    """Reads the shapes of pools, as far as some claims are concerned."""

    def __init__(self, claims: Sequence[PendingClaim], gates: AllocatorGates) -> None:
        self._gates = gates
        requests = chain.from_iterable(claim.requests for claim in claims)
        self._options = tuple(option for request in requests for option in request.options)
        found = (AttributeConstraint.of(one) for claim in claims for one in claim.spec.constraints)
        self._attributes = tuple(one.attribute for one in found if one is not None)
        self._numbers: dict[Hashable, int] = {}  # of what several nodes see
        self._next = count()
        self._seen: dict[int, tuple[OfferedSlice, int]] = {}  # the same, by identity

    def begin(self) -> None:
        """Begin to read anew; slices that are gone are not kept."""
        self._seen.clear()
        if len(self._numbers) > NUMBERS:
            self._numbers.clear()  # no number is given twice

    def shape(self, pools: Sequence[Pool]) -> Hashable:
        """Return what is equal for pools that no search of the claims can tell apart."""
        return tuple(
            [
                (
                    pool.is_complete,
                    pool.is_valid,
                    tuple([self._part(part) for part in pool.slices]),
                    self._limits(pool),
                )
                for pool in pools
            ]
        )

    def _part(self, part: OfferedSlice) -> Hashable:
        if part.only_node:
            return tuple([self._traits(device) for device in part.devices])
        seen = self._seen.get(id(part))
        if seen is None:
            devices = tuple([(one.spec.name, self._traits(one)) for one in part.devices])
            shape = part.name, devices
            number = self._numbers.get(shape)
            if number is None:
                number = self._numbers[shape] = next(self._next)
            seen = self._seen[id(part)] = part, number
        return "shared", seen[1]

    def _traits(self, device: OfferedDevice) -> Hashable:
        spec, gates = device.spec, self._gates
        traits: tuple[Hashable, ...] = tuple([_answer(option, device) for option in self._options])
        if self._attributes:
            traits += tuple(map(device.attribute, self._attributes))
        if gates.capacity:
            traits += (spec.allow_multiple_allocations, encode_part(spec.capacity))
        if gates.taints:
            traits += spec.taints
        if gates.counters:
            traits += tuple((key[2:], amount) for key, amount in consumption(device))
        return traits

    def _limits(self, pool: Pool) -> Hashable:
        if not self._gates.counters:
            return None
        return tuple(sorted((key[2:], amount) for key, amount in limits_of(pool).items()))


def _answer(option: RequestOption, device: OfferedDevice) -> bool | None:
    """Return whether a request means the device; None: that can't be found out."""
    try:
        return option.selects(device)
    except AllocationError:
        return None


def usage_of(pools: Sequence[Pool], use: DevicesInUse) -> Hashable:
    """Return what is equal for pools of one shape whose own devices are used in the same way."""
    if not use.devices:
        return None
    found: list[Hashable] = []
    for number, pool in enumerate(pools):
        place = -1
        for part in pool.slices:
            if not part.only_node:
                place += len(part.devices)
                continue
            for device in part.devices:
                place += 1
                if device.id in use.devices:
                    amounts = tuple(use.capacity[device.id, name] for name in device.spec.capacity)
                    found.append((number, place, device.id in use.whole, amounts))
        if use.counters and pool.counter_sets:
            found.append(tuple(use.counters[key] for key in sorted(limits_of(pool))))
    return tuple(found)
