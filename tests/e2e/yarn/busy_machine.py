"""A machine of files with running programs: counters increase while CPUs are used."""

import os
import threading
import time
from pathlib import Path
from typing import Self

from tests.e2e.koordlet.agent_process import CPUS, MachineOfFiles
from tests.nodes import V1

from koordinator.domain.cgroups.files import CgroupFile, cgroup_path

GIB = 1 << 30
MEMORY_BYTES = 8 * GIB
_TICKS = 100  # of /proc/stat, a second
_NANOS = 10**9


class BusyMachine(MachineOfFiles):
    """``with`` runs its clock.  Numbers are written in place with a fixed width."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._uses: dict[str, tuple[float, int]] = {}
        self._used_ns: dict[str, float] = {}
        self._idle_ns = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._show()

    def __enter__(self) -> Self:
        """Begin to count."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Count no more."""
        self._stopping.set()
        self._thread.join(10)

    def use(self, folder: str, cores: float, memory_bytes: int = 0) -> None:
        """Set the CPU usage of a cgroup."""
        self._uses[folder] = cores, memory_bytes

    def _run(self) -> None:
        before_s = time.monotonic()
        while not self._stopping.wait(0.1):
            now_s = time.monotonic()
            passed_ns, before_s = (now_s - before_s) * _NANOS, now_s
            busy_ns = 0.0
            for folder, (cores, _) in tuple(self._uses.items()):
                self._used_ns[folder] = self._used_ns.get(folder, 0.0) + cores * passed_ns
                busy_ns += cores * passed_ns
            self._idle_ns += CPUS * passed_ns - busy_ns
            self._show()

    def _show(self) -> None:
        used = sum(memory for _, memory in tuple(self._uses.values()))
        ticks = int(sum(self._used_ns.values()) * _TICKS / _NANOS)
        idle = int(self._idle_ns * _TICKS / _NANOS)
        self._put(self.folder / "proc/stat", f"cpu  {ticks:015} 0 0 {idle:015} 0 0 0\n")
        free = (MEMORY_BYTES - used) >> 10
        self._put(
            self.folder / "proc/meminfo",
            f"MemTotal: {MEMORY_BYTES >> 10:015} kB\nMemFree: {free:015} kB\n"
            f"MemAvailable: {free:015} kB\nActive(file): 0 kB\nInactive(file): 0 kB\n"
            "SReclaimable: 0 kB\n",
        )
        for folder, (_, memory) in tuple(self._uses.items()):
            self._put(
                self._file(CgroupFile.CPU_USAGE, folder),
                f"{int(self._used_ns.get(folder, 0)):020}\n",
            )
            self._put(
                self._file(CgroupFile.MEMORY_STAT, folder),
                f"total_inactive_anon 0\ntotal_active_anon {memory:020}\n"
                "total_inactive_file 0\ntotal_active_file 0\ntotal_unevictable 0\n",
            )

    def _file(self, file: CgroupFile, folder: str) -> Path:
        return self.folder / f"cgroup/{cgroup_path(file, folder, V1)}"

    @staticmethod
    def _put(path: Path, text: str) -> None:
        """Write in one piece: who keeps the file open never reads a part of it."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(descriptor, text.encode(), 0)
            os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)
