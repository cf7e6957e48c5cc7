"""Adjustments can be joined, and reject values that break out of their fields."""

import pytest

from koordinator.foundation.errors import InputError
from koordinator.koordlet.adjustments import (
    ContainerAdjustment,
    ContainerDevice,
    ContainerMount,
    LinuxResources,
    join_adjustments,
)


def test_later_adjustment_takes_precedence() -> None:
    """Variables are identified by name, mounts by destination, devices by path."""
    first = ContainerAdjustment(
        env={"A": "1", "B": "1"},
        mounts=(ContainerMount("/lib", "/old"), ContainerMount("/etc/x", "/x")),
        devices=(ContainerDevice("/dev/a", 1, 1),),
        resources=LinuxResources(cpu_shares=2, cpuset_cpus="0"),
    )
    later = ContainerAdjustment(
        env={"B": "2"},
        annotations={"k": "v"},
        mounts=(ContainerMount("/lib", "/new"),),
        devices=(ContainerDevice("/dev/a", 1, 2), ContainerDevice("/dev/b", 1, 3)),
        resources=LinuxResources(cpuset_cpus="1", memory_limit_bytes=-1),
    )
    assert join_adjustments([first, later]) == ContainerAdjustment(
        env={"A": "1", "B": "2"},
        annotations={"k": "v"},
        mounts=(ContainerMount("/lib", "/new"), ContainerMount("/etc/x", "/x")),
        devices=(ContainerDevice("/dev/a", 1, 2), ContainerDevice("/dev/b", 1, 3)),
        resources=LinuxResources(cpu_shares=2, cpuset_cpus="1", memory_limit_bytes=-1),
    )
    assert join_adjustments([]).is_empty
    assert not first.is_empty


@pytest.mark.parametrize("path", ["", "lib", "/a/../b", "/..", "/a//b", "/a/.", "/a\n", "/a/"])
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    """No relative path, no way up, no second spelling."""
    with pytest.raises(InputError, match=r"mounts\.destination"):
        ContainerMount(path, "/x")
    with pytest.raises(InputError, match=r"mounts\.source"):
        ContainerMount("/x", path)
    with pytest.raises(InputError, match=r"devices\.path"):
        ContainerDevice(path, 1, 3)


@pytest.mark.parametrize(
    "env",
    [
        {"": "x"},
        {"A=B": "x"},
        {"A": "x\0"},
        {"A": "x" * (10 << 20)},
        {f"A{number}": "x" * 100_000 for number in range(10)},
    ],
)
def test_an_environment_that_no_process_starts_with_is_refused(env: dict[str, str]) -> None:
    """The kernel takes 128 KiB for a variable; names have no '='."""
    with pytest.raises(InputError, match="env: "):
        ContainerAdjustment(env=env)


@pytest.mark.parametrize(
    ("kind", "major", "mode"), [("p", 1, 0o666), ("c", -1, 0o666), ("c", 1, 0o4755)]
)
def test_invalid_device_is_rejected(kind: str, major: int, mode: int) -> None:
    """A device is a character or block device, without further rights."""
    with pytest.raises(InputError, match="devices"):
        ContainerDevice("/dev/x", major, 1, kind, mode)
