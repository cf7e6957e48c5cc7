"""CUDA loads as child processes, with or without HAMi-core."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.gpu.report import SkippedError

_PROGRAM = Path(__file__).with_name("cuda_load.py")
_READY_S = 60.0
_LONGEST_S = 120.0
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


@dataclass(frozen=True, slots=True)
class Limits:
    """HAMi-core's library with its limits and the file of the shared region."""

    library: Path
    region: Path
    memory_mib: int
    core_percent: int
    priority: int = 1

    def environment(self) -> dict[str, str]:
        """Return the variables that the agent sets in a container."""
        return {
            "LD_PRELOAD": str(self.library),
            "CUDA_REDIRECT": str(self.library),
            "CUDA_DEVICE_MEMORY_LIMIT": f"{self.memory_mib}m",
            "CUDA_DEVICE_SM_LIMIT": str(self.core_percent),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.region),
            "CUDA_TASK_PRIORITY": str(self.priority),
            "LIBCUDA_LOG_LEVEL": "0",
        }


class RunningLoad:
    """Child process; a thread reads its output."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.code = -1
        self._error = ""
        self._launches = 0
        self._at = 0.0
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> None:
        """Wait for the allocation.  Raises SkippedError if the driver lacks a function."""
        if not self._ready.wait(_READY_S):
            raise TimeoutError(f"the CUDA load has not started within {_READY_S:.0f} s")
        if " has no cu" in self._error:
            raise SkippedError(self._error)
        if self._error:
            raise RuntimeError(self._error)

    def rate(self, seconds: float) -> float:
        """Return kernels per second, measured for so many seconds by the child's clock.

        0 if the child reports no kernel at all.
        """
        first, begin = self._launches, self._at
        time.sleep(seconds)
        count, duration = self._launches - first, self._at - begin
        return count / max(duration, seconds) if count else 0.0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if not text.startswith("{"):
                continue  # a library that writes to standard output
            line = json.loads(text)
            if line["event"] == "ready":
                self.code = line["code"]
                self._ready.set()
            elif line["event"] == "launches":
                self._launches, self._at = line["count"], line["at"]
            else:
                self._error = line["error"]
        if not self._ready.is_set():
            self._error = self._error or "the CUDA load has ended before its allocation"
            self._ready.set()


@contextmanager
def running(
    mib: int, *, duty: float = 1.0, limits: Limits | None = None, sm_percent: int = 90
) -> Iterator[RunningLoad]:
    """Start a load on the first GPU, wait for its allocation, and kill it at the end.

    ``sm_percent`` is the SM use that pretended drivers report.
    """
    process = subprocess.Popen(
        [
            sys.executable,
            str(_PROGRAM),
            f"--mib={mib}",
            f"--seconds={_LONGEST_S}",
            f"--duty={duty}",
        ],
        env=os.environ
        | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "FAKE_GPU_SM": str(sm_percent)}
        | (limits.environment() if limits else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    load = RunningLoad(process)
    try:
        load.wait_until_ready()
        yield load
    finally:
        process.kill()
        process.wait()
