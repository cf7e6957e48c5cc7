"""Cambricon MLUs; the device plugin partitions one card per pod as annotated.

Source: koordinator pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go.
"""

from collections.abc import Sequence

from koordinator.api.annotations.devices import (
    CAMBRICON_ASSIGNED,
    CAMBRICON_LOCK,
    CAMBRICON_PROFILE,
    DeviceAllocation,
)
from koordinator.api.labels import GpuVendor
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY
from koordinator.domain.devices.vendors.vendor import AdaptationError, Vendor

_MEMORY_UNIT = 256 * 1024 * 1024  # bytes; the device plugin's min-dsmlu-unit


def _adapt(devices: Sequence[DeviceAllocation], *, model: str, now_ns: int) -> dict[str, str]:  # noqa: ARG001 (an Adapter)
    if len(devices) > 1:
        raise AdaptationError("multiple gpu share is not supported on device side")
    device = devices[0]
    if GPU_CORE not in device.resources:
        raise AdaptationError("gpu core resource is required")
    core = device.resources[GPU_CORE].value()
    memory = device.resources[GPU_MEMORY].value() if GPU_MEMORY in device.resources else 0
    if memory < _MEMORY_UNIT:
        raise AdaptationError(f"gpu memory must not be less than {_MEMORY_UNIT} bytes")
    return {
        CAMBRICON_ASSIGNED: "false",
        CAMBRICON_PROFILE: f"{device.minor}_{core}_{memory // _MEMORY_UNIT}",
    }


CAMBRICON = Vendor(labels=(GpuVendor.CAMBRICON,), adapt=_adapt, node_lock=CAMBRICON_LOCK)
