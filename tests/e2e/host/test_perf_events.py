"""Performance counters of real processes in a real cgroup."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.host.lone_cgroup import lone_cgroup

from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.linux.perf_events import LinuxPerfEvents, PerfEvent

# Where no hierarchy of v1 has them, the counters follow the cgroups of v2.
_HIERARCHIES = ("perf_event", "unified", ".")
_CPU_CLOCK, _TASK_CLOCK = (
    PerfEvent(1, 0),
    PerfEvent(1, 1),
)  # nanoseconds, counted by the kernel itself
_CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Make a cgroup in which a process spins."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make cgroups")
    with lone_cgroup(_HIERARCHIES, 1) as folder:
        yield folder


def test_processes_of_a_cgroup_are_counted_on_all_cpus(cgroup: Path) -> None:
    """The clocks of the kernel agree with the CPU time of the process; nothing stays open."""
    before = _open_files()
    counting = LinuxPerfEvents((_CPU_CLOCK, _TASK_CLOCK)).start(str(cgroup), _CPUS)
    (pid,) = (cgroup / "cgroup.procs").read_text().split()
    started_s = _cpu_s(pid)
    time.sleep(1)
    ran_s = _cpu_s(pid) - started_s
    counts = counting.stop()

    assert counts.instructions / 1e9 == pytest.approx(ran_s, rel=0.3, abs=0.05)
    assert _open_files() == before


def test_cycles_and_instructions_are_those_of_the_hardware(cgroup: Path) -> None:
    """A loop of the interpreter takes 0.1 to 10 cycles per instruction."""
    try:
        counting = LinuxPerfEvents().start(str(cgroup), _CPUS)
    except HostError as error:
        pytest.skip(f"no hardware counters here: {error}")
    time.sleep(1)
    counts = counting.stop()

    assert counts.instructions > 1e6
    assert 0.1 < counts.cycles / counts.instructions < 10


def test_a_cgroup_that_vanished_is_missing(tmp_path: Path) -> None:
    """As a file that vanished is."""
    with pytest.raises(MissingFileError, match=r"cannot count for .*/gone: No such file"):
        LinuxPerfEvents().start(str(tmp_path / "gone"), _CPUS)


def test_other_folders_have_no_counters(tmp_path: Path) -> None:
    """The kernel rejects it, and no descriptor remains open."""
    before = _open_files()
    with pytest.raises(HostError, match="cannot count for"):
        LinuxPerfEvents((_CPU_CLOCK, _TASK_CLOCK)).start(str(tmp_path), _CPUS)
    assert _open_files() == before


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _cpu_s(pid: str) -> float:
    """Return the CPU time that a process took; /proc counts it in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
