"""Parsers of /proc files about the machine.  Texts in, numbers out.

A text that the kernel does not write is an InputError.
Source: koordinator pkg/koordlet/util/stat.go, meminfo.go, cpuinfo.go; man 5 proc.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.foundation.errors import InputError

_KIB: Final = 1024
_BUSY_COLUMNS: Final = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq


def busy_ticks(text: str) -> Mapping[str, int]:
    """Return the busy ticks in /proc/stat: ``cpu`` for all CPUs, and ``cpu0``, …."""
    ticks: dict[str, int] = {}
    for line in text.splitlines():
        if not line.startswith("cpu"):
            break  # CPUs come first
        name, *columns = line.split()
        try:
            ticks[name] = sum(int(columns[index]) for index in _BUSY_COLUMNS)
        except (ValueError, IndexError):
            raise InputError(f"truncated line {line[:60]!r}", path="/proc/stat") from None
    if "cpu" not in ticks:
        raise InputError("no line 'cpu'", path="/proc/stat")
    return ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryInfo:
    """Memory of the machine or of a NUMA node in bytes; ``available`` of a NUMA node is 0."""

    total: int
    free: int
    available: int
    active_file: int
    inactive_file: int
    reclaimable_slab: int

    @property
    def used(self) -> int:
        """Memory that is not available to programs."""
        return max(self.total - self.available, 0)

    @property
    def used_with_page_cache(self) -> int:
        """Memory that is not free."""
        return max(self.total - self.free, 0)

    @property
    def used_of_numa_node(self) -> int:
        """Memory of a NUMA node that is not available, computed without ``available``."""
        spare = self.free + self.active_file + self.inactive_file + self.reclaimable_slab
        return max(self.total - spare, 0)


def memory_info(text: str) -> MemoryInfo:
    """Return the memory from /proc/meminfo, or ``nodeN/meminfo`` with its prefix ``Node N``."""
    table: dict[str, int] = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        parts = rest.split()
        if colon and parts and parts[0].isdigit():
            table[name.split()[-1]] = int(parts[0]) * _KIB
    try:
        return MemoryInfo(
            total=table["MemTotal"],
            free=table["MemFree"],
            available=table.get("MemAvailable", 0),
            active_file=table["Active(file)"],
            inactive_file=table["Inactive(file)"],
            reclaimable_slab=table["SReclaimable"],
        )
    except KeyError as error:
        raise InputError(f"no line {error}", path="meminfo") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuModel:
    """Model of a CPU."""

    name: str
    vendor: str
    flags: frozenset[str]


def cpu_model(text: str) -> CpuModel:
    """Return the model of the first CPU in /proc/cpuinfo; missing fields are empty."""
    table: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        table[name.strip()] = value.strip()
    return CpuModel(
        name=table.get("model name", ""),
        vendor=table.get("vendor_id", ""),
        flags=frozenset(table.get("flags", "").split()),
    )
