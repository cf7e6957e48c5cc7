"""``koord scheduler`` as a process of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KOORD, KoordProcess


class SchedulerProcess(KoordProcess):
    """One replica.

    ``configuration`` has the fields of the file besides kind and version; without it there is no
    leader election.  ``kubeconfig`` is the admin's unless given; ``program`` replaces ``koord``.
    """

    def __init__(
        self,
        controlplane: ControlPlane,
        configuration: Mapping[str, Any] | None = None,
        *,
        name: str = "koord-scheduler",
        kubeconfig: Path | None = None,
        flags: Sequence[str] = (),
        program: Sequence[str] = (str(KOORD),),
    ) -> None:
        config = controlplane.state_dir / f"{name}.yaml"
        whole = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            **(configuration or {"leaderElection": {"leaderElect": False}}),
        }
        config.write_text(yaml.safe_dump(whole))
        port = free_port()
        command = [
            *program,
            "scheduler",
            f"--config={config}",
            f"--kubeconfig={kubeconfig or controlplane.kubeconfig()}",
            f"--port={port}",
            "--address=127.0.0.1",
            "--secure-port=0",
            *flags,
        ]
        super().__init__(controlplane, name, command, port)
