"""What a pod was given, and the annotation that says so.

Source: koordinator apis/extension/device_share.go, ``DeviceAllocations``;
pkg/scheduler/plugins/deviceshare/utils.go, ``fillGPUTotalMem``.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Raw, Struct

from koordinator.api.annotations.devices import (
    ALLOCATED,
    AllocatedVirtualFunction,
    DeviceAllocation,
    DeviceAllocationExtension,
    DeviceAllocations,
)
from koordinator.api.codec import encode_part
from koordinator.api.device import DeviceType
from koordinator.api.meta import ApiStruct
from koordinator.domain.devices.amounts import MEMORY, RATIO, Amounts, amounts_of, resources_of
from koordinator.domain.masks import MAX_MINOR
from koordinator.foundation.errors import InputError


class Taken(Struct, frozen=True):
    """What was taken of one device."""

    minor: int
    amounts: Amounts
    functions: tuple[AllocatedVirtualFunction, ...] = ()
    template: str = ""


#: In the order in which the devices were chosen.
Allocation = Mapping[DeviceType, tuple[Taken, ...]]


def completed(amounts: Amounts, total: Sequence[int]) -> Amounts:
    """Return the amounts of a GPU with memory in bytes and in percent, whichever was asked for.

    The percentage is computed and cut as the original does it, in floating point.
    """
    memory, ratio = amounts[MEMORY], amounts[RATIO]
    if memory and not ratio:
        ratio = int(memory / total[MEMORY] * 100)
    elif not memory:
        memory = ratio * total[MEMORY] // 100
    return (*amounts[:MEMORY], memory, ratio, *amounts[RATIO + 1 :])


def to_annotation(
    allocation: Allocation, ids: Mapping[DeviceType, Mapping[int, str]]
) -> DeviceAllocations:
    """Return the content of the annotation; ``ids`` are those of the node's devices."""
    return {
        str(kind): tuple(
            DeviceAllocation(
                minor=taken.minor,
                resources=resources_of(kind, taken.amounts),
                id=ids.get(kind, {}).get(taken.minor, ""),
                extension=_extension(taken),
            )
            for taken in devices
        )
        for kind, devices in allocation.items()
    }


class _Written(ApiStruct, frozen=True, kw_only=True):
    """``DeviceAllocation`` with the text of its resources."""

    minor: int
    resources: Raw
    id: str = ""
    extension: DeviceAllocationExtension | None = None


def annotation_entry(
    allocation: Allocation, ids: Mapping[DeviceType, Mapping[int, str]]
) -> dict[str, str]:
    """Return the annotation ``to_annotation`` is the content of."""
    written = {
        str(kind): [
            _Written(
                minor=taken.minor,
                resources=_resources_text(kind, taken.amounts),
                id=ids.get(kind, {}).get(taken.minor, ""),
                extension=_extension(taken),
            )
            for taken in devices
        ]
        for kind, devices in allocation.items()
    }
    return {ALLOCATED.key: encode_part(written).decode()}


@lru_cache(maxsize=4096)
def _resources_text(kind: DeviceType, amounts: Amounts) -> Raw:
    return Raw(encode_part(resources_of(kind, amounts)))


def from_annotation(allocations: DeviceAllocations) -> Allocation:
    """Return what the annotation says of types and minors that can be; former names count."""
    return {
        kind: tuple(
            Taken(
                minor=device.minor,
                amounts=amounts_of(kind, device.resources),
                functions=device.extension.vfs if device.extension else (),
                template=device.extension.gpu_shared_resource_template if device.extension else "",
            )
            for device in allocations[kind]
            if _can_be(device.minor)
        )
        for kind in DeviceType
        if kind in allocations
    }


def impossible_minors(allocations: DeviceAllocations) -> Iterator[InputError]:
    """Yield what is left out of the annotation because no device has such a minor."""
    for kind, devices in allocations.items():
        wrong = [device.minor for device in devices if not _can_be(device.minor)]
        if wrong:
            accepted = f"numbers from 0 to {MAX_MINOR}"
            yield InputError(
                f"minors must be {accepted}, got {wrong}", path=f"{ALLOCATED.path}.{kind}"
            )


def _can_be(minor: int) -> bool:
    return 0 <= minor <= MAX_MINOR


def _extension(taken: Taken) -> DeviceAllocationExtension | None:
    if not taken.functions and not taken.template:
        return None
    return DeviceAllocationExtension(
        vfs=taken.functions, gpu_shared_resource_template=taken.template
    )
