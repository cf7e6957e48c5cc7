"""Counters and capacities that several allocations consume.

Devices that are partitions of another device consume counters of their pool; a device that allows
several allocations is shared by amounts of its capacity. All amounts are in nanos.

Source: Kubernetes enhancements 4815 (partitionable devices) and 5075 (consumable capacity);
k8s.io/dynamic-resource-allocation structured/internal/experimental/consumable_capacity.go.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from koordinator.api.dynamic_resources import CapacityRequestPolicy, DeviceCapacity
from koordinator.domain.dynamic_resources.inventory import DeviceId, OfferedDevice, Pool, PoolKey
from koordinator.foundation.quantity import Quantity

KeyT = TypeVar("KeyT", bound=Hashable)
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


def consumption(device: OfferedDevice) -> Iterable[tuple[CounterKey, int]]:
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


def consumed_capacity(
    device: OfferedDevice, requests: Mapping[str, Quantity]
) -> Mapping[str, int] | None:
    """Return the capacity that an allocation consumes; None if the request can't be satisfied.

    An exclusive device is consumed entirely; the request is a lower bound of its capacity.
    """
    capacities = device.spec.capacity
    if any(name not in capacities for name in requests):
        return None
    taken: dict[str, int] = {}
    for name, capacity in capacities.items():
        amount = _amount(capacity, requests.get(name))
        if amount is None or amount > capacity.value.nanos:
            return None
        taken[name] = amount
    return taken if device.spec.allow_multiple_allocations else {}


def _amount(capacity: DeviceCapacity, request: Quantity | None) -> int | None:
    """Return the smallest sufficient amount that the policy allows; None if there is none."""
    policy = capacity.request_policy
    if policy is None:
        return request.nanos if request is not None else capacity.value.nanos
    if request is None:
        return policy.default.nanos if policy.default is not None else capacity.value.nanos
    return _by_policy(policy, request.nanos)


def _by_policy(policy: CapacityRequestPolicy, request: int) -> int | None:
    if policy.valid_values:
        enough = [value.nanos for value in policy.valid_values if value.nanos >= request]
        return min(enough, default=None)
    allowed = policy.valid_range
    if allowed is None:
        return request
    amount = max(request, allowed.min.nanos)
    if allowed.step is not None and allowed.step.nanos > 0:
        steps = -((allowed.min.nanos - amount) // allowed.step.nanos)
        amount = allowed.min.nanos + steps * allowed.step.nanos
    if allowed.max is not None and amount > allowed.max.nanos:
        return None
    return amount
