"""Port to the kernel's core scheduling: cookies that determine which threads may share a core.

Threads with different cookies never run on one core at the same time; 0 is the cookie of threads
without one.  The kernel chooses the numbers.
Source: Linux Documentation/admin-guide/hw-vuln/core-scheduling.rst.
"""

from collections.abc import Sequence
from typing import Protocol

from koordinator.foundation.errors import HostError


class CoreScheduling(Protocol):
    """Cookies of processes.  Methods except the first raise HostError for errors of the kernel.

    They raise MissingFileError for a process that has ended, and for the calling process, which
    must have no cookie in order to remove cookies.
    """

    def is_available(self) -> bool:
        """Whether the kernel supports core scheduling, and the cores have several threads."""

    def cookie(self, pid: int) -> int:
        """Return the cookie of the first thread of a process."""

    def create(self, pid: int) -> None:
        """Assign a new cookie to all threads of a process."""

    def share(self, source: int, pids: Sequence[int]) -> None:
        """Assign the cookie of ``source`` to all threads of processes."""

    def clear(self, pids: Sequence[int]) -> None:
        """Remove the cookie from all threads of processes."""


class NoCoreScheduling:
    """Kernel without core scheduling."""

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
