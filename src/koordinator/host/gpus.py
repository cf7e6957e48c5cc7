"""Port to the accelerators of the machine.

Source: NVML API reference; koordinator pkg/koordlet/metricsadvisor/devices/gpu.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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
    """Accelerators of the machine; both methods return an empty list if there are none."""

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
