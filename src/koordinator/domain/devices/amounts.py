"""Amounts of a device as tuples, for comparison, summation and conversion to arrays."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from koordinator.api.core import ResourceList
from koordinator.api.device import DeviceType
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
from koordinator.foundation.quantity import Quantity

Amounts = tuple[int, ...]  # one per name of the device type, whole units

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


def amounts_of(kind: DeviceType, resources: ResourceList) -> Amounts:
    """Return the amounts, clipped to 0..LARGEST.

    Missing names count as 0; former names are accepted.
    """
    named = read_amounts(current_names(resources))
    return tuple(named.get(name, 0) for name in NAMES[kind])


def resources_of(kind: DeviceType, amounts: Amounts) -> ResourceList:
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
