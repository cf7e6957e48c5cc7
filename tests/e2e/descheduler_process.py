"""``koord descheduler`` as a process of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KOORD, KoordProcess


class DeschedulerProcess(KoordProcess):
    """One replica, by default without leader election and with the admin's kubeconfig.

    ``configuration`` are the fields of the file without kind, version and addresses.
    """

    def __init__(
        self,
        controlplane: ControlPlane,
        configuration: Mapping[str, Any],
        *,
        name: str = "koord-descheduler",
        kubeconfig: Path | None = None,
        flags: Sequence[str] = (),
        program: Sequence[str] = (str(KOORD),),
    ) -> None:
        port = free_port()
        address = f"127.0.0.1:{port}"
        config = controlplane.state_dir / f"{name}.yaml"
        whole = {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "healthzBindAddress": address,
            "metricsBindAddress": address,
            **configuration,
        }
        config.write_text(yaml.safe_dump(whole))
        command = [
            *program,
            "descheduler",
            f"--config={config}",
            f"--kubeconfig={kubeconfig or controlplane.kubeconfig()}",
            "--secure-port=0",
            *flags,
        ]
        super().__init__(controlplane, name, command, port)
