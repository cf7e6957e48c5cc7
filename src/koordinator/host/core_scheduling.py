"""Which processes may share a CPU core with which: the cookies of the kernel's core scheduling.

Threads with different cookies never run on one core at the same time; 0 is the cookie of all that
have none.  The kernel chooses the numbers.
Source: Linux Documentation/admin-guide/hw-vuln/core-scheduling.rst.
"""

from collections.abc import Sequence
from typing import Protocol

from koordinator.foundation.errors import HostError


class CoreScheduling(Protocol):
    """Cookies of processes; every method but the first raises HostError where it is refused.

    MissingFileError stands for a process that has ended, and for the one that asks: who takes
    cookies away must have none.
    """

    def is_available(self) -> bool:
        """Whether the kernel schedules cores, and these have threads to be kept apart."""

    def cookie(self, pid: int) -> int:
        """Return the cookie of the first thread of a process."""

    def create(self, pid: int) -> None:
        """Give all threads of a process a cookie that nobody has."""

    def share(self, source: int, pids: Sequence[int]) -> None:
        """Give all threads of processes the cookie of another process."""

    def clear(self, pids: Sequence[int]) -> None:
        """Take the cookie from all threads of processes."""


class NoCoreScheduling:
    """A kernel without it."""

    def is_available(self) -> bool:
        return False

    def cookie(self, pid: int) -> int:
        raise _absent(pid)

    def create(self, pid: int) -> None:
        raise _absent(pid)

    def share(self, source: int, pids: Sequence[int]) -> None:
        raise _absent(source, *pids)

    def clear(self, pids: Sequence[int]) -> None:
        raise _absent(*pids)


def _absent(*pids: int) -> HostError:
    return HostError(f"can't schedule cores for {list(pids)}: the kernel has no core scheduling")
