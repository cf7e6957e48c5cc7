"""Depth-first search for the devices of a pod's claims on a node.

Claims are tried in their order, then requests, alternatives, devices of a request, and for
each of these the pools, slices and devices that the node sees.  The first solution counts, so the
order of all of them matters.

Two things make the search shorter without another first solution: devices of one request are taken
in ascending order (any solution put into that order is one that comes earlier), and where a device
has failed, one that this search can't distinguish from it is skipped.

Source: k8s.io/dynamic-resource-allocation structured/internal/incubating/allocator_incubating.go
``Allocate``, ``allocateOne``, ``allocateDevice``; k8s.io/dynamic-resource-allocation
structured/internal/incubating/allocator_incubating.go ``matchAttributeConstraint``;
structured/internal/incubating/constraint.go for distinct ones.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Final

from koordinator.api.dynamic_resources import (
    RESULTS_MAX,
    SUBREQUESTS_MAX,
    DeviceConstraint,
)
from koordinator.domain.dynamic_resources.inventory import DeviceId, InventoryDevice, Pool
from koordinator.domain.dynamic_resources.requests import (
    AllocationError,
    BrokenSelectorError,
    PendingClaim,
    RequestOption,
)
from koordinator.domain.dynamic_resources.shares import (
    CapacityError,
    CounterKey,
    DevicesInUse,
    consumed_capacity,
    consumption,
    limits_of,
)
from koordinator.domain.node_selection import FORBIDDING, tolerates
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(slots=True)
class AttributeConstraint:
    """A constraint with the attribute values of the devices taken so far, in order.

    Lists match if all devices have a value in common, and are distinct if no two devices have.
    Without the gate for lists, a list is accepted of the first device only and equals nothing.
    """

    attribute: str
    requests: tuple[str, ...]  # constrained requests; empty: all
    is_distinct: bool
    lists: bool
    #: values of each device, or those in common up to it
    _values: list[frozenset[tuple[str, int | str]]] = field(default_factory=list)

    @classmethod
    def of(cls, constraint: DeviceConstraint, *, lists: bool) -> "AttributeConstraint | None":
        """Return the constraint without devices; None if it has no known type."""
        if constraint.match_attribute is not None:
            return cls(constraint.match_attribute, constraint.requests, False, lists)
        if constraint.distinct_attribute is not None:
            return cls(constraint.distinct_attribute, constraint.requests, True, lists)
        return None

    def concerns(self, option: RequestOption) -> bool:
        """Return whether devices of a request are constrained."""
        if not self.requests:
            return True
        return option.name in self.requests or option.name.partition("/")[0] in self.requests

    def add(self, device: InventoryDevice) -> bool:
        """Add a device; return False, without adding it, if the constraint is violated."""
        attribute = device.attribute(self.attribute)
        if attribute is None:
            return False
        values = attribute.values
        if attribute.is_list and not self.lists:
            if self._values:
                return False
            values = frozenset()
        elif self.is_distinct:
            if not all(map(values.isdisjoint, self._values)):
                return False
        elif self._values:
            values &= self._values[-1]
            if not values:
                return False
        self._values.append(values)
        return True

    def take_back(self) -> None:
        """Remove the device that was added last."""
        self._values.pop()


CANNOT_ALLOCATE: Final = "cannot allocate all claims"
INVALID_POOLS: Final = "invalid resource pools were encountered"
TIMED_OUT: Final = "timed out trying to allocate devices"
MAX_STEPS: Final = 100_000  # examined devices; replaces Kubernetes' timeout of 10 s


@dataclass(frozen=True, slots=True)
class AllocatorGates:
    """Feature gates of the allocator, and differences between releases."""

    taints: bool = False
    taint_rules: bool = False
    counters: bool = False
    capacity: bool = False  # includes distinctAttribute constraints
    binding_conditions: bool = False
    lists: bool = False  # constraints compare lists of values
    node_amounts: bool = False  # devices take resources of their nodes
    repeats: bool = True  # up to 1.35: several shares of a device per request
    fractional_ranges: bool = False  # ranges of capacity count in thousandths, not in ones
    from_1_37: bool = False  # rules and messages of Kubernetes 1.37


NO_GATES: Final = AllocatorGates()


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """A device allocated for an option of a request."""

    option: RequestOption
    device: InventoryDevice
    consumed: Mapping[str, int] = field(default_factory=dict)  # capacity in nanos


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """Allocated devices of each claim, in order of the claims, and the node's score."""

    claims: tuple[tuple[AllocatedDevice, ...], ...]
    score: int  # higher for earlier alternatives


@dataclass(frozen=True, slots=True)
class NotAllocatable:
    """Failure to allocate on a node.

    ``is_fault``: the check itself failed; ``is_broken``: a selector failed on a device.
    """

    reason: str
    is_fault: bool = False
    is_broken: bool = False


def allocate(
    pools: Sequence[Pool],
    claims: Sequence[PendingClaim],
    use: DevicesInUse,
    gates: AllocatorGates = NO_GATES,
    max_steps: int = MAX_STEPS,
) -> NodeAllocation | NotAllocatable:
    """Return the allocation of the claims from a node's pools, without changing ``use``."""
    try:
        return _Search(pools, claims, use, gates, max_steps).run()
    except AllocationError as fault:
        if isinstance(fault, BrokenSelectorError):
            reason = fault.with_device() if gates.from_1_37 else str(fault)
            return NotAllocatable(reason, is_fault=True, is_broken=True)
        return NotAllocatable(str(fault), is_fault=True)
    except _OutOfStepsError:
        return NotAllocatable(TIMED_OUT)


class _OutOfStepsError(Exception):
    """The search exceeds its step limit."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """The next device to find."""

    claim: int
    request: int
    number: int = 0  # index of the device within the request
    option: int | None = None  # index of the alternative
    start: int = 0  # index of the first allowed candidate


class _Search:
    """One search on one node."""

    def __init__(
        self,
        pools: Sequence[Pool],
        claims: Sequence[PendingClaim],
        use: DevicesInUse,
        gates: AllocatorGates,
        max_steps: int,
    ) -> None:
        self._pools, self._claims, self._use, self._gates = pools, claims, use, gates
        self._steps = max_steps
        self._results: list[list[AllocatedDevice]] = [[] for _ in claims]
        self._chosen: dict[tuple[int, int], int] = {}  # option index by (claim, request)
        self._mine: dict[DeviceId, list[int]] = {}  # claims per device in this search
        self._constraints = [self._constraints_of(claim) for claim in claims]
        self._whole: dict[tuple[int, int, int], tuple[InventoryDevice, ...]] = {}  # for all
        self._counters: dict[CounterKey, int] = {}  # consumed in this search
        self._capacity: dict[tuple[DeviceId, str], int] = {}
        self._signatures: dict[DeviceId, Hashable] = {}

    def run(self) -> NodeAllocation | NotAllocatable:
        """Return the first solution."""
        for index, claim in enumerate(self._claims):
            self._check_size(index, claim)
            self._check_constraints(claim)
        if self._next(_Slot(0, 0)):
            return NodeAllocation(tuple(map(tuple, self._results)), self._score())
        if any(not pool.is_valid for pool in self._pools):
            return NotAllocatable(INVALID_POOLS)
        return NotAllocatable(CANNOT_ALLOCATE)

    def _constraints_of(self, claim: PendingClaim) -> list[AttributeConstraint]:
        lists = self._gates.lists
        constraints = (AttributeConstraint.of(c, lists=lists) for c in claim.spec.constraints)
        return [one for one in constraints if one and (not one.is_distinct or self._gates.capacity)]

    @cached_property
    def _candidates(self) -> tuple[InventoryDevice, ...]:
        """Devices for exact counts, in order; incomplete and invalid pools are left out."""
        return tuple(
            device
            for pool in self._pools
            if pool.is_valid and pool.is_complete
            for device in pool.devices
        )

    @cached_property
    def _limits(self) -> Mapping[CounterKey, int]:
        return {key: amount for pool in self._pools for key, amount in limits_of(pool).items()}

    def _score(self) -> int:
        return sum(
            SUBREQUESTS_MAX - option
            for (claim, request), option in self._chosen.items()
            if self._claims[claim].requests[request].has_alternatives
        )

    # -- before the search -------------------------------------------------------------------

    def _check_size(self, index: int, claim: PendingClaim) -> None:
        """Find the devices of requests for all; raise AllocationError if there are too many."""
        least = 0
        for number, request in enumerate(claim.requests):
            counts = []
            for which, option in enumerate(request.options):
                if option.is_derived:
                    raise AllocationError(
                        f"claim {claim.key}, request {option.short_name}: cannot handle request "
                        "with derived attributes, the feature is disabled"
                    )
                if option.takes_all:
                    devices = self._all_devices(claim, option)
                    self._whole[index, number, which] = devices
                    counts.append(len(devices))
                else:
                    counts.append(option.count)
            if self._gates.from_1_37 and least + min(counts) > RESULTS_MAX:
                raise AllocationError(
                    f"claim {claim.key}, request {request.name}: adding {min(counts)} devices "
                    f"exceeds the claim limit of {RESULTS_MAX}, with {least} already accounted for"
                )
            least += min(counts)
        if least > RESULTS_MAX:
            raise AllocationError(
                f"claim {claim.key}: number of requested devices {least} exceeds the claim limit "
                f"of {RESULTS_MAX}"
            )

    def _check_constraints(self, claim: PendingClaim) -> None:
        """Raise AllocationError for a constraint of an unsupported type."""
        for index, each in enumerate(claim.spec.constraints):
            if each.match_attribute is None and not (
                each.distinct_attribute and self._gates.capacity
            ):
                raise AllocationError(
                    f"claim {claim.key}, constraint #{index}: empty constraint (unsupported "
                    "constraint type?)"
                )

    def _all_devices(
        self, claim: PendingClaim, option: RequestOption
    ) -> tuple[InventoryDevice, ...]:
        devices: list[InventoryDevice] = []
        for pool in self._pools:
            if not pool.is_complete or not pool.is_valid:
                state = "currently invalid" if pool.is_complete else "currently being updated"
                raise AllocationError(
                    f"claim {claim.key}, request {option.short_name}: asks for all devices, but "
                    f"resource pool {pool.driver}/{pool.name} is {state}"
                )
            devices += (one for one in pool.devices if self._is_one_of_all(claim, option, one))
        return tuple(devices)

    def _is_one_of_all(
        self, claim: PendingClaim, option: RequestOption, device: InventoryDevice
    ) -> bool:
        """Return whether a request for all devices includes a device.

        From 1.37 on a device with too little capacity left is included, so that the request fails.
        """
        if not self._gates.from_1_37:
            return self._can_allocate(claim, option, device)
        if not is_allocatable(device, self._gates) or not option.selects(device):
            return False
        return not self._gates.capacity or self._requested(claim, option, device) is not None

    def _can_allocate(
        self, claim: PendingClaim, option: RequestOption, device: InventoryDevice
    ) -> bool:
        """Return whether a request means a device, and enough of it is left.

        Raises AllocationError.
        """
        if not is_allocatable(device, self._gates) or not option.selects(device):
            return False
        return not self._gates.capacity or self._capacity_taken(claim, option, device) is not None

    # -- the search --------------------------------------------------------------------------

    def _next(self, slot: _Slot) -> bool:  # noqa: PLR0911 -- one case per kind of slot
        """Find all devices from this slot on; return whether there is a solution."""
        if slot.claim >= len(self._claims):
            return True
        claim = self._claims[slot.claim]
        if slot.request >= len(claim.requests):
            return self._next(_Slot(slot.claim + 1, 0))
        if slot.option is None:
            return self._any_option(slot)
        option = claim.requests[slot.request].options[slot.option]
        whole = self._whole.get((slot.claim, slot.request, slot.option))
        wanted = option.count if whole is None else len(whole)
        if not wanted:
            return False  # mode All requires at least one device
        if slot.number >= wanted:
            return self._next(_Slot(slot.claim, slot.request + 1))
        if not slot.number and len(self._results[slot.claim]) + wanted > RESULTS_MAX:
            return False
        if whole is not None:
            return self._take_next_of_all(slot, option, whole)
        return self._take_one(slot, option)

    def _any_option(self, slot: _Slot) -> bool:
        for index in range(len(self._claims[slot.claim].requests[slot.request].options)):
            self._chosen[slot.claim, slot.request] = index
            if self._next(_Slot(slot.claim, slot.request, option=index)):
                return True
        del self._chosen[slot.claim, slot.request]
        return False

    def _take_next_of_all(
        self, slot: _Slot, option: RequestOption, whole: tuple[InventoryDevice, ...]
    ) -> bool:
        device = whole[slot.number]
        if self._is_taken(slot.claim, option, device) or not self._is_tolerated(option, device):
            return False
        if not self._take(slot.claim, option, device, must=True):
            return False
        if self._next(_Slot(slot.claim, slot.request, slot.number + 1, slot.option)):
            return True
        self._give_back(slot.claim, option)
        return False

    def _take_one(self, slot: _Slot, option: RequestOption) -> bool:
        failed: set[Hashable] = set()
        candidates = self._candidates
        for place in range(slot.start, len(candidates)):
            device = candidates[place]
            self._steps -= 1
            if self._steps < 0:
                raise _OutOfStepsError
            if self._is_taken(slot.claim, option, device):
                continue
            claim = self._claims[slot.claim]
            if not self._can_allocate(claim, option, device):
                continue
            if not self._is_tolerated(option, device):
                continue
            alike = self._signature(device), device.id in self._mine
            if alike in failed:
                continue
            if not self._take(slot.claim, option, device, must=False):
                continue
            repeats = self._gates.repeats and self._is_shared(device)
            start = place if repeats else place + 1
            after = _Slot(slot.claim, slot.request, slot.number + 1, slot.option, start)
            if self._next(after):
                return True
            self._give_back(slot.claim, option)
            failed.add(alike)
        return False

    def _is_shared(self, device: InventoryDevice) -> bool:
        return self._gates.capacity and bool(device.spec.allow_multiple_allocations)

    def _is_taken(self, claim: int, option: RequestOption, device: InventoryDevice) -> bool:
        own_devices = self._mine.get(device.id, ())
        is_shared = self._is_shared(device)
        if option.admin_access:
            return claim in own_devices and not is_shared
        if is_shared:
            return self._use.whole[device.id] > 0  # allocated before sharing was enabled
        return bool(own_devices) or self._use.devices[device.id] > 0

    def _is_tolerated(self, option: RequestOption, device: InventoryDevice) -> bool:
        return not self._gates.taints or is_tolerated(option, device)

    def _take(
        self, claim: int, option: RequestOption, device: InventoryDevice, *, must: bool
    ) -> bool:
        """Take a device if counters, capacities and constraints allow it.

        Raises AllocationError if it ``must`` be taken and violates a constraint.
        """
        consumed = self._consumed(self._claims[claim], option, device)
        if consumed is None:
            return False
        added: list[AttributeConstraint] = []
        for constraint in self._constraints[claim]:
            if not constraint.concerns(option):
                continue
            if constraint.add(device):
                added.append(constraint)
                continue
            for one in reversed(added):
                one.take_back()
            if must:
                key, name = self._claims[claim].key, "/".join(device.id)
                raise AllocationError(
                    f"claim {key}, request {option.short_name}: cannot add device {name} because "
                    "a claim constraint would not be satisfied"
                )
            return False
        self._charge(device, consumed, 1)
        self._mine.setdefault(device.id, []).append(claim)
        self._results[claim].append(AllocatedDevice(option, device, consumed))
        return True

    def _give_back(self, claim: int, option: RequestOption) -> None:
        """Give back the device that was taken last."""
        result = self._results[claim].pop()
        users = self._mine[result.device.id]
        users.pop()
        if not users:
            del self._mine[result.device.id]
        self._charge(result.device, result.consumed, -1)
        for constraint in self._constraints[claim]:
            if constraint.concerns(option):
                constraint.take_back()

    # -- counters and capacities -------------------------------------------------------------

    def _consumed(
        self, claim: PendingClaim, option: RequestOption, device: InventoryDevice
    ) -> Mapping[str, int] | None:
        """Return the consumed capacity of a device; None if counters or capacity are short."""
        if needs_gate(device, self._gates):
            return None
        consumed = self._capacity_taken(claim, option, device) if self._gates.capacity else {}
        if self._gates.counters and not self._is_counted(device):
            for counter, amount in consumption(device):
                used = self._use.counters[counter] + self._counters.get(counter, 0)
                is_known = not self._use.withdrawn[device.id[:2]]
                if not is_known or used + amount > self._limits.get(counter, 0):
                    return None
        return consumed

    def _requested(
        self, claim: PendingClaim, option: RequestOption, device: InventoryDevice
    ) -> Mapping[str, int] | None:
        """Return the capacity that a request consumes; None if an unused device has too little.

        Raises AllocationError for an amount that no device can have.
        """
        try:
            return consumed_capacity(
                device, option.capacity, fractional=self._gates.fractional_ranges
            )
        except CapacityError as error:
            raise AllocationError(
                f"claim {claim.key}, request {option.short_name}: checking capacity for device "
                f"{'/'.join(device.id)}: {error}"
            ) from None

    def _capacity_taken(
        self, claim: PendingClaim, option: RequestOption, device: InventoryDevice
    ) -> Mapping[str, int] | None:
        """Return the capacity that a request consumes; None if it is insufficient."""
        consumed = self._requested(claim, option, device)
        for name, amount in (consumed or {}).items():
            key = device.id, name
            used = self._use.capacity[key] + self._capacity.get(key, 0)
            if used + amount > device.spec.capacity[name].value.nanos:
                return None
        return consumed

    def _is_counted(self, device: InventoryDevice) -> bool:
        """Return whether the counters of a shared device are charged already."""
        in_use = self._use.devices[device.id] or self._mine.get(device.id)
        return self._is_shared(device) and bool(in_use)

    def _charge(self, device: InventoryDevice, consumed: Mapping[str, int], sign: int) -> None:
        for name, amount in consumed.items():
            key = device.id, name
            self._capacity[key] = self._capacity.get(key, 0) + sign * amount
        if self._gates.counters and not self._is_counted(device):
            for counter, amount in consumption(device):
                self._counters[counter] = self._counters.get(counter, 0) + sign * amount

    # -- signatures of devices ---------------------------------------------------------------

    def _signature(self, device: InventoryDevice) -> Hashable:
        """Return a value that is equal for devices that this search can't distinguish."""
        known = self._signatures.get(device.id)
        if known is None:
            spec = device.spec
            known = self._signatures[device.id] = (
                tuple(
                    self._answer(option, device)
                    for claim in self._claims
                    for request in claim.requests
                    for option in request.options
                ),
                tuple(
                    device.attribute(constraint.attribute)
                    for constraints in self._constraints
                    for constraint in constraints
                ),
                self._use.devices[device.id] > 0,
                any(device in devices for devices in self._whole.values()),
                device.id if self._is_shared(device) or self._whole else None,
                (device.id[:2], tuple(consumption(device))) if self._gates.counters else None,
                needs_gate(device, self._gates),
                spec.taints if self._gates.taints else None,
                tuple(spec.capacity.items()) and device.id if self._gates.capacity else None,
            )
        return known

    @staticmethod
    def _answer(option: RequestOption, device: InventoryDevice) -> bool | str:
        try:
            return option.selects(device)
        except AllocationError as fault:
            return str(fault)


def needs_gate(device: InventoryDevice, gates: AllocatorGates) -> bool:
    """Return whether a device needs a gate that is off.

    DRAOptionalNodeOperations is never on.
    """
    if device.slice.skip_node_operations:
        return True
    return bool(device.spec.consumes_counters) and not gates.counters


def is_allocatable(device: InventoryDevice, gates: AllocatorGates) -> bool:
    """Return whether a device can be allocated with respect to binding conditions."""
    return gates.binding_conditions or not device.spec.binding_conditions


def is_tolerated(option: RequestOption, device: InventoryDevice) -> bool:
    """Return whether a request tolerates all NoSchedule and NoExecute taints of a device."""
    return all(
        any(tolerates(toleration, taint) for toleration in option.tolerations)
        for taint in device.spec.taints
        if taint.effect in FORBIDDING
    )
