"""Commands and servers of ``koord``, run as processes, with what they took."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.e2e.controlplane.endpoint import free_port

KOORD = Path(sys.executable).with_name("koord")
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended: its exit code, what it wrote, and what it took."""

    code: int
    output: str
    errors: str
    seconds: float
    peak_mib: int

    def check(self, *, codes: Sequence[int] = (0, 1, 2), most_mib: int = 500) -> None:
        """Raise AssertionError if the command crashed, or took more memory than it may."""
        assert self.code in codes, f"exit code {self.code}: {self.errors[-2000:]}"
        assert "Traceback" not in self.errors + self.output, self.errors[-2000:]
        assert self.peak_mib <= most_mib, f"{self.peak_mib} MiB"


def koord(*arguments: object, stdin: str = "", timeout_s: float = 60.0) -> Ended:
    """Run a command to its end.  Raises AssertionError if it takes longer than ``timeout_s``."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
    ):
        given.write(stdin.encode())
        given.seek(0)
        began = time.monotonic()
        command = [str(KOORD), *map(str, arguments)]
        process = subprocess.Popen(command, stdin=given, stdout=out, stderr=errors)
        handle = os.pidfd_open(process.pid)
        try:
            if not select.select([handle], [], [], timeout_s)[0]:
                process.kill()
                process.wait()
                raise AssertionError(f"koord {arguments[0]} runs for more than {timeout_s} s")
        finally:
            os.close(handle)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - began
        peak_mib = usage.ru_maxrss // 1024
        return Ended(process.returncode, _text(out), _text(errors), took, peak_mib)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


class Server:
    """A ``koord`` command that serves HTTP on loopback.  ``with`` starts and ends it.

    Arguments may say ``{port}``.
    """

    def __init__(self, *arguments: object, probe: str = "/livez") -> None:
        self.port = free_port()
        self._command = [
            str(KOORD),
            *(str(it).replace("{port}", str(self.port)) for it in arguments),
        ]
        self._probe = probe
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by __exit__
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start, and wait until the probe is answered."""
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
        give_up = time.monotonic() + 60
        while not self.answers(self._probe):
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.__exit__(None, None, None)
                raise AssertionError(f"{self._command} does not serve")
            time.sleep(_POLL_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._log.close()

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Return what it has written."""
        return _text(self._log)

    def rss_mib(self) -> int:
        """Return its resident memory."""
        assert self._process is not None
        return rss_mib(self._process.pid)

    def get(self, path: str, timeout_s: float = 10.0) -> str:
        """Return a page.  Raises OSError if there is none."""
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            text: str = answer.read().decode()
            return text

    def answers(self, path: str = "/livez", timeout_s: float = 5.0) -> bool:
        """Return whether a page comes in time."""
        try:
            self.get(path, timeout_s)
        except OSError:
            return False
        return True

    def wait_for(self, port: int) -> None:
        """Wait until another port of the server is listened on."""
        give_up = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            except OSError:
                assert self.is_running, self.log()[-2000:]
                assert time.monotonic() < give_up, f"nothing listens on {port}"
                time.sleep(_POLL_S)
            else:
                return

    def connect(self, timeout_s: float = 10.0) -> socket.socket:
        """Return a new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)


def rss_mib(pid: int) -> int:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    raise AssertionError(f"process {pid} has ended")
