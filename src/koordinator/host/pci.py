"""PCI devices of the machine, from sysfs.

Source: Linux Documentation/ABI/testing/sysfs-bus-pci.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from koordinator.foundation.errors import HostError
from koordinator.host.port import Files

BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class PciFunction:
    """Function of a PCI device; ids are four hexadecimal digits."""

    bus_id: str
    vendor: str
    device: str


def pci_functions(files: Files, sys_root: str) -> Iterator[PciFunction]:
    """Yield the functions on the bus by address; unreadable ones are skipped."""
    for bus_id in files.names(f"{sys_root}/bus/pci/devices"):
        folder = f"{sys_root}/bus/pci/devices/{bus_id}"
        try:
            vendor, device = (files.read(f"{folder}/{file}") for file in ("vendor", "device"))
        except HostError:
            continue
        yield PciFunction(bus_id, *(text.strip().removeprefix("0x") for text in (vendor, device)))


def numa_node_of(files: Files, folder: str) -> int:
    """Return the NUMA node of a PCI device; 0 on a machine without NUMA, -1 if unknown."""
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
