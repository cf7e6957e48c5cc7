"""The node agent as a process beside a real kubelet and container runtime."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import running_controlplane
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KOORD, KoordProcess
from tests.e2e.leftovers import Leftovers
from tests.e2e.real_node import RealNode
from tests.e2e.waiting import eventually

CONNECTED = 'koordlet_nri_connected{node="real-node"}'
_GATES = ("AuditEvents", "AuditEventsHTTPHandler", "CPUNormalization")


@pytest.fixture(scope="session")
def controlplane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Run a control plane whose claims may have shares of devices."""
    flags = ("--feature-gates=DRAConsumableCapacity=true",)
    with running_controlplane(request, tmp_path_factory.mktemp("machine"), flags) as running:
        yield running


@pytest.fixture(scope="session")
def leftovers(controlplane: ControlPlane) -> Leftovers:
    """Find what tests leave; this one knows the cluster of these tests."""
    return Leftovers(controlplane.api)


class NodeAgent(KoordProcess):
    """``koord koordlet`` on the real node; ``program`` replaces ``koord``."""

    def __init__(
        self,
        controlplane: ControlPlane,
        node: RealNode,
        folder: Path,
        *flags: str,
        program: Sequence[str] = (str(KOORD),),
    ) -> None:
        port = free_port()
        command = [
            *program,
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

    def wait_until_called(self, timeout_s: float = 20.0) -> None:
        """Wait until the runtime has taken the plugin."""
        eventually(lambda: self.metric(CONNECTED) == 1, timeout_s)


StartAgent = Callable[..., NodeAgent]


@pytest.fixture
def start_agent(controlplane: ControlPlane, node: RealNode, tmp_path: Path) -> Iterator[StartAgent]:
    """``start_agent("--flag=…", asked=True)`` runs it until the test ends.

    Returns when the runtime asks it, unless it is not to be ``asked``, or never gets ``ready``.
    """
    started: list[NodeAgent] = []

    def start(
        *flags: str,
        is_called: bool = True,
        ready: bool = True,
        program: Sequence[str] = (str(KOORD),),
    ) -> NodeAgent:
        made = NodeAgent(controlplane, node, tmp_path, *flags, program=program)
        started.append(made)
        made.start(wait=ready)
        if is_called:
            made.wait_until_called()
        return made

    yield start
    for agent in started:
        agent.kill()


@pytest.fixture
def group_identity(kubectl: Callable[..., str], node: RealNode) -> None:
    """Switch group identity on for every class."""
    on = {"cpuQOS": {"enable": True}}
    strategy = {"lsrClass": on, "lsClass": on, "beClass": on}
    manifest = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": node.name},
        "spec": {"resourceQOSStrategy": strategy},
    }
    kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump(manifest))
