"""What pods hold of a node's devices.

Sums and counts of what each pod was given: the order in which pods come and go does not matter,
and neither does what the node reports.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import Allocation, Taken
from koordinator.domain.devices.amounts import Amounts
from koordinator.foundation.errors import BugError


@dataclass(frozen=True, slots=True)
class Held:
    """What pods hold of one device."""

    amounts: Amounts
    times: int = 1  # how often it was taken; anything above 0 is a device in use
    functions: Mapping[str, int] = field(default_factory=dict)  # how often, by bus id


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """What pods hold, by type and minor; devices that nobody uses are missing."""

    held: Mapping[DeviceType, Mapping[int, Held]] = field(default_factory=dict)

    def of(self, kind: DeviceType) -> Mapping[int, Held]:
        """Return what is held of the devices of a type."""
        return self.held.get(kind, {})

    def plus(self, allocation: Allocation) -> "DeviceUsage":
        """Return the usage when a pod with this allocation comes."""
        return self._changed(allocation, 1)

    def minus(self, allocation: Allocation) -> "DeviceUsage":
        """Return the usage when such a pod goes.

        Raises BugError if the allocation is no part of the usage.
        """
        return self._changed(allocation, -1)

    def _changed(self, allocation: Allocation, sign: int) -> "DeviceUsage":
        held = dict(self.held)
        for kind, devices in allocation.items():
            mine = dict(held.get(kind, {}))
            for taken in devices:
                changed = _changed(mine.get(taken.minor), taken, sign)
                if changed.times:
                    mine[taken.minor] = changed
                else:
                    del mine[taken.minor]
            if mine:
                held[kind] = mine
            else:
                held.pop(kind, None)
        return DeviceUsage(held)


def _changed(before: Held | None, taken: Taken, sign: int) -> Held:
    if before is None:
        before = Held((0,) * len(taken.amounts), times=0)
    functions = dict(before.functions)
    for function in taken.functions:
        functions[function.bus_id] = functions.get(function.bus_id, 0) + sign
    after = Held(
        amounts=tuple(
            have + sign * more for have, more in zip(before.amounts, taken.amounts, strict=True)
        ),
        times=before.times + sign,
        functions={bus_id: times for bus_id, times in functions.items() if times},
    )
    gone = after.times == 0 and (any(after.amounts) or after.functions)
    if gone or min(after.times, *after.amounts, *after.functions.values()) < 0:
        raise BugError(f"{taken} is given back but was not taken from {before}")
    return after
