"""Cgroup files: one name for both versions, with v1 names and units.

Callers use v1 semantics; this module converts names and values for v2. Source: koordinator
pkg/koordlet/util/system/cgroup_resource.go, cgroup2.go, validator.go; Linux
Documentation/admin-guide/cgroup-v1, cgroup-v2.rst.
"""

import math
from enum import Enum, IntEnum
from typing import Final

from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

UNLIMITED: Final = -1
MAX_INT64: Final = 2**63 - 1
CFS_PERIOD_US: Final = 100_000
#: The value of an unlimited memory limit in v1: the largest multiple of a page.
_V1_NO_LIMIT: Final = 0x7FFF_FFFF_FFFF_F000
PAGE_BYTES: Final = 4096
_MIN_SHARES, _MAX_SHARES = 2, 262_144
MIN_QUOTA_US: Final = 1000
_MIN_WEIGHT, _MAX_WEIGHT = 1, 10_000
_WEIGHTS: Final = _MAX_WEIGHT - _MIN_WEIGHT
_SHARES: Final = _MAX_SHARES - _MIN_SHARES


class CgroupVersion(IntEnum):
    """Version of the mounted hierarchy."""

    V1 = 1
    V2 = 2


class Nesting(Enum):
    """Constraint between the values of parent and child, which determines the order of writes."""

    FREE = "free"
    NUMBER = "number"  # parent >= each child; negative is unlimited
    CPUS = "cpus"  # the parent's CPUs include the children's


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    subsystem: str
    name: str
    v2_name: str = ""  # empty: same as name
    v2_key: str = ""  # of the value in a device's line, where v2 has several values in one file
    least: int | None = None
    most: int | None = None
    versions: tuple[CgroupVersion, ...] = (CgroupVersion.V1, CgroupVersion.V2)
    nesting: Nesting = Nesting.FREE


_V1_ONLY = (CgroupVersion.V1,)
_V2_ONLY = (CgroupVersion.V2,)


class CgroupFile(Enum):
    """A file of a cgroup."""

    CPU_SHARES = _Spec(
        subsystem="cpu",
        name="cpu.shares",
        v2_name="cpu.weight",
        least=_MIN_SHARES,
        most=_MAX_SHARES,
    )
    CFS_QUOTA = _Spec(
        subsystem="cpu", name="cpu.cfs_quota_us", v2_name="cpu.max", nesting=Nesting.NUMBER
    )
    CFS_PERIOD = _Spec(subsystem="cpu", name="cpu.cfs_period_us", v2_name="cpu.max")
    CFS_BURST = _Spec(
        subsystem="cpu",
        name="cpu.cfs_burst_us",
        v2_name="cpu.max.burst",
        least=0,
        most=100_000_000,
    )
    BVT_WARP = _Spec(subsystem="cpu", name="cpu.bvt_warp_ns", least=-1, most=2)
    CPU_IDLE = _Spec(subsystem="cpu", name="cpu.idle", least=0, most=1)
    CPU_STAT = _Spec(subsystem="cpu", name="cpu.stat")
    CPU_USAGE = _Spec(subsystem="cpuacct", name="cpuacct.usage", v2_name="cpu.stat")
    CPU_PRESSURE = _Spec(subsystem="cpuacct", name="cpu.pressure")
    MEMORY_PRESSURE = _Spec(subsystem="cpuacct", name="memory.pressure")
    IO_PRESSURE = _Spec(subsystem="cpuacct", name="io.pressure")
    PROCS = _Spec(subsystem="cpu", name="cgroup.procs")
    TASKS = _Spec(subsystem="cpu", name="tasks", v2_name="cgroup.threads")
    CPUSET = _Spec(subsystem="cpuset", name="cpuset.cpus", nesting=Nesting.CPUS)
    MEMORY_LIMIT = _Spec(subsystem="memory", name="memory.limit_in_bytes", v2_name="memory.max")
    MEMORY_USAGE = _Spec(subsystem="memory", name="memory.usage_in_bytes", v2_name="memory.current")
    MEMORY_STAT = _Spec(subsystem="memory", name="memory.stat")
    MEMORY_NUMA_STAT = _Spec(subsystem="memory", name="memory.numa_stat")
    MEMORY_IDLE_PAGES = _Spec(subsystem="memory", name="memory.idle_page_stats", versions=_V1_ONLY)
    MEMORY_MIN = _Spec(subsystem="memory", name="memory.min", least=0, nesting=Nesting.NUMBER)
    MEMORY_LOW = _Spec(subsystem="memory", name="memory.low", least=0, nesting=Nesting.NUMBER)
    MEMORY_HIGH = _Spec(subsystem="memory", name="memory.high", least=0, nesting=Nesting.NUMBER)
    WMARK_RATIO = _Spec(subsystem="memory", name="memory.wmark_ratio", least=0, most=100)
    WMARK_SCALE = _Spec(subsystem="memory", name="memory.wmark_scale_factor", least=1, most=1000)
    WMARK_MIN_ADJ = _Spec(subsystem="memory", name="memory.wmark_min_adj", least=-25, most=50)
    MEMORY_PRIORITY = _Spec(subsystem="memory", name="memory.priority", least=0, most=12)
    USE_PRIORITY_OOM = _Spec(subsystem="memory", name="memory.use_priority_oom", least=0, most=1)
    OOM_GROUP = _Spec(subsystem="memory", name="memory.oom.group", least=0, most=1)
    PAGE_CACHE_ENABLE = _Spec(
        subsystem="memory",
        name="memory.pagecache_limit.enable",
        least=0,
        most=1,
        versions=_V2_ONLY,
    )
    PAGE_CACHE_SIZE = _Spec(
        subsystem="memory", name="memory.pagecache_limit.size", least=0, versions=_V2_ONLY
    )
    PAGE_CACHE_SYNC = _Spec(
        subsystem="memory", name="memory.pagecache_limit.sync", least=0, most=1, versions=_V2_ONLY
    )
    READ_IOPS = _Spec(
        subsystem="blkio", name="blkio.throttle.read_iops_device", v2_name="io.max", v2_key="riops"
    )
    WRITE_IOPS = _Spec(
        subsystem="blkio", name="blkio.throttle.write_iops_device", v2_name="io.max", v2_key="wiops"
    )
    READ_BPS = _Spec(
        subsystem="blkio", name="blkio.throttle.read_bps_device", v2_name="io.max", v2_key="rbps"
    )
    WRITE_BPS = _Spec(
        subsystem="blkio", name="blkio.throttle.write_bps_device", v2_name="io.max", v2_key="wbps"
    )
    IO_WEIGHT = _Spec(subsystem="blkio", name="blkio.cost.weight", v2_name="io.weight")
    IO_QOS = _Spec(subsystem="blkio", name="blkio.cost.qos", v2_name="io.cost.qos")
    IO_MODEL = _Spec(subsystem="blkio", name="blkio.cost.model", v2_name="io.cost.model")
    PERF_PROCS = _Spec(subsystem="perf_event", name="cgroup.procs")
    NET_CLASS = _Spec(subsystem="net_cls", name="net_cls.classid", least=0)

    def __str__(self) -> str:
        return self.value.name

    @property
    def nesting(self) -> Nesting:
        """The constraint between the values of parents and children."""
        return self.value.nesting


_IN_PAGES: Final = frozenset(
    {CgroupFile.MEMORY_LIMIT, CgroupFile.MEMORY_MIN, CgroupFile.MEMORY_LOW, CgroupFile.MEMORY_HIGH}
)


def cgroup_path(file: CgroupFile, folder: str, version: CgroupVersion) -> str | None:
    """Return the path below the hierarchies' root; None if the version has no such file.

    ``folder`` is the cgroup's directory in its hierarchy, without slashes around; empty is the
    root.
    """
    spec = file.value
    if version not in spec.versions:
        return None
    if version is CgroupVersion.V1:
        return "/".join(filter(None, (spec.subsystem, folder, spec.name)))
    return "/".join(filter(None, (folder, spec.v2_name or spec.name)))


def check_value(file: CgroupFile, text: str) -> None:
    """Raise InputError for a value, in v1 notation, that the file does not accept."""
    spec = file.value
    if spec.least is None:
        return
    try:
        number = MAX_INT64 if text == "max" else int(text)
    except ValueError:
        raise InputError(f"must be an integer, got {text!r}", path=spec.name) from None
    most = MAX_INT64 if spec.most is None else spec.most
    _check_range(number, spec.least, most, spec.name)


def spell(file: CgroupFile, text: str, version: CgroupVersion) -> str:
    """Convert a value from v1 notation to the text to write.

    Raises InputError for a value out of the file's range.
    """
    check_value(file, text)
    if version is CgroupVersion.V1:
        return str(MAX_INT64) if text == "max" else text
    match file:
        case CgroupFile.CPU_SHARES:
            return str(weight_of_shares(int(text)))
        case CgroupFile.CFS_QUOTA | CgroupFile.MEMORY_LIMIT if int(text) < 0:
            return "max"
        case CgroupFile.MEMORY_HIGH | CgroupFile.MEMORY_MIN | CgroupFile.MEMORY_LOW if text == str(
            MAX_INT64
        ):
            return "max"
        case _:
            return text


def parse_number(file: CgroupFile, text: str, version: CgroupVersion) -> int:
    """Parse a file's number in v1 units; -1 is unlimited.

    Raises InputError for text that the kernel does not write, such as a partial read.
    """
    try:
        if version is CgroupVersion.V1:
            number = MAX_INT64 if text.strip() == "max" else int(text)
            if file is CgroupFile.MEMORY_LIMIT and number >= _V1_NO_LIMIT:
                return UNLIMITED
            return number
        return _parse_v2(file, text)
    except (ValueError, IndexError):
        raise InputError(f"must be a number, got {text[:40]!r}", path=str(file)) from None


def is_same(file: CgroupFile, wanted: str, content: str, version: CgroupVersion) -> bool:
    """Return whether a file that reads ``content`` already has the value in v1 notation."""
    try:
        if file is CgroupFile.CPUSET:
            return parse_cpu_list(wanted.strip()) == parse_cpu_list(content.strip())
        number = MAX_INT64 if wanted == "max" else int(wanted)
        if version is CgroupVersion.V2 and file is CgroupFile.CPU_SHARES:
            return int(content) == weight_of_shares(number)
        present = parse_number(file, content, version)
        in_pages = file in _IN_PAGES and min(number, present) >= 0
        unit = PAGE_BYTES if in_pages else 1  # the kernel rounds down to pages
        return number // unit == present // unit
    except (InputError, ValueError):
        return wanted.strip() == content.strip()


def device_line(file: CgroupFile, device: str, value: str, version: CgroupVersion) -> str:
    """Return the line to write for a block device ``major:minor``; 0 is no limit."""
    key = file.value.v2_key
    if version is CgroupVersion.V1 or not key:
        return f"{device} {value}"
    return f"{device} {key}={'max' if value == '0' else value}"


def has_device_line(line: str, content: str) -> bool:
    """Return whether a device's line in a file, ``content``, has the values of the line to write.

    Lines of v2 have further values, and numbers with decimal places.
    """
    if line == content:
        return True
    wanted, present = _line_values(line), _line_values(content)
    return bool(wanted) and all(
        _is_same_word(value, present.get(key)) for key, value in wanted.items()
    )


def _line_values(line: str) -> dict[str, str]:
    words = (word.partition("=") for word in line.split()[1:])
    return {key: value for key, separator, value in words if separator}


def _is_same_word(wanted: str, present: str | None) -> bool:
    try:
        return present is not None and (wanted == present or float(wanted) == float(present))
    except ValueError:
        return False


def weight_of_shares(shares: int) -> int:
    """Convert ``cpu.shares`` to the ``cpu.weight`` of v2, 1..10000, as the kubelet does.

    Raises InputError for shares out of range.
    """
    _check_range(shares, _MIN_SHARES, _MAX_SHARES, "cpu.shares")
    return 1 + (shares - _MIN_SHARES) * _WEIGHTS // _SHARES


def runtime_weight_of_shares(shares: int) -> int:
    """Convert ``cpu.shares`` to ``cpu.weight`` as runc 1.3.2 and crun 1.23 do, for containers.

    Older runtimes do as the kubelet, which still does so for pods and tiers in Kubernetes 1.37.
    Raises InputError for shares out of range.
    Source: opencontainers/cgroups utils.go ``ConvertCPUSharesToCgroupV2Value``.
    """
    _check_range(shares, _MIN_SHARES, _MAX_SHARES, "cpu.shares")
    if shares in {_MIN_SHARES, _MAX_SHARES}:
        return weight_of_shares(shares)
    power = math.log2(shares)
    return math.ceil(math.pow(10, (power * power + 125 * power) / 612 - 7 / 34))


def least_shares_of_weight(weight: int) -> int:
    """Return the smallest ``cpu.shares`` with this ``weight_of_shares``.

    Raises InputError for a weight out of range.
    """
    _check_range(weight, _MIN_WEIGHT, _MAX_WEIGHT, "cpu.weight")
    return -((1 - weight) * _SHARES // _WEIGHTS) + _MIN_SHARES


def shares_of_weight(weight: int) -> int:
    """Convert a ``cpu.weight`` of v2 to ``cpu.shares``.

    Raises InputError for a weight out of range, including 0, which an idle cgroup reads.
    """
    _check_range(weight, _MIN_WEIGHT, _MAX_WEIGHT, "cpu.weight")
    return (weight - 1) * _SHARES // _WEIGHTS + _MIN_SHARES


def shares_of_milli(cpu_milli: int) -> int:
    """Return the ``cpu.shares`` of a CPU request."""
    return min(max(cpu_milli * 1024 // 1000, _MIN_SHARES), _MAX_SHARES)


def quota_of_milli(cpu_milli: int) -> int:
    """Return the quota, in microseconds per 100 ms, of a CPU limit; unlimited for 0 or less."""
    if cpu_milli <= 0:
        return UNLIMITED
    return max(cpu_milli * CFS_PERIOD_US // 1000, MIN_QUOTA_US)


def normalized_quota(quota_us: int, ratio: float | None) -> int:
    """Return a quota divided by the CPU normalization ratio; ratios up to 1 have no effect."""
    if quota_us <= 0 or ratio is None or ratio <= 1:
        return quota_us
    return math.ceil(quota_us / ratio)


def _check_range(number: int, least: int, most: int, path: str) -> None:
    if not least <= number <= most:
        raise InputError(f"must be {least}..{most}, got {number}", path=path)


def _parse_v2(file: CgroupFile, text: str) -> int:
    if file is CgroupFile.CFS_PERIOD:
        return int(text.split()[1])
    first = text.split(maxsplit=1)[0]
    if first == "max":
        is_limit = file in {CgroupFile.CFS_QUOTA, CgroupFile.MEMORY_LIMIT}
        return UNLIMITED if is_limit else MAX_INT64
    number = int(first)
    return shares_of_weight(number) if file is CgroupFile.CPU_SHARES else number
