"""What the statistics of a cgroup say.  Texts in, numbers out.

A text that is not what the kernel writes, such as a half-written one, is an InputError.
Source: koordinator pkg/koordlet/util/system/cgroup_resource.go, cgroup2.go, memory.go, psi.go,
kidled_util.go; Linux Documentation/accounting/psi.rst.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from koordinator.domain.cgroups.files import CgroupVersion
from koordinator.foundation.errors import InputError

Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")

PAGE_BYTES: Final = 4096
_NANOS_PER_MICRO: Final = 1000
_IDLE_PAGE_LINES: Final = 31
_IDLE_PAGE_HEADER: Final = 14
_COLD_ROWS: Final = frozenset({"cfei", "dfei", "cfui", "dfui"})
_COLD_FROM_BUCKET: Final = 5  # a minute and older, with kidled's own buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStat:
    """Bytes."""

    active_anon: int
    inactive_anon: int
    active_file: int
    inactive_file: int
    unevictable: int

    @property
    def used(self) -> int:
        """Without page cache."""
        return self.active_anon + self.inactive_anon + self.unevictable

    @property
    def used_with_page_cache(self) -> int:
        """With page cache."""
        return self.used + self.active_file + self.inactive_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """Since the cgroup was made: CFS periods, how many of them were cut short, for how long."""

    periods: int
    throttled: int
    throttled_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Shares of time, in percent, over 10, 60 and 300 s, in which some or all tasks waited.

    ``full`` is None where the kernel has no such line, as older ones for CPU.
    """

    some: tuple[float, float, float]
    full: tuple[float, float, float] | None


def _reading(
    parse: Callable[Parameters, ResultT],
) -> Callable[Parameters, ResultT]:
    """Make every way in which a text can be wrong an InputError."""

    @wraps(parse)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> ResultT:
        try:
            return parse(*args, **kwargs)
        except (ValueError, IndexError, KeyError) as error:
            shown = str(args[0])[:60]
            raise InputError(f"{error}, got {shown!r}: half-written or unknown") from None

    return checked


def _table(text: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in text.splitlines() if line)


@_reading
def cpu_usage_ns(text: str, version: CgroupVersion) -> int:
    """Return the CPU time consumed, of ``cpuacct.usage`` or of v2's ``cpu.stat``."""
    if version is CgroupVersion.V1:
        return int(text)
    return int(_table(text)["usage_usec"]) * _NANOS_PER_MICRO


@_reading
def throttling(text: str, version: CgroupVersion) -> Throttling:
    """Return what ``cpu.stat`` says of the quota."""
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
    """Return ``memory.stat`` of a cgroup and all below it."""
    prefix = "total_" if version is CgroupVersion.V1 else ""
    found = {}
    wanted = ("active_anon", "inactive_anon", "active_file", "inactive_file", "unevictable")
    for name in wanted:
        start = _line_start(text, prefix + name)
        end = text.find("\n", start)
        found[name] = int(text[start : end if end >= 0 else None])
    return MemoryStat(**found)


def _line_start(text: str, key: str) -> int:
    """Return where the value of a key begins: a search costs less than splitting 40 lines."""
    if text.startswith(f"{key} "):
        return len(key) + 1
    return text.index(f"\n{key} ") + len(key) + 2


@_reading
def memory_by_numa_node(text: str, version: CgroupVersion) -> dict[int, int]:
    """Return bytes by NUMA node of ``memory.numa_stat``."""
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
    """Return a pressure file."""
    table = _table(text)
    some = _averages(table["some"])
    return Pressure(some=some, full=_averages(table["full"]) if "full" in table else None)


def _averages(rest: str) -> tuple[float, float, float]:
    fields = dict(part.split("=") for part in rest.split())
    return float(fields["avg10"]), float(fields["avg60"]), float(fields["avg300"])


@_reading
def cold_bytes(text: str) -> int:
    """Return the bytes of ``memory.idle_page_stats`` that nobody touched for a minute."""
    lines = text.splitlines()
    if len(lines) != _IDLE_PAGE_LINES:
        raise ValueError(f"{len(lines)} lines, expected {_IDLE_PAGE_LINES}")
    cold = 0
    for line in lines[_IDLE_PAGE_HEADER:]:
        name, *buckets = line.split()
        if name in _COLD_ROWS:
            cold += sum(int(bucket) for bucket in buckets[_COLD_FROM_BUCKET:])
    return cold
