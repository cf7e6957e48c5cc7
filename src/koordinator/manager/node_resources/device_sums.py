"""What a node shows of its devices: sums over the healthy ones.

Source: koordinator pkg/slo-controller/noderesource/plugins/gpudeviceresource/plugin.go,
rdmadevicereource/plugin.go.
"""

from typing import Final

from koordinator.api.core import ResourceList
from koordinator.api.device import Device, DeviceInfo, DeviceType
from koordinator.api.labels import GPU_DRIVER_VERSION, GPU_MODEL, GPU_VENDOR, GpuVendor
from koordinator.api.resource_names import GPU, GPU_CORE, GPU_SHARED, RDMA, WHOLE_DEVICE
from koordinator.domain.devices.amounts import NAMES
from koordinator.foundation.quantity import Quantity

#: Those of single vendors among them.
GPU_RESOURCES: Final = (GPU, *NAMES[DeviceType.GPU], GPU_SHARED)
GPU_LABELS: Final = (GPU_VENDOR, GPU_MODEL, GPU_DRIVER_VERSION)
_WRAPPED = frozenset(("", GpuVendor.NVIDIA))  # vendors whose GPUs are also called by one name


def gpu_resources(device: Device | None, *, shows_shared: bool) -> ResourceList | None:
    """Return what the healthy GPUs have together; None if there is none.

    ``shows_shared`` is the gate EnableSyncGPUSharedResource.
    """
    gpus = _healthy(device, DeviceType.GPU)
    if device is None or not gpus:
        return None
    sums: ResourceList = {}
    for gpu in gpus:
        for name, amount in gpu.resources.items():
            if name in GPU_RESOURCES:
                sums[name] = sums[name] + amount if name in sums else amount
    if device.metadata.labels.get(GPU_VENDOR, "") in _WRAPPED:
        sums[GPU] = sums.get(GPU_CORE, Quantity(0))
    if shows_shared:
        sums[GPU_SHARED] = Quantity.from_int(len(gpus) * WHOLE_DEVICE)
    return sums


def gpu_labels(device: Device | None) -> dict[str, str]:
    """Return the labels that a node takes over; none without healthy GPUs."""
    if device is None or not _healthy(device, DeviceType.GPU):
        return {}
    labels = device.metadata.labels
    return {key: labels[key] for key in GPU_LABELS if key in labels}


def rdma_resources(device: Device | None) -> ResourceList | None:
    """Return what the healthy RDMA cards have together; None if there is none."""
    cards = _healthy(device, DeviceType.RDMA)
    return {RDMA: Quantity.from_int(len(cards) * WHOLE_DEVICE)} if cards else None


def _healthy(device: Device | None, kind: DeviceType) -> list[DeviceInfo]:
    if device is None:
        return []
    return [each for each in device.spec.devices if each.type == kind and each.health]
