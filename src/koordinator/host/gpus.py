"""What a node agent asks about accelerators.

Source: NVML API reference; koordinator pkg/koordlet/metricsadvisor/devices/gpu.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class GpuProblem:
    """Why a GPU is not to be used: a word for programs, a sentence for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """An accelerator.  ``memory_bytes`` is all of its memory; ids that are unknown are -1."""

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
    """What a process, or all of them (pid 0), use of a GPU: percent of its cores, and bytes."""

    minor: int
    core_percent: int
    memory_bytes: int
    pid: int = 0
    memory_controller_percent: int = 0  # of all processes only


class Gpus(Protocol):
    """The accelerators of the machine.  Both methods return nothing where there are none."""

    @property
    def driver_version(self) -> str:
        """Empty if there is no driver."""

    def devices(self) -> Sequence[Gpu]:
        """Return the accelerators by minor.  Raises HostError if the driver fails."""

    def usage(self) -> Sequence[GpuUsage]:
        """Return the use of every GPU (pid 0), and of every process on it.

        Raises HostError if the driver fails.
        """


class NoGpus:
    """A machine without accelerators."""

    driver_version = ""

    def devices(self) -> Sequence[Gpu]:
        return ()

    def usage(self) -> Sequence[GpuUsage]:
        return ()
