"""MetaX; the device plugin reads core and memory of each card.

Source: koordinator pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go.
"""

from collections.abc import Sequence

from koordinator.api.annotations.devices import (
    HAMI_LOCK,
    METAX_ALLOCATED,
    DeviceAllocation,
    MetaXAllocation,
)
from koordinator.api.labels import GpuVendor
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY
from koordinator.domain.devices.vendors.vendor import AdaptationError, Vendor

_MEMORY_UNIT = 1024 * 1024  # bytes


def _adapt(devices: Sequence[DeviceAllocation], *, model: str, now_ns: int) -> dict[str, str]:  # noqa: ARG001 (an Adapter)
    return METAX_ALLOCATED.entry((tuple(_card(device) for device in devices),))


def _card(device: DeviceAllocation) -> MetaXAllocation:
    if GPU_CORE not in device.resources:
        raise AdaptationError("gpu core resource is required")
    memory = device.resources[GPU_MEMORY].value() if GPU_MEMORY in device.resources else 0
    if memory < _MEMORY_UNIT:
        raise AdaptationError(f"gpu memory must not be less than {_MEMORY_UNIT} bytes")
    return MetaXAllocation(
        uuid=device.id,
        compute=device.resources[GPU_CORE].value(),
        v_ram=memory // _MEMORY_UNIT,
    )


METAX = Vendor(labels=(GpuVendor.METAX,), adapt=_adapt, node_lock=HAMI_LOCK)
