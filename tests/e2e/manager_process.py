"""``koord manager`` as a process of its own, as an operator runs it."""

import subprocess
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.scheduler_process import KOORD
from tests.e2e.waiting import eventually

NAMESPACE = "koordinator-system"


class ManagerProcess:
    """One replica.  ``with ManagerProcess(controlplane)`` starts and stops it.

    Without election and with the admin's kubeconfig unless told otherwise.
    """

    def __init__(
        self,
        controlplane: ControlPlane,
        flags: Sequence[str] = (),
        *,
        name: str = "koord-manager",
        kubeconfig: Path | None = None,
        elects: bool = False,
    ) -> None:
        self.webhook_port, self.health_port = free_port(), free_port()
        self._controlplane = controlplane
        self.log = controlplane.state_dir / f"{name}.log"
        self._command = [
            str(KOORD),
            "manager",
            f"--kubeconfig={kubeconfig or controlplane.kubeconfig()}",
            f"--enable-leader-election={str(elects).lower()}",
            f"--webhook-port={self.webhook_port}",
            "--webhook-host=127.0.0.1",
            "--metrics-addr=0",
            f"--health-probe-addr=127.0.0.1:{self.health_port}",
            *flags,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start, and wait until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                process_group=self._controlplane.process_group,
            )
        try:
            eventually(self.is_ready, 60)
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

    def is_ready(self) -> bool:
        """Whether /readyz says so."""
        try:
            url = f"http://127.0.0.1:{self.health_port}/readyz"
            with urllib.request.urlopen(url, timeout=5) as answer:
                ready: bool = answer.status == HTTPStatus.OK
                return ready
        except OSError:
            return False

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
