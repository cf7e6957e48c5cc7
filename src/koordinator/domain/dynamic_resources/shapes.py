"""Shapes of a node's pools: equal for pools that a search can't distinguish.

Nodes of one shape whose devices have the same usage get the same result, regardless of the names of
pools and devices. Slices that several nodes see, and their devices, are identified by name, because
their usage does not depend on one node.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from koordinator.api.codec import encode_part
from koordinator.domain.dynamic_resources.allocator import (
    AllocatedDevice,
    AllocatorGates,
    AttributeConstraint,
    NodeAllocation,
    is_allocatable,
    needs_gate,
)
from koordinator.domain.dynamic_resources.inventory import (
    InventoryDevice,
    InventorySlice,
    Pool,
    SliceContent,
)
from koordinator.domain.dynamic_resources.requests import (
    AllocationError,
    PendingClaim,
    RequestOption,
)
from koordinator.domain.dynamic_resources.shares import DevicesInUse, consumption, limits_of
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.lazy_module import lazy_module

if TYPE_CHECKING:
    from koordinator.domain.dynamic_resources import selectors
else:  # without selectors, nothing evaluates expressions
    selectors = lazy_module("koordinator.domain.dynamic_resources.selectors")

NUMBERS: Final = 1 << 12
READINGS: Final = 16  # cached content numbers per slice


class SliceContents:
    """Numbers for slices by the values of some parts of their devices.

    Many claims read the same parts, for instance claims made from templates that differ in a count.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, SliceContent] = WeakValueDictionary()
        self._next = count()

    def number(
        self, part: InventorySlice, reading: Hashable, read: Callable[[InventoryDevice], Hashable]
    ) -> int | None:
        """Return a number that is equal for slices with equal values; None if undetermined.

        ``read`` returns the values of a device, or None; it must be a function of ``reading``.
        """
        if reading not in part.contents:
            if len(part.contents) >= READINGS:
                part.contents.clear()
            part.contents[reading] = self._content((reading, tuple(map(read, part.devices))))
        content = part.contents[reading]
        return content.number if content is not None else None

    def _content(self, values: tuple[Hashable, tuple[Hashable, ...]]) -> SliceContent | None:
        """Return the content, alive while a slice refers to it; numbers are never reused."""
        if None in values[1]:
            return None
        content = self._known.get(values)
        if content is None:
            content = self._known[values] = SliceContent(next(self._next))
        return content


class ShapeReader:
    """Shapes of pools with respect to some claims."""

    def __init__(
        self, claims: Sequence[PendingClaim], gates: AllocatorGates, contents: SliceContents
    ) -> None:
        """Create a reader; ``contents`` may be shared with readers of other claims."""
        self._gates, self._contents = gates, contents
        requests = chain.from_iterable(claim.requests for claim in claims)
        self._options = tuple(option for request in requests for option in request.options)
        constraints = (
            AttributeConstraint.of(one, lists=gates.lists)
            for claim in claims
            for one in claim.spec.constraints
        )
        self._attributes = tuple(one.attribute for one in constraints if one is not None)
        self._parts = _parts(self._options)
        self._reading = self._parts, self._attributes, gates
        self._alike: dict[int, Hashable] = {}  # traits of devices by content number
        self._numbers: dict[Hashable, int] = {}  # numbers of slices that several nodes see
        self._next = count()
        self._seen: dict[int, tuple[InventorySlice, int]] = {}  # number by identity of the slice

    def begin(self) -> None:
        """Start a new pass; references to removed slices are dropped."""
        self._seen.clear()
        for known in (self._numbers, self._alike):
            if len(known) > NUMBERS:
                known.clear()  # numbers are never reused

    def shape(self, pools: Sequence[Pool]) -> Hashable:
        """Return a value that is equal for pools that no search of the claims can distinguish."""
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

    def _part(self, part: InventorySlice) -> Hashable:
        if part.only_node:
            return self._traits_of(part)
        seen = self._seen.get(id(part))
        if seen is None:
            devices = tuple([(one.spec.name, self._traits(one)) for one in part.devices])
            shape = part.name, devices
            number = self._numbers.get(shape)
            if number is None:
                number = self._numbers[shape] = next(self._next)
            seen = self._seen[id(part)] = part, number
        return "shared", seen[1]

    def _traits_of(self, part: InventorySlice) -> Hashable:
        """Return the traits of all devices, cached by content."""
        number = None
        if self._parts is not None:
            number = self._contents.number(part, self._reading, self._values)
        traits = self._alike.get(number) if number is not None else None
        if traits is None:
            traits = tuple([self._traits(device) for device in part.devices])
            if number is not None:
                self._alike[number] = traits
        return traits

    def _traits(self, device: InventoryDevice) -> Hashable:
        return tuple([_answer(option, device) for option in self._options]), self._own(device)

    def _values(self, device: InventoryDevice) -> Hashable:
        """Return the values that determine a device's traits; None if undetermined."""
        values = selectors.values_read(self._parts or (), device.id[0], device.spec)
        return (values, self._own(device)) if values is not None else None

    def _own(self, device: InventoryDevice) -> tuple[Hashable, ...]:
        """Return the properties of a device that matter besides expression results."""
        spec, gates = device.spec, self._gates
        own: tuple[Hashable, ...] = tuple(map(device.attribute, self._attributes))
        own += (needs_gate(device, gates), is_allocatable(device, gates))
        if gates.capacity:
            own += (spec.allow_multiple_allocations, encode_part(spec.capacity))
        if gates.node_amounts:
            own += (encode_part(spec.node_allocatable_resources),)
        if gates.taints:
            own += spec.taints
        if gates.counters:
            own += tuple((key[2:], amount) for key, amount in consumption(device))
        return own

    def _limits(self, pool: Pool) -> Hashable:
        if not self._gates.counters:
            return None
        return tuple(sorted((key[2:], amount) for key, amount in limits_of(pool).items()))


def _parts(options: Iterable[RequestOption]) -> tuple[tuple[str, str, str], ...] | None:
    """Return the parts of devices that the requests' selectors read; None if any may be read."""
    distinct: dict[tuple[str, str, str], None] = {}
    for option in options:
        for condition in option.conditions:
            if not isinstance(condition.program, InputError):
                parts = selectors.parts_read(condition.program)
                if parts is None:
                    return None
                distinct |= dict.fromkeys(parts)
    return tuple(sorted(distinct))


def _answer(option: RequestOption, device: InventoryDevice) -> bool | None:
    """Return whether a request selects the device; None if a selector fails."""
    try:
        return option.selects(device)
    except AllocationError:
        return None


def usage_of(pools: Sequence[Pool], use: DevicesInUse) -> Hashable:
    """Return a value that is equal for pools of one shape with equal usage of their own devices."""
    if not use.devices:
        return None
    usage: list[Hashable] = []
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
                    usage.append((number, place, device.id in use.whole, amounts))
        if pool.counter_sets and (use.counters or use.withdrawn):
            is_known = not use.withdrawn[pool.driver, pool.name]
            usage.append((is_known, *(use.counters[key] for key in sorted(limits_of(pool)))))
    return tuple(usage)


@dataclass(frozen=True, slots=True)
class AllocationPlaces:
    """An allocation as places among the devices of a node, without names.

    It is the result of a search on every node of one shape and usage, for claims with equal specs.
    """

    #: per claim and device: numbers of the request, its option and the device; consumed capacity
    claims: tuple[tuple[tuple[int, int, int, Mapping[str, int]], ...], ...]
    score: int

    @classmethod
    def of(
        cls, allocation: NodeAllocation, claims: Sequence[PendingClaim], pools: Sequence[Pool]
    ) -> "AllocationPlaces":
        """Return the places of an allocation of these claims."""
        place = {id(device): at for at, device in enumerate(_devices(pools))}
        placed = []
        for claim, devices in zip(claims, allocation.claims, strict=True):
            option_numbers = {
                id(option): (request, number)
                for request, each in enumerate(claim.requests)
                for number, option in enumerate(each.options)
            }
            placed.append(
                tuple(
                    (*option_numbers[id(one.option)], place[id(one.device)], one.consumed)
                    for one in devices
                )
            )
        return cls(tuple(placed), allocation.score)

    def on(self, claims: Sequence[PendingClaim], pools: Sequence[Pool]) -> NodeAllocation:
        """Return the allocation on another node of that shape and usage."""
        devices = list(_devices(pools))
        return NodeAllocation(
            tuple(
                tuple(
                    AllocatedDevice(claim.requests[request].options[option], devices[at], consumed)
                    for request, option, at, consumed in placed
                )
                for claim, placed in zip(claims, self.claims, strict=True)
            ),
            self.score,
        )


def _devices(pools: Iterable[Pool]) -> Iterable[InventoryDevice]:
    return chain.from_iterable(pool.devices for pool in pools)
