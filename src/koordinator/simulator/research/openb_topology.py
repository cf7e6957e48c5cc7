"""Assumed GPU topology of the openb machines, which the trace does not contain.

The topology is the usual one of such machines: two GPUs per PCIe root, half of the roots on each of
two NUMA nodes, and NVLink between neighbours in groups of two, four and eight.
"""

from koordinator.api.annotations.devices import GpuPartition, gpu_partitions_entry
from koordinator.api.device import DeviceTopology

_PER_ROOT = 2
_NUMA_NODES = 2


def place_of(minor: int, gpus: int) -> DeviceTopology:
    """Return the topology of a GPU on a machine with ``gpus`` GPUs."""
    numa = minor * _NUMA_NODES // gpus
    return DeviceTopology(
        socket_id=numa, node_id=numa, pcie_id=f"pci{minor // _PER_ROOT}", bus_id=f"0000:{minor:02x}"
    )


def partitions_entry(gpus: int) -> dict[str, str]:
    """Return the annotation of the Device: groups that NVLink joins, and single GPUs."""
    sizes = [size for size in (1, 2, 4, 8) if size <= gpus]
    return gpu_partitions_entry(
        {
            size: tuple(
                GpuPartition(
                    minors=tuple(range(first, first + size)),
                    gpu_link_type="NVLink",
                    allocation_score=1,
                )
                for first in range(0, gpus - size + 1, size)
            )
            for size in sizes
        }
    )
