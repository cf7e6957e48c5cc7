"""The calls of core scheduling, on a kernel that is made up and on that of this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.core_scheduling import Kernel, absent

from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.linux.core_scheduling import LinuxCoreScheduling
from koordinator.host.port import NoCoreScheduling


@pytest.fixture
def processes() -> Iterator[tuple[int, int]]:
    """Start two processes that wait."""
    command = [sys.executable, "-S", "-c", "input()"]
    made = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    yield made[0].pid, made[1].pid
    for process in made:
        process.kill()
        process.communicate()


def test_cookie_is_created_shared_and_cleared() -> None:
    """The calling thread never has the cookie."""
    kernel = Kernel(1, 2, 3)
    calls = LinuxCoreScheduling(kernel.prctl)

    calls.create(1)
    calls.share(1, [2, 3])
    assert calls.is_available()
    assert calls.cookie(1) == calls.cookie(2) == calls.cookie(3) != 0
    assert kernel.own_cookie == 0

    calls.clear([1, 2])
    assert [calls.cookie(pid) == 0 for pid in (1, 2, 3)] == [True, True, False]


def test_ended_process_is_skipped_and_a_refusal_is_raised() -> None:
    """The other processes get the cookie."""
    kernel = Kernel(1, 2)
    calls = LinuxCoreScheduling(kernel.prctl)
    calls.create(1)
    calls.share(1, [9, 2])
    assert calls.cookie(2) == calls.cookie(1)

    with pytest.raises(MissingFileError, match="cannot schedule cores for 9: No such process"):
        calls.cookie(9)
    with pytest.raises(MissingFileError):
        calls.share(9, [2])
    kernel.refused = {2}
    with pytest.raises(HostError, match="Operation not permitted"):
        calls.clear([2])


def test_calling_process_gets_no_cookie() -> None:
    """A calling process with a cookie would pass it on to other processes."""
    own = os.getpid()
    kernel = Kernel(1, own)
    calls = LinuxCoreScheduling(kernel.prctl)
    calls.create(1)
    calls.share(1, [own])

    assert kernel.cookies[own] == 0
    with pytest.raises(MissingFileError):
        calls.cookie(own)


def test_kernel_without_core_scheduling_is_detected() -> None:
    """As a kernel that is configured without, or one on cores of one thread."""
    assert not LinuxCoreScheduling(absent).is_available()
    assert not NoCoreScheduling().is_available()
    with pytest.raises(HostError, match="no core scheduling"):
        NoCoreScheduling().cookie(1)


def test_the_kernel_of_this_machine_takes_the_calls(processes: tuple[int, int]) -> None:
    """Where it schedules cores, two processes get a cookie and lose it again."""
    calls = LinuxCoreScheduling()
    if not calls.is_available() or os.geteuid() != 0:
        pytest.skip("needs root, and a kernel with CONFIG_SCHED_CORE on cores of two threads")
    first, second = processes
    calls.create(first)
    calls.share(first, [second])
    assert calls.cookie(first) == calls.cookie(second) != 0

    calls.clear([first, second])
    assert calls.cookie(first) == calls.cookie(second) == 0
