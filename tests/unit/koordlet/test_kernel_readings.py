"""Statistics of cgroups; half a file is an error, never a number.

Parsers of /proc files about the machine.
"""

import pytest

from koordinator.domain.cgroups.files import CgroupVersion
from koordinator.foundation.errors import InputError
from koordinator.koordlet.kernel_readings import (
    busy_ticks,
    cold_bytes,
    cpu_model,
    cpu_usage_ns,
    memory_by_numa_node,
    memory_info,
    memory_stat,
    pressure,
    throttling,
)

V1, V2 = CgroupVersion.V1, CgroupVersion.V2
V1_MEMORY = (
    "cache 9\nactive_anon 9\ntotal_inactive_anon 1\ntotal_active_anon 2\n"
    "total_inactive_file 30\ntotal_active_file 40\ntotal_unevictable 5\n"
)
V2_MEMORY = (
    "anon 3\nactive_anon 2\ninactive_anon 1\nactive_file 40\ninactive_file 30\nunevictable 5\n"
)
V2_CPU = "usage_usec 12\nuser_usec 1\nnr_periods 10\nnr_throttled 3\nthrottled_usec 7\n"

MEMINFO = (
    "MemTotal:       100 kB\nMemFree:        20 kB\nMemAvailable:   60 kB\n"
    "Active(file):   10 kB\nInactive(file):  5 kB\nSReclaimable:   3 kB\n"
)


def test_cpu_time_is_in_nanoseconds() -> None:
    """v2 counts microseconds."""
    assert cpu_usage_ns("12345\n", V1) == 12_345
    assert cpu_usage_ns(V2_CPU, V2) == 12_000


def test_throttling_counts_periods() -> None:
    """The three numbers are under other names in v2."""
    v1 = throttling("nr_periods 10\nnr_throttled 3\nthrottled_time 7000\n", V1)

    assert v1 == throttling(V2_CPU, V2)
    assert (v1.periods, v1.throttled, v1.throttled_ns) == (10, 3, 7000)


@pytest.mark.parametrize(("text", "version"), [(V1_MEMORY, V1), (V2_MEMORY, V2)])
def test_memory_used_is_without_page_cache(text: str, version: CgroupVersion) -> None:
    """v1 counts all below in total_ lines."""
    stat = memory_stat(text, version)

    assert (stat.used, stat.used_with_page_cache) == (8, 78)


def test_memory_by_numa_node() -> None:
    """Pages in v1, bytes of anonymous and file memory in v2."""
    assert memory_by_numa_node("total=3 N0=1 N1=2\nfile=9 N0=9\n", V1) == {0: 4096, 1: 8192}
    assert memory_by_numa_node("anon N0=1 N1=2\nfile N0=10 N1=20\n", V2) == {0: 11, 1: 22}


def test_pressure_without_full_averages() -> None:
    """Older kernels have none for CPU."""
    some = "some avg10=1.50 avg60=2.00 avg300=3.25 total=99\n"
    result = pressure(f"{some}full avg10=0.50 avg60=0.00 avg300=0.00 total=9\n")

    assert result.some == (1.5, 2.0, 3.25)
    assert result.full == (0.5, 0.0, 0.0)
    assert pressure(some).full is None


def test_cold_pages_are_those_of_a_minute_and_older() -> None:
    """Rows of pages that are clean or dirty, evictable, idle; buckets from the sixth on."""
    rows = ["cfei", "dfei", "cfui", "dfui", "csei", *(f"r{n}" for n in range(12))]
    lines = [*(f"# {n}" for n in range(14)), *(f"{row} 1 2 3 4 5 60 700 8000" for row in rows)]

    assert cold_bytes("\n".join(lines)) == 4 * 8760
    with pytest.raises(InputError, match="30 lines, expected 31"):
        cold_bytes("\n".join(lines[:-1]))


@pytest.mark.parametrize(
    "read",
    [
        lambda text: cpu_usage_ns(text, V1),
        lambda text: cpu_usage_ns(text, V2),
        lambda text: throttling(text, V1),
        lambda text: memory_stat(text, V1),
        lambda text: memory_by_numa_node(text, V1),
        lambda text: memory_by_numa_node(text, V2),
        pressure,
    ],
)
@pytest.mark.parametrize("text", ["", "total", "usage_usec\nnr_periods 1", "some avg10", "N0=x"])
def test_half_a_file_is_an_error(read: object, text: str) -> None:
    """The caller keeps the previous reading."""
    with pytest.raises(InputError):
        read(text)  # type: ignore[operator]


def test_busy_is_not_idle_nor_waiting_nor_stolen() -> None:
    """User, nice, system, irq and softirq count."""
    text = "cpu  1 20 300 9 9 4000 50000 9 9 9\ncpu0 1 0 0 9 9 0 0 9\nintr 5\n"

    assert busy_ticks(text) == {"cpu": 54_321, "cpu0": 1}


@pytest.mark.parametrize("text", ["", "intr 1\n", "cpu  1 2 3\n", "cpu  1 2 x 4 5 6 7\n"])
def test_half_of_stat_is_an_error(text: str) -> None:
    """No line of all CPUs, or one that is cut."""
    with pytest.raises(InputError, match="/proc/stat"):
        busy_ticks(text)


def test_memory_of_the_machine_and_of_a_numa_node() -> None:
    """Only the machine has the value of available memory."""
    machine = memory_info(MEMINFO)
    numa_node = memory_info("".join(f"Node 0 {line}\n" for line in MEMINFO.splitlines()))

    assert machine.used == 40 * 1024
    assert machine.used_with_page_cache == 80 * 1024
    assert numa_node.used_of_numa_node == 62 * 1024


def test_half_of_meminfo_is_an_error() -> None:
    """The error names the missing fields."""
    with pytest.raises(InputError, match="MemFree"):
        memory_info("MemTotal: 1 kB\n")


def test_the_model_of_the_first_cpu() -> None:
    """Missing fields are empty."""
    first = "processor : 0\nvendor_id\t: GenuineIntel\nmodel name\t: X 1\nflags\t: fpu mba\n"
    result = cpu_model(f"{first}\nprocessor : 1\nmodel name : Y\n")

    assert (result.name, result.vendor, result.flags) == (
        "X 1",
        "GenuineIntel",
        frozenset({"fpu", "mba"}),
    )
    assert cpu_model("").vendor == ""
