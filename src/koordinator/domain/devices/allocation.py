"""Allocated devices of a pod, and the annotation that records them.

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
    """Amounts allocated from one device."""

    minor: int
    amounts: Amounts
    functions: tuple[AllocatedVirtualFunction, ...] = ()
    template: str = ""


#: Devices by type, in the order of their choice.
Allocation = Mapping[DeviceType, tuple[Taken, ...]]


def completed(amounts: Amounts, total: Sequence[int]) -> Amounts:
    """Return the amounts of a GPU with memory both in bytes and in percent.

    The missing one is derived. The percentage is computed in floating point and truncated, as in
    the original.
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
    """Return the content of the annotation; ``ids`` are the ids of the node's devices."""
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
    """Return the annotation whose content is ``to_annotation``."""
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
    """Parse the annotation; unknown types and invalid minors are left out.

    Former resource names are accepted.
    """
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
    """Yield an error for each type with minors that are left out as invalid."""
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
