"""Parsers of the kernel's statistics of cgroups and in procfs: text in, numbers out.

A text that the kernel does not write, such as a truncated one, is an InputError.

Source: koordinator pkg/koordlet/util/system/cgroup_resource.go, cgroup2.go, memory.go, psi.go,
kidled_util.go; koordinator pkg/koordlet/util/stat.go, meminfo.go, cpuinfo.go; Linux
Documentation/accounting/psi.rst; man 5 proc.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from koordinator.domain.cgroups.files import PAGE_BYTES, CgroupVersion
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")

_NANOS_PER_MICRO: Final = 1000
_IDLE_PAGE_LINES: Final = 31
_IDLE_PAGE_HEADER: Final = 14
_COLD_ROWS: Final = frozenset({"cfei", "dfei", "cfui", "dfui"})
_COLD_FROM_BUCKET: Final = 5  # a minute and older, with kidled's own buckets

_KIB: Final = 1024
_BUSY_COLUMNS: Final = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStat:
    """Memory of a cgroup in bytes, by kind."""

    active_anon: int
    inactive_anon: int
    active_file: int
    inactive_file: int
    unevictable: int

    @property
    def used(self) -> int:
        """Used memory without page cache."""
        return self.active_anon + self.inactive_anon + self.unevictable

    @property
    def used_with_page_cache(self) -> int:
        """Used memory with page cache."""
        return self.used + self.active_file + self.inactive_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """CFS periods since the creation of the cgroup, throttled ones, and the throttled time."""

    periods: int
    throttled: int
    throttled_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Percentages of time over 10, 60 and 300 s in which some or all tasks were stalled.

    ``full`` is None if the kernel does not report it, as older ones for CPU.
    """

    some: tuple[float, float, float]
    full: tuple[float, float, float] | None


def _reading(
    parse: Callable[Parameters, ResultT],
) -> Callable[Parameters, ResultT]:
    """Convert errors of a parser to InputError."""

    @wraps(parse)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> ResultT:
        try:
            return parse(*args, **kwargs)
        except (ValueError, IndexError, KeyError) as error:
            shown = str(args[0])[:60]
            raise InputError(f"unexpected or truncated text {shown!r}: {error}") from None

    return checked


def _table(text: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in text.splitlines() if line)


@_reading
def cpu_usage_ns(text: str, version: CgroupVersion) -> int:
    """Return the used CPU time from ``cpuacct.usage``, or from ``cpu.stat`` of v2."""
    if version is CgroupVersion.V1:
        return int(text)
    return int(_table(text)["usage_usec"]) * _NANOS_PER_MICRO


@_reading
def throttling(text: str, version: CgroupVersion) -> Throttling:
    """Return the throttling from ``cpu.stat``."""
    table = _table(text)
    if version is CgroupVersion.V1:
        waited = int(table["throttled_time"])
    else:
        waited = int(table["throttled_usec"]) * _NANOS_PER_MICRO
    return Throttling(
        periods=int(table["nr_periods"]), throttled=int(table["nr_throttled"]), throttled_ns=waited
    )


@_reading
def memory_stat(text: str, version: CgroupVersion) -> MemoryStat:
    """Return the memory from ``memory.stat``, including descendants."""
    prefix = "total_" if version is CgroupVersion.V1 else ""
    values = {}
    names = ("active_anon", "inactive_anon", "active_file", "inactive_file", "unevictable")
    for name in names:
        start = _line_start(text, prefix + name)
        end = text.find("\n", start)
        values[name] = int(text[start : end if end >= 0 else None])
    return MemoryStat(**values)


def _line_start(text: str, key: str) -> int:
    """Return the start of a key's value; searching is cheaper than splitting 40 lines."""
    if text.startswith(f"{key} "):
        return len(key) + 1
    return text.index(f"\n{key} ") + len(key) + 2


@_reading
def memory_by_numa_node(text: str, version: CgroupVersion) -> dict[int, int]:
    """Return bytes by NUMA node from ``memory.numa_stat``."""
    if version is CgroupVersion.V1:
        first = text.splitlines()[0].split()
        if not first[0].startswith("total="):
            raise ValueError("no total")
        pages = dict(part.split("=") for part in first[1:])
        return {int(node.removeprefix("N")): int(n) * PAGE_BYTES for node, n in pages.items()}
    sums: dict[int, int] = {}
    for kind in ("anon", "file"):
        for part in _table(text)[kind].split():
            node, amount = part.split("=")
            number = int(node.removeprefix("N"))
            sums[number] = sums.get(number, 0) + int(amount)
    return sums


@_reading
def pressure(text: str) -> Pressure:
    """Return the averages from a pressure file."""
    table = _table(text)
    some = _averages(table["some"])
    return Pressure(some=some, full=_averages(table["full"]) if "full" in table else None)


def _averages(rest: str) -> tuple[float, float, float]:
    fields = dict(part.split("=") for part in rest.split())
    return float(fields["avg10"]), float(fields["avg60"]), float(fields["avg300"])


@_reading
def cold_bytes(text: str) -> int:
    """Return the bytes in ``memory.idle_page_stats`` that were not accessed for a minute."""
    lines = text.splitlines()
    if len(lines) != _IDLE_PAGE_LINES:
        raise ValueError(f"{len(lines)} lines, expected {_IDLE_PAGE_LINES}")
    cold = 0
    for line in lines[_IDLE_PAGE_HEADER:]:
        name, *buckets = line.split()
        if name in _COLD_ROWS:
            cold += sum(int(bucket) for bucket in buckets[_COLD_FROM_BUCKET:])
    return cold


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
