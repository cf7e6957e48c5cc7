"""Amounts of devices, reasons of shortage, and the allocation of devices to a pod.

Source: koordinator apis/extension/device_share.go, ``DeviceAllocations``;
pkg/scheduler/plugins/deviceshare/utils.go, ``fillGPUTotalMem``; koordinator
pkg/scheduler/plugins/deviceshare: allocator_gpu.go, device_allocator.go,
devicehandler_default.go, topology_hint.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec import Raw, Struct

from koordinator.api.annotations.devices import (
    ALLOCATED,
    AllocatedVirtualFunction,
    DeviceAllocation,
    DeviceAllocationExtension,
    DeviceAllocations,
)
from koordinator.api.codec import encode_part
from koordinator.api.core import ResourceList
from koordinator.api.device import DeviceType
from koordinator.api.meta import ApiStruct
from koordinator.api.resource_names import (
    CURRENT_DEVICE_NAMES,
    FPGA,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
)
from koordinator.domain.amounts import read_amounts
from koordinator.domain.devices.vendors import VENDORS
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import MAX_MINOR
from koordinator.foundation.quantity import Quantity

DeviceAmounts = tuple[int, ...]  # one per name of the device type, whole units

#: Indices into a GPU's amounts; amounts of single vendors follow.
CORE, MEMORY, RATIO = range(3)

#: Resource names of each device type, in the order of its amounts.
NAMES: Final[Mapping[DeviceType, tuple[str, ...]]] = MappingProxyType(
    {
        DeviceType.GPU: (
            GPU_CORE,
            GPU_MEMORY,
            GPU_MEMORY_RATIO,
            *(name for vendor in VENDORS for name in vendor.amounts),
        ),
        DeviceType.RDMA: (RDMA,),
        DeviceType.FPGA: (FPGA,),
    }
)

Value = TypeVar("Value")


def amounts_of(kind: DeviceType, resources: ResourceList) -> DeviceAmounts:
    """Return the amounts, each clipped to 0..LARGEST_OF_PART.

    Missing names count as 0; former names are accepted.
    """
    named = read_amounts(current_names(resources))
    return tuple(named.get(name, 0) for name in NAMES[kind])


def resources_of(kind: DeviceType, amounts: DeviceAmounts) -> ResourceList:
    """Return the non-zero amounts by name."""
    return {
        name: Quantity.from_int(amount, binary=name == GPU_MEMORY)
        for name, amount in zip(NAMES[kind], amounts, strict=True)
        if amount
    }


def current_names(resources: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the resources with former names of device resources replaced by current ones.

    If a resource is present under both names, the current one wins.
    """
    if CURRENT_DEVICE_NAMES.keys().isdisjoint(resources):
        return resources
    renamed = {CURRENT_DEVICE_NAMES.get(name, name): value for name, value in resources.items()}
    current = {n: value for n, value in resources.items() if n not in CURRENT_DEVICE_NAMES}
    return renamed | current


class TakenDevice(Struct, frozen=True):
    """Amounts allocated from one device."""

    minor: int
    amounts: DeviceAmounts
    functions: tuple[AllocatedVirtualFunction, ...] = ()
    template: str = ""


#: Devices by type, in the order of their choice.
Allocation = Mapping[DeviceType, tuple[TakenDevice, ...]]


def completed(amounts: DeviceAmounts, total: Sequence[int]) -> DeviceAmounts:
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
def _resources_text(kind: DeviceType, amounts: DeviceAmounts) -> Raw:
    return Raw(encode_part(resources_of(kind, amounts)))


def from_annotation(allocations: DeviceAllocations) -> Allocation:
    """Parse the annotation; unknown types and invalid minors are left out.

    Former resource names are accepted.
    """
    return {
        kind: tuple(
            TakenDevice(
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


def _extension(taken: TakenDevice) -> DeviceAllocationExtension | None:
    if not taken.functions and not taken.template:
        return None
    return DeviceAllocationExtension(
        vfs=taken.functions, gpu_shared_resource_template=taken.template
    )


@dataclass(frozen=True, slots=True)
class DeviceShortage:
    """A reason; ``resolvable``: removing pods from the node might help."""

    reason: str
    resolvable: bool = True


NO_PARTITION_TABLE: Final = DeviceShortage("node(s) missing GPU Partition Table", resolvable=False)
NO_PARTITION_OF_SIZE: Final = DeviceShortage(
    "node(s) Unsupported number of GPU requests", resolvable=False
)
NO_PARTITION: Final = DeviceShortage("Insufficient Partitioned GPU Devices")
NO_TOPOLOGY: Final = DeviceShortage("node(s) missing GPU Device Topology Tree", resolvable=False)
SEVERAL_SHARES: Final = DeviceShortage("node(s) Unsupported Multi-Shared GPU", resolvable=False)
NO_SCOPE: Final = DeviceShortage("Insufficient Topology Scoped GPU Devices")
NO_GPU: Final = DeviceShortage("Insufficient GPU Devices")
NO_TEMPLATE: Final = DeviceShortage("no matched GPU shared resource template", resolvable=False)
NOT_JOINT: Final = DeviceShortage("node(s) Device Joint-Allocate rules violation")
NO_NUMA_NODE: Final = DeviceShortage("Insufficient NUMA Scoped Devices", resolvable=False)

#: Reasons where enough devices may exist, but no combination that may be allocated together.
NOT_TOGETHER: Final = frozenset(
    one.reason
    for one in (NO_PARTITION_OF_SIZE, NO_PARTITION, NO_SCOPE, NO_GPU, NOT_JOINT, NO_NUMA_NODE)
)

NO_DEVICE: Final = {kind: DeviceShortage(f"Insufficient {kind} devices") for kind in DeviceType}
NOT_REPORTED: Final = {
    kind: DeviceShortage(f"Insufficient {kind} devices", resolvable=False) for kind in DeviceType
}
NO_VIRTUAL_FUNCTION: Final = {
    kind: DeviceShortage(f"Insufficient {kind} VirtualFunctions", resolvable=False)
    for kind in DeviceType
}
