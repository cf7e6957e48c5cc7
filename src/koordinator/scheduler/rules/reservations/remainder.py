"""Remaining devices, CPUs and NUMA amounts of a reservation after its users."""

from collections.abc import Iterable

from koordinator.api.device import DeviceType
from koordinator.domain.amounts import remaining, total
from koordinator.domain.devices.allocation import NO_DEVICE, Allocation, Taken
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.trial import NOT_ENOUGH_CPUS


def devices_left(allocated: Allocation, users: Iterable[Allocation]) -> Allocation:
    """Return the devices with their remaining amounts; exhausted devices are left out.

    Usage of other devices, or beyond the held amounts, is charged to the users.
    """
    taken: dict[tuple[DeviceType, int], list[Taken]] = {}
    for allocation in users:
        for kind, devices in allocation.items():
            for device in devices:
                taken.setdefault((kind, device.minor), []).append(device)
    if not taken:
        return allocated
    left = {
        kind: tuple(
            rest
            for device in devices
            if (rest := _rest(device, taken.get((kind, device.minor), ()))) is not None
        )
        for kind, devices in allocated.items()
    }
    return {kind: devices for kind, devices in left.items() if devices}


def _rest(device: Taken, taken: Iterable[Taken]) -> Taken | None:
    amounts = list(device.amounts)
    functions = device.functions
    for part in taken:
        amounts = [
            max(mine - theirs, 0) for mine, theirs in zip(amounts, part.amounts, strict=True)
        ]
        gone = {function.bus_id for function in part.functions}
        functions = tuple(function for function in functions if function.bus_id not in gone)
    if not any(amounts):
        return None
    return Taken(device.minor, tuple(amounts), functions, device.template)


def numa_left(
    allocated: NumaAllocation | None, users: Iterable[NumaAllocation]
) -> NumaAllocation | None:
    """Return the remaining CPUs and amounts by NUMA node; None if nothing is left."""
    if allocated is None:
        return None
    cpus, taken = allocated.cpus, list(users)
    if not taken:
        return allocated
    for user in taken:
        cpus &= ~user.cpus
    zones = {
        zone: remaining(amounts, total(user.zones.get(zone, {}) for user in taken))
        for zone, amounts in allocated.zones.items()
    }
    zones = {zone: {n: a for n, a in amounts.items() if a} for zone, amounts in zones.items()}
    zones = {zone: amounts for zone, amounts in zones.items() if amounts}
    if not cpus and not zones:
        return None
    return NumaAllocation(cpus, zones, allocated.exclusive_policy)


def missing_parts(
    allocated: Allocation,
    numa: NumaAllocation | None,
    users: Iterable[tuple[Allocation, NumaAllocation | None]],
) -> tuple[str, ...]:
    """Return reasons for devices and CPUs of users that the reservation does not hold.

    Types that the reservation does not hold are ignored.
    """
    reasons: dict[str, None] = {}
    for devices, cpus in users:
        for kind, taken in allocated.items():
            minors = {device.minor for device in devices.get(kind, ())}
            if not minors <= {device.minor for device in taken}:
                reasons[NO_DEVICE[kind].reason] = None
        if numa is not None and numa.cpus and cpus is not None and cpus.cpus & ~numa.cpus:
            reasons[NOT_ENOUGH_CPUS] = None
    return tuple(reasons)
