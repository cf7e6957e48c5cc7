"""``koord yarn-operator`` as a process of its own."""

import getpass
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KOORD, KoordProcess


class YarnOperatorProcess(KoordProcess):
    """One replica, by default without election and with the admin's kubeconfig."""

    def __init__(
        self,
        controlplane: ControlPlane,
        conf_dir: Path,
        flags: Sequence[str] = (),
        *,
        kubeconfig: Path | None = None,
        elects: bool = False,
        name: str = "koord-yarn-operator",
    ) -> None:
        port = free_port()
        command = [
            str(KOORD),
            "yarn-operator",
            f"--kubeconfig={kubeconfig or controlplane.kubeconfig()}",
            f"--hadoop-conf-dir={conf_dir}",
            f"--hadoop-user-name={getpass.getuser()}",
            f"--enable-leader-election={str(elects).lower()}",
            f"--metrics-addr=127.0.0.1:{port}",
            "--health-probe-addr=0",
            *flags,
        ]
        super().__init__(controlplane, name, command, port)

    @property
    def leads(self) -> bool:
        """Whether its metric reports it."""
        return "koord_yarn_operator_is_leader 1.0" in self.get("/metrics")
