"""A kernel with core scheduling, as prctl(PR_SCHED_CORE) shows it.

Source: Linux kernel/sched/core_sched.c, ``sched_core_share_pid``.
"""

import ctypes
import errno
import itertools
import threading
from collections.abc import Collection

from koordinator.host.linux.core_scheduling import (
    CREATE,
    GET,
    SHARE_FROM,
    SHARE_TO,
    THREAD,
    THREAD_GROUP,
)


class Kernel:
    """Has processes, each of one thread, and their cookies; threads of ours have some, too.

    ``refused`` are processes that may not be touched.
    """

    def __init__(self, *pids: int) -> None:
        self.cookies = dict.fromkeys(pids, 0)
        self.refused: Collection[int] = ()
        self.changes = 0
        self._own = threading.local()  # the number of a thread may be that of one that has ended
        self._fresh = itertools.count(0xC0, 0x10)

    @property
    def own_cookie(self) -> int:
        """Of the thread that asks."""
        return getattr(self._own, "cookie", 0)

    def prctl(self, operation: int, pid: int, scope: int, cookie: ctypes.c_uint64 | None) -> int:
        """Return the number of an error, 0 for none."""
        if pid and pid not in self.cookies:
            return errno.ESRCH
        if pid in self.refused and operation != GET:
            return errno.EPERM
        if (cookie is None) is (operation == GET):
            return errno.EINVAL
        if operation in {GET, SHARE_FROM} and scope != THREAD:
            return errno.EINVAL
        if operation in {CREATE, SHARE_TO} and scope != THREAD_GROUP:
            return errno.EINVAL
        self.changes += operation in {CREATE, SHARE_TO}
        match operation:
            case 0 if cookie is not None:
                cookie.value = self.cookies[pid] if pid else self.own_cookie
            case 1:
                self.cookies[pid] = next(self._fresh)
            case 2:
                self.cookies[pid] = self.own_cookie
            case 3:
                self._own.cookie = self.cookies[pid]
        return 0


def absent(_: int, _pid: int, _scope: int, _cookie: ctypes.c_uint64 | None) -> int:
    """Answer as a kernel without core scheduling does."""
    return errno.EINVAL
