"""Parsers of /proc files about the machine."""

import pytest

from koordinator.foundation.errors import InputError
from koordinator.koordlet.collectors.procfs import busy_ticks, cpu_model, memory_info

MEMINFO = (
    "MemTotal:       100 kB\nMemFree:        20 kB\nMemAvailable:   60 kB\n"
    "Active(file):   10 kB\nInactive(file):  5 kB\nSReclaimable:   3 kB\n"
)


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
    """It names what is missing."""
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
