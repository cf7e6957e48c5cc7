"""NVIDIA.  GPUs that NVSwitch links are allocated by partition of the fabric.

Source: koordinator pkg/scheduler/plugins/deviceshare/allocator_gpu_helper.go,
``GetDesignatedGPUPartitionIndexer``.
"""

from koordinator.api.annotations.devices import GpuPartition, GpuPartitionTable
from koordinator.api.labels import GpuVendor
from koordinator.api.resource_names import NVIDIA_GPU
from koordinator.domain.devices.vendors.vendor import Vendor

_GPUS = 8  # GPUs of a machine with NVSwitch

HOPPER: GpuPartitionTable = {
    size: tuple(
        GpuPartition(
            minors=tuple(range(first, first + size)), gpu_link_type="NVLink", allocation_score=1
        )
        for first in range(0, _GPUS, size)
    )
    for size in (1, 2, 4, 8)
}

NVIDIA = Vendor(
    labels=(GpuVendor.NVIDIA, ""),  # nodes without the label are older than it
    whole_card=NVIDIA_GPU,
    partitions={"H100": HOPPER, "H800": HOPPER, "H20": HOPPER},
)
