"""Performance counters of this machine's CPUs, through perf_event_open.

Neither the C library nor Python has a wrapper, so the system call is made by its number.
Source: Linux man 2 perf_event_open, include/uapi/linux/perf_event.h.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.linux.trees import Trees
from koordinator.host.port import PerfCounting, PerfCounts

_NUMBERS = {"x86_64": 298, "aarch64": 241}
_PID_IS_CGROUP, _CLOEXEC = 1 << 2, 1 << 3  # PERF_FLAG_PID_CGROUP, PERF_FLAG_FD_CLOEXEC
_FORMAT = 1 << 0 | 1 << 1 | 1 << 3  # time enabled, time running, group
_EXCLUDE_HYPERVISOR = 1 << 6
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")  # PERF_ATTR_SIZE_VER0, supported by all kernels
_READ = struct.Struct("=QQQQQ")  # count, time enabled, time running, and the two counters
_NO_LEADER = -1
_REFUSALS = {  # errors whose standard text misleads
    errno.ENOENT: "the CPU has no such counter, or a virtual machine hides it",
    errno.EACCES: "not permitted; see /proc/sys/kernel/perf_event_paranoid",
    errno.EMFILE: "too many open files; raise the limit of the agent",
}


class PerfEvent(NamedTuple):
    """Type and number of an event in perf_event.h."""

    type: int
    config: int


CYCLES: Final = PerfEvent(0, 0)
INSTRUCTIONS: Final = PerfEvent(0, 1)


class LinuxPerfEvents:
    """Implementation of ``PerfEvents``.

    The two ``events`` form a group per CPU, so that the kernel schedules both counters at the same
    time; their ratio is correct even when it multiplexes counters.  Cgroups are opened below
    ``trees`` only.
    """

    def __init__(
        self,
        events: tuple[PerfEvent, PerfEvent] = (CYCLES, INSTRUCTIONS),
        trees: Trees | None = None,
    ) -> None:
        self._events = events
        self._trees = trees or Trees()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._number = _NUMBERS.get(platform.machine())

    def start(self, folder: str, cpus: Sequence[int]) -> PerfCounting:
        try:
            cgroup = self._trees.open_folder(folder)
        except OSError as error:
            kind = MissingFileError if error.errno == errno.ENOENT else HostError
            raise kind(f"cannot count for {folder}: {error.strerror}") from None
        counting = _Counting(folder)
        try:
            for cpu in cpus:
                leader = _NO_LEADER
                for event in self._events:
                    descriptor = self._open(event, cgroup, cpu, leader)
                    counting.add(descriptor, is_leader=leader == _NO_LEADER)
                    leader = descriptor if leader == _NO_LEADER else leader
        except OSError as error:
            counting.close()
            why = _REFUSALS.get(error.errno or 0, error.strerror)
            raise HostError(f"cannot count for {folder}: {why}") from None
        finally:
            os.close(cgroup)
        return counting

    def _open(self, event: PerfEvent, cgroup: int, cpu: int, leader: int) -> int:
        if self._number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        attributes = _ATTRIBUTES.pack(
            event.type, _ATTRIBUTES.size, event.config, 0, 0, _FORMAT, _EXCLUDE_HYPERVISOR, 0, 0, 0
        )
        descriptor: int = self._libc.syscall(
            self._number, attributes, cgroup, cpu, leader, _PID_IS_CGROUP | _CLOEXEC
        )
        if descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return descriptor


class _Counting:
    """Implementation of ``PerfCounting``: open descriptors, two per CPU."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: list[int] = []
        self._leaders: list[int] = []

    def add(self, descriptor: int, *, is_leader: bool) -> None:
        self._open.append(descriptor)
        if is_leader:
            self._leaders.append(descriptor)

    def stop(self) -> PerfCounts:
        try:
            read = [_READ.unpack(os.read(leader, _READ.size)) for leader in self._leaders]
        except (OSError, struct.error) as error:
            raise HostError(f"cannot count for {self._folder}: {error}") from None
        finally:
            self.close()
        cycles = instructions = 0.0
        for _, enabled, running, first, second in read:
            if running:  # 0 if no task ran there, or the counters were not scheduled
                cycles += first * enabled / running
                instructions += second * enabled / running
        return PerfCounts(cycles, instructions)

    def close(self) -> None:
        for descriptor in self._open:
            with suppress(OSError):
                os.close(descriptor)
        self._open.clear()
        self._leaders.clear()
