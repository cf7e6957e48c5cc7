"""``koord`` commands that run on, as processes of their own, as an operator runs them."""

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.controlplane import ControlPlane, ControlPlaneError
from tests.e2e.waiting import eventually

_START_TIMEOUT_S = 60.0
KOORD = Path(sys.executable).with_name("koord")


class KoordProcess:
    """One replica, which serves its pages on ``port``.  ``with`` starts and stops it."""

    def __init__(
        self, controlplane: ControlPlane, name: str, command: Sequence[str], port: int
    ) -> None:
        self.port = port
        self.log = controlplane.state_dir / f"{name}.log"
        self._controlplane = controlplane
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start, and wait until it is ready."""
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, whatever the state."""
        self.kill()

    def last_words(self, lines: int = 60) -> str:
        """Return the end of what it logged."""
        return "\n".join(self.log.read_text().splitlines()[-lines:])

    @property
    def pid(self) -> int:
        """The process id; only after ``start``."""
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start; ``wait`` until /readyz succeeds."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                process_group=self._controlplane.process_group,
            )
        if wait:
            self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """Return when /readyz succeeds; otherwise raise with the end of the log."""
        command = " ".join(Path(word).name for word in self._command[:2])
        try:
            eventually(lambda: not self.is_running or self.get("/readyz") == "ok", _START_TIMEOUT_S)
        except AssertionError:
            problem = f"is not ready after {_START_TIMEOUT_S:.0f} s"
        else:
            if self.is_running:
                return
            problem = f"ended with {self.exit_code()} instead of becoming ready"
        raise ControlPlaneError(f"{command} {problem}. End of {self.log}:\n{self.last_words()}")

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> int:
        """Ask it to stop and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.exit_code()

    def kill(self) -> None:
        """End it at once, as a machine that dies does."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def exit_code(self, timeout_s: float = 60.0) -> int:
        """Wait for the end and return the exit code."""
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.wait(timeout_s)

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def get(self, path: str) -> str:
        """Return a page; empty while it can't be had."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            return ""

    def metric(self, series: str) -> float:
        """Return the value of a series as it stands in /metrics; 0 if it is not there."""
        for line in self.get("/metrics").splitlines():
            if line.startswith(series + " "):
                return float(line.rpartition(" ")[2])
        return 0.0
