"""RDMA cards and where PCI devices sit, from sysfs.

Source: koordinator pkg/koordlet/metricsadvisor/devices/rdma, helper; Linux
Documentation/ABI/testing/sysfs-bus-pci.
"""

from dataclasses import dataclass

from koordinator.foundation.errors import HostError
from koordinator.host.port import Files


@dataclass(frozen=True, slots=True)
class RdmaFunction:
    """``pcie_id`` is the root port above it; a virtual function is listed with its card only."""

    bus_id: str
    numa_node: int
    pcie_id: str
    is_healthy: bool
    virtual_functions: tuple[str, ...]


def rdma_functions(files: Files, sys_root: str) -> list[RdmaFunction]:
    """Return the RDMA cards, by bus address."""
    found = []
    for name in files.names(f"{sys_root}/class/infiniband"):
        link = f"{sys_root}/class/infiniband/{name}"
        try:
            folder = files.target(f"{link}/device")
        except HostError:
            continue
        if files.exists(f"{folder}/physfn"):
            continue  # a slice of another card
        bus_id = folder.rpartition("/")[2]
        found.append(
            RdmaFunction(
                bus_id,
                numa_node_of(files, folder),
                pcie_id_of(folder),
                _is_active(files, link),
                _virtual_functions(files, folder),
            )
        )
    return sorted(found, key=lambda card: card.bus_id)


def numa_node_of(files: Files, folder: str) -> int:
    """Return the NUMA node of a PCI device; 0 where the machine has no NUMA, -1 if unknown."""
    try:
        return max(int(files.read(f"{folder}/numa_node")), 0)
    except (HostError, ValueError):
        return -1


def pcie_id_of(folder: str) -> str:
    """Return the PCI root of a device's real path, such as ``pci0000:00``."""
    for part in folder.split("/"):
        if part.startswith("pci") and part != "pci":
            return part
    return ""


def _is_active(files: Files, link: str) -> bool:
    states = []
    for port in files.names(f"{link}/ports"):
        try:
            states.append("ACTIVE" in files.read(f"{link}/ports/{port}/state"))
        except HostError:
            continue
    return any(states) or not states


def _virtual_functions(files: Files, folder: str) -> tuple[str, ...]:
    found = []
    for name in files.names(folder):
        if name.startswith("virtfn"):
            try:
                found.append(files.target(f"{folder}/{name}").rpartition("/")[2])
            except HostError:
                continue
    return tuple(sorted(found))
