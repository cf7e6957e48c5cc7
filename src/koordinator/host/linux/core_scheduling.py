"""Core scheduling of this machine, through prctl(PR_SCHED_CORE).

The kernel copies a cookie from or to the calling thread.  Therefore a short-lived thread copies
cookies, so that the other threads of this process never have one.
Source: Linux Documentation/admin-guide/hw-vuln/core-scheduling.rst, kernel/sched/core_sched.c.
"""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Final

from koordinator.foundation.errors import HostError, MissingFileError

SCHED_CORE: Final = 62  # PR_SCHED_CORE
GET, CREATE, SHARE_TO, SHARE_FROM = range(4)
THREAD, THREAD_GROUP = range(2)

#: Arguments: operation, pid, scope, destination of a cookie.  Returns 0 or an errno.
Prctl = Callable[[int, int, int, ctypes.c_uint64 | None], int]


_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _prctl(operation: int, pid: int, scope: int, cookie: ctypes.c_uint64 | None) -> int:
    address = None if cookie is None else ctypes.byref(cookie)
    arguments = (ctypes.c_ulong(operation), ctypes.c_ulong(pid), ctypes.c_ulong(scope), address)
    return ctypes.get_errno() if _LIBC.prctl(SCHED_CORE, *arguments) else 0


class LinuxCoreScheduling:
    """Implementation of ``CoreScheduling``; ``call`` is the system call."""

    def __init__(self, call: Prctl = _prctl) -> None:
        self._call = call

    def is_available(self) -> bool:
        return self._call(GET, 0, THREAD, ctypes.c_uint64()) == 0

    def cookie(self, pid: int) -> int:
        cookie = ctypes.c_uint64()
        self._do(GET, pid, THREAD, cookie)
        return cookie.value

    def create(self, pid: int) -> None:
        self._do(CREATE, pid, THREAD_GROUP)

    def share(self, source: int, pids: Sequence[int]) -> None:
        self._assign(source, pids)

    def clear(self, pids: Sequence[int]) -> None:
        self._assign(None, pids)

    def _assign(self, source: int | None, pids: Sequence[int]) -> None:
        """Assign the cookie of ``source``, or none, to the processes that still run."""
        failures: list[HostError] = []

        def work() -> None:
            try:
                if source is not None:
                    self._do(SHARE_FROM, source, THREAD)
                for pid in pids:
                    try:
                        self._do(SHARE_TO, pid, THREAD_GROUP)
                    except MissingFileError:
                        continue
            except HostError as error:
                failures.append(error)

        thread = Thread(target=work, name="core scheduling")
        thread.start()
        thread.join()
        if failures:
            raise failures[0]

    def _do(
        self, operation: int, pid: int, scope: int, cookie: ctypes.c_uint64 | None = None
    ) -> None:
        is_own = pid == os.getpid()
        number = errno.ESRCH if is_own else self._call(operation, pid, scope, cookie)
        if number:
            kind = MissingFileError if number == errno.ESRCH else HostError
            raise kind(f"cannot schedule cores for {pid}: {os.strerror(number)}")
