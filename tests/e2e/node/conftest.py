"""The node agent as a process beside a real kubelet and container runtime."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KOORD, KoordProcess
from tests.e2e.real_node import RealNode
from tests.e2e.waiting import eventually

CONNECTED = 'koordlet_nri_connected{node="real-node"}'
_GATES = ("AuditEvents", "AuditEventsHTTPHandler", "CPUNormalization")


class NodeAgent(KoordProcess):
    """``koord koordlet`` on the real node; ``start`` returns when the runtime asks it."""

    def __init__(
        self, controlplane: ControlPlane, node: RealNode, folder: Path, *flags: str
    ) -> None:
        port = free_port()
        command = [
            str(KOORD),
            "koordlet",
            f"--node-name={node.name}",
            f"--kubeconfig={controlplane.kubeconfig()}",
            f"--addr=127.0.0.1:{port}",
            f"--var-run-root-dir={node.var_run}",
            f"--var-lib-kubelet-dir={node.kubelet_folder}",
            f"--audit-log-dir={folder}/audit",
            f"--prediction-checkpoint-filepath={folder}/checkpoints",
            f"--feature-gates={','.join(f'{gate}=true' for gate in _GATES)}",
            *flags,
        ]
        super().__init__(controlplane, "koordlet", command, port)

    def start(self, *, wait: bool = True) -> None:
        super().start(wait=wait)
        if wait:
            self.wait_until_asked()

    def wait_until_asked(self) -> None:
        """Wait until the runtime has taken the plugin."""
        eventually(lambda: self.metric(CONNECTED) == 1, 20)


StartAgent = Callable[..., NodeAgent]


@pytest.fixture
def start_agent(controlplane: ControlPlane, node: RealNode, tmp_path: Path) -> Iterator[StartAgent]:
    """``start_agent("--flag=…")`` runs the agent until the test ends."""
    started: list[NodeAgent] = []

    def start(*flags: str) -> NodeAgent:
        made = NodeAgent(controlplane, node, tmp_path, *flags)
        started.append(made)
        made.start()
        return made

    yield start
    for agent in started:
        agent.kill()


@pytest.fixture
def agent(start_agent: StartAgent) -> NodeAgent:
    """Run the agent as it is by default."""
    return start_agent()
