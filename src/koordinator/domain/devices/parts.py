"""A request resolved for one model: number of devices of each type, and candidates.

Source: koordinator pkg/scheduler/plugins/deviceshare: devicehandler_default.go
``CalcDesiredRequestsAndCount``; device_allocator.go ``Prepare``.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from koordinator.api.annotations.devices import DeviceAllocateStrategy
from koordinator.api.device import DeviceType, VirtualFunction
from koordinator.api.resource_names import WHOLE_DEVICE
from koordinator.domain.devices.allocation import (
    NO_VIRTUAL_FUNCTION,
    NOT_REPORTED,
    DeviceAmounts,
    DeviceShortage,
)
from koordinator.domain.devices.model import DeviceGroup, NodeModel
from koordinator.domain.devices.pod_request import DeviceTypeRequest, PodDeviceRequest


@dataclass(frozen=True, slots=True)
class DevicePart:
    """``count`` devices of one type, each with these amounts."""

    group: DeviceGroup
    count: int
    amounts: DeviceAmounts
    requests: tuple[tuple[int, int], ...]  # (index, amount) of the non-zero amounts
    selected: int  # devices whose labels match
    is_share: bool = False
    #: matching virtual functions by minor, in order; None: none is needed
    functions: Mapping[int, tuple[VirtualFunction, ...]] | None = None

    @property
    def kind(self) -> DeviceType:
        return self.group.kind

    def candidates(self, offered: int, numa: Collection[int] | None) -> int:
        """Return the devices that are offered, selected and on these NUMA nodes if given."""
        serving = offered & self.selected
        return serving if numa is None else serving & self.group.on_numa(numa)

    def free_function(self, minor: int, taken: Collection[str]) -> VirtualFunction | None:
        """Return the first matching virtual function of a device that is not ``taken``."""
        mine = (self.functions or {}).get(minor, ())
        return next((function for function in mine if function.bus_id not in taken), None)

    def with_function(self, taken: Mapping[int, Collection[str]]) -> int:
        """Return the devices with a free matching function; all if none is needed.

        ``taken`` are bus ids by minor; a missing minor has all its functions free.
        """
        if self.functions is None:
            return self.group.mask
        mask = 0
        for minor, functions in self.functions.items():
            busy = taken.get(minor)
            free = functions if not busy else self.free_function(minor, busy)
            if free:
                mask |= 1 << minor
        return mask


def parts_of(
    model: NodeModel, pod_request: PodDeviceRequest
) -> tuple[DevicePart, ...] | DeviceShortage:
    """Return the parts of the request, or the reason why no node of the model can serve it."""
    return _parts(model, pod_request.wants)


def early_parts_of(
    model: NodeModel, pod_request: PodDeviceRequest, parts: tuple[DevicePart, ...] | DeviceShortage
) -> tuple[DevicePart, ...] | DeviceShortage:
    """Return the parts that are checked before a node is chosen.

    If the secondary devices are paired with whole GPUs by hardware design, the leading type
    suffices.
    """
    planned = (
        model.secondaries_planned and pod_request.gpu is not None and not pod_request.gpu.is_share
    )
    if not planned or not pod_request.joint:
        return parts
    return _parts(model, (want for want in pod_request.wants if want.kind is pod_request.joint[0]))


def _parts(
    model: NodeModel, wants: Iterable[DeviceTypeRequest]
) -> tuple[DevicePart, ...] | DeviceShortage:
    parts = []
    for want in wants:
        part = _part(want, model.group(want.kind))
        if isinstance(part, DeviceShortage):
            return part
        parts.append(part)
    for part in parts:
        if part.functions is not None and not any(d.groups for d in part.group.devices):
            return NO_VIRTUAL_FUNCTION[part.kind]
    return tuple(parts)


def _part(want: DeviceTypeRequest, group: DeviceGroup | None) -> DevicePart | DeviceShortage:
    if group is None:
        return NOT_REPORTED[want.kind]
    selected = group.labelled(want.selector)
    count, amounts = want.request.count, want.request.amounts
    if want.kind is not DeviceType.GPU and count == 1:  # several whole devices: no strategy applies
        if want.strategy is DeviceAllocateStrategy.APPLY_FOR_ALL:
            count = selected.bit_count()
            if not count:
                return NOT_REPORTED[want.kind]
        elif want.strategy is DeviceAllocateStrategy.REQUESTS_AS_COUNT:
            (count,) = amounts
            amounts = (WHOLE_DEVICE if want.is_exclusive else 1,)
    selector = want.function_selector
    return DevicePart(
        group=group,
        count=count,
        amounts=amounts,
        requests=tuple([(place, amount) for place, amount in enumerate(amounts) if amount]),
        selected=selected,
        is_share=want.request.is_share,
        functions=None
        if selector is None
        else {device.minor: group.functions(device.minor, selector) for device in group.devices},
    )
