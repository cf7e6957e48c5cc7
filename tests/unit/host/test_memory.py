"""The machine that is a dictionary refuses what Linux refuses."""

import pytest
from tests.memory_host import MemoryHost

from koordinator.foundation.errors import HostError, MissingFileError


def tree(name: str, **values: str) -> MemoryHost:
    """Return cgroups ``root``, ``root/p`` and ``root/p/c`` that have a file of that name."""
    folders = {"root": "/cg/root", "pod": "/cg/root/p", "container": "/cg/root/p/c"}
    return MemoryHost({f"{folders[key]}/{name}": value for key, value in values.items()})


def test_a_child_has_no_cpu_that_its_parent_has_not() -> None:
    """EACCES, as in the kernel."""
    host = tree("cpuset.cpus", root="0-7", pod="0-3", container="0-1")

    with pytest.raises(HostError, match="Permission denied"):
        host.write("/cg/root/p/c/cpuset.cpus", "0-4")
    with pytest.raises(HostError, match="busy"):
        host.write("/cg/root/p/cpuset.cpus", "1-3")
    host.write("/cg/root/p/c/cpuset.cpus", "3")
    assert host.read("/cg/root/p/c/cpuset.cpus") == "3\n"


def test_a_child_has_no_quota_above_that_of_its_parent() -> None:
    """A parent without limit is passed over."""
    host = tree("cpu.cfs_quota_us", root="-1", pod="200000", container="100000")

    with pytest.raises(HostError, match="Invalid argument"):
        host.write("/cg/root/p/c/cpu.cfs_quota_us", "200001")
    with pytest.raises(HostError, match="Invalid argument"):
        host.write("/cg/root/p/cpu.cfs_quota_us", "99999")
    host.write("/cg/root/p/cpu.cfs_quota_us", "-1")
    host.write("/cg/root/p/c/cpu.cfs_quota_us", "900000")


def test_a_cgroup_can_vanish_and_a_file_be_read_only() -> None:
    """The faults that an agent has to live with."""
    host = tree("cpu.shares", root="2", pod="2", container="2")
    host.read_only.add("/cg/root/cpu.shares")
    host.vanish("/cg/root/p")

    with pytest.raises(HostError, match="Read-only"):
        host.write("/cg/root/cpu.shares", "3")
    with pytest.raises(MissingFileError):
        host.read("/cg/root/p/c/cpu.shares")
    assert host.folders("/cg/root") == []
    assert host.written == []
