"""Programs that run while a test does, and never longer.

All processes of one ``ProcessGroup`` are killed together: by ``kill``, or by the group's guard when
the Python process that made the group ends, however it ends.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.controlplane.errors import ControlPlaneError

_LOG_LINES = 30


class ProcessGroup:
    """A guard, which kills its process group when its standard input ends, and its wards."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            ["sh", "-c", "read -r _; kill -KILL 0"],  # noqa: S607 -- any POSIX shell
            stdin=subprocess.PIPE,
            process_group=0,
        )

    @property
    def id(self) -> int:
        """The id of the process group."""
        return self._guard.pid

    def kill(self) -> None:
        """End all processes of the group at once."""
        os.killpg(self.id, signal.SIGKILL)  # the guard is not waited for before, so it has its id
        self._guard.communicate()


class Program:
    """One program with its command line; may be stopped and started again."""

    def __init__(
        self, name: str, command: Sequence[str], log_path: Path, group: ProcessGroup
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._command = command
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program; its output goes to the end of its log."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=self._group.id,
                cwd=self.log_path.parent,
            )

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Send the signal and wait for the end.  Stopping twice is allowed."""
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        """The process id; only while it runs."""
        if self._process is None:
            raise ControlPlaneError(f"{self.name} is not running")
        return self._process.pid

    def is_running(self) -> bool:
        """Whether it was started and hasn't ended."""
        return self._process is not None and self._process.poll() is None

    def read_cpu_s(self) -> float:
        """Return the CPU time used so far; raise ControlPlaneError if the program has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise ControlPlaneError(f"it ended with status {self._process.returncode}")
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        user, system = fields[11:13]  # fields 14 and 15; the name, which may contain spaces, is 2
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def log_size(self) -> int:
        """Return the size of the log so far, in bytes."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_tail(self, since_byte: int = 0) -> str:
        """Return the last lines of the log, of those after ``since_byte``."""
        with self.log_path.open("rb") as log:
            log.seek(since_byte)
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])
