"""Pressure of a real cgroup (v2), as the agent reads it."""

import os
import time
from pathlib import Path

import pytest
from tests.e2e.host.lone_cgroup import lone_cgroup

from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion
from koordinator.host.linux.host import LinuxHost
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.kernel_readings import pressure

_CPUS = len(os.sched_getaffinity(0))
_DEADLINE_S = 20


def test_processes_that_wait_for_a_cpu_are_under_pressure() -> None:
    """More of them than CPUs: some wait all the time, never all of them."""
    if os.geteuid() != 0 or not Path("/proc/pressure").exists():
        pytest.skip("needs root to make cgroups, and a kernel with PSI")
    host = LinuxHost()
    with lone_cgroup(("unified", "."), _CPUS + 2) as folder:
        tree = CgroupTree(host, str(folder.parent), CgroupVersion.V2)
        end = time.monotonic() + _DEADLINE_S
        some = 0.0
        while some < 5 and time.monotonic() < end:
            time.sleep(0.5)
            some = pressure(tree.read(CgroupFile.CPU_PRESSURE, folder.name)).some[0]
        others = [
            pressure(tree.read(file, folder.name))
            for file in (CgroupFile.MEMORY_PRESSURE, CgroupFile.IO_PRESSURE)
        ]
    host.close()

    assert some >= 5
    assert all(each.full is not None for each in others)
