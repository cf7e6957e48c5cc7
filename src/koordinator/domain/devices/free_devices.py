"""Devices of a node that pods hold, and devices that a pod may take.

Source: koordinator pkg/scheduler/plugins/deviceshare/device_cache.go,
``calcFreeWithPreemptible``, ``filter``; allocator_gpu.go, ``getRealUsed``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import NamedTuple

from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import Allocation, DeviceAmounts, TakenDevice
from koordinator.domain.devices.model import NodeDevices
from koordinator.domain.devices.pod_request import DevicePart
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import bits_of, mask_of


@dataclass(frozen=True, slots=True)
class UsedDevice:
    """Usage of one device."""

    amounts: DeviceAmounts
    times: int = 1  # number of allocations; above 0: in use
    functions: Mapping[str, int] = field(default_factory=dict)  # number of allocations by bus id


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """Usage by type and minor; unused devices are missing."""

    by_kind: Mapping[DeviceType, Mapping[int, UsedDevice]] = field(default_factory=dict)

    def of(self, kind: DeviceType) -> Mapping[int, UsedDevice]:
        """Return the usage of the devices of a type."""
        return self.by_kind.get(kind, {})

    def plus(self, allocation: Allocation) -> "DeviceUsage":
        """Return the usage after a pod with this allocation was added."""
        return self._changed(allocation, 1)

    def minus(self, allocation: Allocation) -> "DeviceUsage":
        """Return the usage after a pod with this allocation was removed.

        Raises BugError if the allocation is not part of the usage.
        """
        return self._changed(allocation, -1)

    def _changed(self, allocation: Allocation, sign: int) -> "DeviceUsage":
        by_kind = dict(self.by_kind)
        for kind, devices in allocation.items():
            by_minor = dict(by_kind.get(kind, {}))
            for taken in devices:
                changed = _changed(by_minor.get(taken.minor), taken, sign)
                if changed.times:
                    by_minor[taken.minor] = changed
                else:
                    del by_minor[taken.minor]
            if by_minor:
                by_kind[kind] = by_minor
            else:
                by_kind.pop(kind, None)
        return DeviceUsage(by_kind)


def _changed(before: UsedDevice | None, taken: TakenDevice, sign: int) -> UsedDevice:
    if before is None:
        before = UsedDevice((0,) * len(taken.amounts), times=0)
    functions = dict(before.functions)
    for function in taken.functions:
        functions[function.bus_id] = functions.get(function.bus_id, 0) + sign
    after = UsedDevice(
        amounts=tuple(
            have + sign * more for have, more in zip(before.amounts, taken.amounts, strict=True)
        ),
        times=before.times + sign,
        functions={bus_id: times for bus_id, times in functions.items() if times},
    )
    is_empty = after.times == 0 and (any(after.amounts) or after.functions)
    if is_empty or min(after.times, *after.amounts, *after.functions.values()) < 0:
        raise BugError(f"{taken} is given back but was not taken from {before}")
    return after


_UNUSED = DeviceUsage()


class FreeDevices(NamedTuple):
    """Availability of the devices of one type."""

    free: Sequence[Sequence[int]]  # (width, n_amounts), at least 0
    offered: int  # devices that may be taken
    in_use: int  # devices in use, offered or not
    used: int  # offered devices that are partly used
    #: bus ids of used virtual functions by minor; minors without any are missing
    functions: Mapping[int, Collection[str]] = MappingProxyType({})

    def fitting(self, part: DevicePart) -> int:
        """Return the devices with enough left, and a free virtual function if one is needed.

        A device with nothing left does not fit.
        """
        request, fit, bit = part.requests, 0, 1
        for free in self.free:
            for place, amount in request:
                if free[place] < amount:
                    break
            else:
                if any(free):
                    fit |= bit
            bit <<= 1
        fit &= self.offered
        return fit if part.functions is None else fit & part.with_function(self.functions)


def headrooms(
    node: NodeDevices,
    usage: DeviceUsage,
    given_back: DeviceUsage = _UNUSED,
    only: DeviceUsage | None = None,
) -> dict[DeviceType, FreeDevices]:
    """Return the availability by type of device.

    ``given_back`` counts as free: it belongs to pods that would be removed, or to a reservation
    that the pod may use. For the types in ``only`` the pod may take no more than these amounts, as
    from a reservation with the Restricted policy.
    """
    return {
        group.kind: _headroom(
            node.totals[group.kind],
            group.mask,
            usage.of(group.kind),
            given_back.of(group.kind),
            only.by_kind.get(group.kind) if only else None,
        )
        for group in node.model.groups
    }


def _headroom(
    totals: IntArray,
    offered: int,
    allocated: Mapping[int, UsedDevice],
    given_back: Mapping[int, UsedDevice],
    only: Mapping[int, UsedDevice] | None,
) -> FreeDevices:
    free = totals.tolist()
    functions: dict[int, frozenset[str]] = {}
    used = 0
    for minor, used_device in allocated.items():
        amounts, taken, is_used = used_device.amounts, used_device.functions, True
        if minor in given_back:
            back = given_back[minor]
            amounts = _less(amounts, back.amounts)
            taken = {bus: n for bus, n in taken.items() if n > back.functions.get(bus, 0)}
            is_used = any(amounts)
        if minor < len(free):
            free[minor] = _less(free[minor], amounts)
        if taken:
            functions[minor] = frozenset(taken)
        used |= is_used << minor
    if only is not None:
        offered &= mask_of(only)
        for minor in bits_of(offered):
            most = only[minor].amounts
            free[minor] = tuple(min(pair) for pair in zip(free[minor], most, strict=True))
            used |= (list(free[minor]) != totals[minor].tolist()) << minor
    return FreeDevices(free, offered, mask_of(allocated), used, functions)


def _less(have: Iterable[int], used: Iterable[int]) -> DeviceAmounts:
    return tuple(max(h - g, 0) for h, g in zip(have, used, strict=True))
