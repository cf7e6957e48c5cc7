"""``koord manager`` as a process of its own."""

from collections.abc import Sequence
from pathlib import Path

from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KOORD, KoordProcess

NAMESPACE = "koordinator-system"


class ManagerProcess(KoordProcess):
    """One replica, by default without election and with the admin's kubeconfig."""

    def __init__(
        self,
        controlplane: ControlPlane,
        flags: Sequence[str] = (),
        *,
        name: str = "koord-manager",
        kubeconfig: Path | None = None,
        elects: bool = False,
        program: Sequence[str] = (str(KOORD),),
    ) -> None:
        self.webhook_port, health_port = free_port(), free_port()
        command = [
            *program,
            "manager",
            f"--kubeconfig={kubeconfig or controlplane.kubeconfig()}",
            f"--enable-leader-election={str(elects).lower()}",
            f"--webhook-port={self.webhook_port}",
            "--webhook-host=127.0.0.1",
            "--metrics-addr=0",
            f"--health-probe-addr=127.0.0.1:{health_port}",
            *flags,
        ]
        super().__init__(controlplane, name, command, health_port)
