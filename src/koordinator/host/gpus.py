"""Accelerators of a host: GPUs and PCI devices.

Source: NVML API reference; koordinator pkg/koordlet/metricsadvisor/devices/gpu; Linux
Documentation/ABI/testing/sysfs-bus-pci.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from koordinator.foundation.errors import HostError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import Files

BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class GpuProblem:
    """Error of a GPU: a code for programs and a message for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Accelerator; ``memory_bytes`` is its total memory, and unknown numbers are -1."""

    minor: int
    uuid: str
    model: str
    memory_bytes: int
    bus_id: str
    pcie_id: str = ""
    numa_node: int = -1
    problem: GpuProblem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """GPU usage of a process, or of all processes (pid 0): percent of its cores, and bytes."""

    minor: int
    core_percent: int
    memory_bytes: int
    pid: int = 0
    memory_controller_percent: int = 0  # of all processes only


class Gpus(Protocol):
    """Accelerators of the machine; both methods return an empty list if there are none.

    Rule R2: only composition roots import ``host.linux``, which implements it.
    """

    @property
    def driver_version(self) -> str:
        """Version of the driver; empty without a driver."""

    def devices(self) -> Sequence[Gpu]:
        """Return the accelerators by minor.  Raises HostError if the driver fails."""

    def usage(self) -> Sequence[GpuUsage]:
        """Return the usage of each GPU (pid 0), and of each process on it.

        Raises HostError if the driver fails.
        """


class NoGpus:
    """Machine without accelerators."""

    driver_version = ""

    def devices(self) -> Sequence[Gpu]:
        return ()

    def usage(self) -> Sequence[GpuUsage]:
        return ()


class GpusOnDemand:
    """Accelerators that are searched at the first use, because their driver may start slowly.

    If ``find`` raises HostError, the driver is not ready, and ``devices`` searches again.
    """

    def __init__(self, find: Callable[[], Gpus]) -> None:
        self._find = find
        self._known: Gpus | None = None
        self._problem = ""

    @property
    def driver_version(self) -> str:
        try:
            return self._gpus().driver_version
        except HostError:
            return ""

    def devices(self) -> Sequence[Gpu]:
        self._problem = ""
        return self._gpus().devices()

    def usage(self) -> Sequence[GpuUsage]:
        return self._gpus().usage()

    def _gpus(self) -> Gpus:
        if self._known is None:
            if self._problem:
                raise HostError(self._problem)
            try:
                self._known = self._find()
            except HostError as error:
                self._problem = str(error)
                raise
        return self._known


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
