"""``koord yarn-copilot`` as a process of its own."""

import getpass
import signal
import subprocess
from pathlib import Path

from tests.e2e.controlplane import ControlPlane
from tests.e2e.koord_process import KOORD
from tests.e2e.waiting import eventually
from tests.e2e.yarn.real_yarn import RealYarn


class CopilotProcess:
    """Copilot process, which has the ResourceManager end containers without a cgroup."""

    def __init__(
        self, controlplane: ControlPlane, yarn: RealYarn, socket: Path, cgroups: str = "none"
    ) -> None:
        """``cgroups`` is the folder above the cgroups of containers."""
        self.socket, self.cgroups = socket, cgroups
        self.log = socket.with_suffix(".log")
        self._controlplane = controlplane
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            str(KOORD),
            "yarn-copilot",
            f"--server-endpoint={socket}",
            f"--node-manager-endpoint=localhost:{yarn.node_web}",
            f"--hadoop-conf-dir={yarn.conf_dir}",
            f"--hadoop-user-name={getpass.getuser()}",
            f"--yarn-container-cgroup-path={cgroups}",
        ]

    def start(self, *, wait: bool = True) -> None:
        """Start, and ``wait`` until it accepts requests."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                process_group=self._controlplane.process_group,
            )
        if wait:
            eventually(self.socket.is_socket, 60)

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def stop(self) -> int:
        """Ask it to stop; return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(30)
        self._process = None
        return code
