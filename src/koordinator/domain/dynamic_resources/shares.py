"""Counters and capacities that several allocations consume.

Devices that are partitions of another device consume counters of their pool; a device that allows
several allocations is shared by amounts of its capacity. All amounts are in nanos.

Source: Kubernetes enhancements 4815 (partitionable devices) and 5075 (consumable capacity);
k8s.io/dynamic-resource-allocation structured/internal/experimental/consumable_capacity.go.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from typing import Final, TypeVar

from koordinator.api.dynamic_resources import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
)
from koordinator.domain.dynamic_resources.inventory import DeviceId, InventoryDevice, Pool, PoolKey
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import NANOS, Quantity

KeyT = TypeVar("KeyT", bound=Hashable)
_THOUSANDTH: Final = NANOS // 1000
_MAX_INT64: Final = 2**63 - 1
_NOT_REPRESENTABLE: Final = (
    "capacity request cannot be represented in the device's range arithmetic"
)
CounterKey = tuple[str, str, str, str]  # driver, pool, counter set, counter


@dataclass(slots=True)
class DevicesInUse:
    """Allocated devices, counters, and consumed capacity of shared devices."""

    devices: Counter[DeviceId] = field(default_factory=Counter)  # allocations without admin access
    whole: Counter[DeviceId] = field(default_factory=Counter)  # exclusive allocations
    counters: Counter[CounterKey] = field(default_factory=Counter)
    #: allocated devices that are no longer published; their consumed counters are unknown
    withdrawn: Counter[PoolKey] = field(default_factory=Counter)
    capacity: Counter[tuple[DeviceId, str]] = field(default_factory=Counter)

    def charge(self, device: DeviceId, consumed: Mapping[str, int] | None, sign: int) -> None:
        """Add (1) or remove (-1) an allocation; ``consumed`` is None for an exclusive one."""
        _count(self.devices, device, sign)
        if consumed is None:
            _count(self.whole, device, sign)
            return
        for name, amount in consumed.items():
            _count(self.capacity, (device, name), sign * amount)

    def charge_counters(
        self, pool: PoolKey, taken: Iterable[tuple[CounterKey, int]] | None, sign: int
    ) -> None:
        """Add (1) or remove (-1) consumed counters; None for an unpublished device."""
        if taken is None:
            _count(self.withdrawn, pool, sign)
            return
        for key, amount in taken:
            _count(self.counters, key, sign * amount)


def _count(counts: Counter[KeyT], key: KeyT, more: int) -> None:
    counts[key] += more
    if not counts[key]:
        del counts[key]


def consumption(device: InventoryDevice) -> Iterable[tuple[CounterKey, int]]:
    """Yield the counters that a device consumes."""
    driver, pool, _ = device.id
    for part in device.spec.consumes_counters:
        for name, counter in part.counters.items():
            yield (driver, pool, part.counter_set, name), counter.value.nanos


def limits_of(pool: Pool) -> dict[CounterKey, int]:
    """Return the total of each counter of a pool."""
    return {
        (pool.driver, pool.name, name, counter): amount.value.nanos
        for name, counters in pool.counter_sets.items()
        for counter, amount in counters.counters.items()
    }


class CapacityError(ValueError):
    """An amount of capacity that no device can have: the search ends."""


def consumed_capacity(
    device: InventoryDevice, requests: Mapping[str, Quantity], *, fractional: bool = False
) -> Mapping[str, int] | None:
    """Return the capacity that an allocation consumes; None if the request can't be satisfied.

    An exclusive device is consumed entirely; the request is a lower bound of its capacity.
    ``fractional``: ranges count in thousandths instead of in ones.  Raises CapacityError.
    """
    capacities = device.spec.capacity
    if any(name not in capacities for name in requests):
        return None
    amounts = {
        name: _amount(name, capacity, requests.get(name), fractional=fractional)
        for name, capacity in capacities.items()
    }
    taken: dict[str, int] = {}
    for name, amount in amounts.items():
        if amount is None or amount > capacities[name].value.nanos:
            return None
        taken[name] = amount
    return taken if device.spec.allow_multiple_allocations else {}


def _amount(
    name: str, capacity: DeviceCapacity, request: Quantity | None, *, fractional: bool
) -> int | None:
    """Return the smallest sufficient amount that the policy allows; None if there is none."""
    if request is not None and request.nanos < 0:
        raise CapacityError(f'capacity "{name}": capacity value is negative')
    policy = capacity.request_policy
    amount: int | None
    if request is None:
        default = policy.default if policy is not None else None
        amount = (capacity.value if default is None else default).nanos
    elif policy is None:
        amount = request.nanos
    else:
        amount = _by_policy(name, policy, request, fractional=fractional)
    return None if amount is not None and amount < 0 else amount  # a driver's negative capacity


def _by_policy(
    name: str, policy: CapacityRequestPolicy, request: Quantity, *, fractional: bool
) -> int | None:
    if policy.valid_values:
        enough = [value.nanos for value in policy.valid_values if value.nanos >= request.nanos]
        return min(enough, default=None)
    allowed = policy.valid_range
    if allowed is None:
        return request.nanos
    amount = max(request.nanos, allowed.min.nanos)
    if amount > allowed.min.nanos and allowed.step is not None and allowed.step.nanos > 0:
        in_thousandths = fractional and _is_in_thousandths(allowed)
        if in_thousandths and request.nanos % _THOUSANDTH:
            raise CapacityError(
                f'capacity "{name}": {_NOT_REPRESENTABLE}: request {request} is not a '
                "representable milli value"
            )
        unit = _THOUSANDTH if in_thousandths else NANOS
        amount = _stepped(allowed.min, allowed.step, request, unit)
        if amount > _MAX_INT64 * unit:
            raise CapacityError(
                f'capacity "{name}": {_NOT_REPRESENTABLE}: request {request} exceeds MaxInt64'
            )
    if allowed.max is not None and amount > allowed.max.nanos:
        return None
    return amount


def _is_in_thousandths(allowed: CapacityRequestPolicyRange) -> bool:
    amounts = (allowed.min, allowed.max, allowed.step)
    return not any(amount.nanos % _THOUSANDTH for amount in amounts if amount is not None)


def _stepped(least: Quantity, step: Quantity, request: Quantity, unit: int) -> int:
    """Return the first amount from ``least`` on in steps that is at least the request.

    All amounts are rounded up to whole units first.
    """
    first, each, wanted = (-(-one.nanos // unit) for one in (least, step, request))
    return (first + -(-(wanted - first) // each) * each) * unit
