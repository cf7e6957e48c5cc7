"""Node agents live through outages, replaced credentials, stopped time and clocks that are set."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import pytest
from tests.e2e.conftest import running_controlplane
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koordlet.node_agents import BoundPod, NodeAgent
from tests.e2e.waiting import eventually
from tests.soak.disturbances import HOUR_S, STEPPED, replace_token, step_clock

_PATIENCE_S = 120.0
_SUSPENDED_S = 20.0  # longer than a round of any timer but reports
_PODS = "/api/v1/namespaces/default/pods"


@dataclass(slots=True)
class Node:
    """Two agents, one with a token and one with a client certificate."""

    cluster: ControlPlane
    agents: list[NodeAgent]
    pids: list[int]
    tokens: Iterator[int]

    def set_clocks(self, seconds: float) -> None:
        """Have the clocks be fast for a while."""
        step_clock(self.cluster.state_dir / "agents.clock", seconds)

    def suspend(self) -> None:
        """Stop both agents while everything is due, and continue them."""
        for each in self.agents:
            each.signal(signal.SIGSTOP)
        time.sleep(_SUSPENDED_S)
        for each in self.agents:
            each.signal(signal.SIGCONT)

    def replace_token(self) -> None:
        """Revoke the token in use, after another one is in its file."""
        file = self.cluster.state_dir / "agents.token"
        replace_token(self.cluster.api, self.cluster, file, next(self.tokens))

    def replace_certificate(self) -> None:
        """Write another certificate to the files in use; connections end with the server."""
        self.cluster.authority.issue_client("agents", ("system:masters",))
        self.cluster.restart_apiserver()


@pytest.fixture(scope="module")
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """Run a control plane that these tests may restart, and the agents."""
    with running_controlplane(request, tmp_path_factory.mktemp("agents")) as cluster:
        state = cluster.state_dir
        token, clock = state / "agents.token", state / "agents.clock"
        clock.write_text("0")
        replace_token(cluster.api, cluster, token, 0)
        certificate, key = cluster.authority.issue_client("agents", ("system:masters",))
        files = {"client-certificate": str(certificate), "client-key": str(key)}
        ways = (
            cluster.write_kubeconfig("by-token", {"tokenFile": str(token)}),
            cluster.write_kubeconfig("by-certificate", files),
        )
        program = (sys.executable, "-c", STEPPED, str(clock))
        agents = [NodeAgent(cluster, f"agent-{it}", way, program) for it, way in enumerate(ways)]
        for each in agents:
            each.start()
        yield Node(cluster, agents, [each.pid for each in agents], count(1))
        for each in agents:
            sys.stdout.write(each.last_words(30))
            each.kill()


@pytest.mark.parametrize(
    "disturb",
    [
        pytest.param(lambda node: node.cluster.restart_apiserver(), id="outage"),
        pytest.param(lambda node: node.cluster.compact_history(), id="compaction"),
        pytest.param(Node.replace_token, id="token"),
        pytest.param(Node.replace_certificate, id="certificate"),
        pytest.param(Node.suspend, id="suspended"),
        pytest.param(lambda node: node.set_clocks(HOUR_S), id="clock forward"),
        pytest.param(lambda node: node.set_clocks(-HOUR_S), id="clock back"),
    ],
)
def test_agents_serve_new_pods_after(node: Node, disturb: Callable[[Node], None]) -> None:
    """A pod that is bound then gets its CPUs, and the processes are those that were started."""
    disturb(node)

    pods = [BoundPod(agent, node.cluster.api, _PODS) for agent in node.agents]
    eventually(lambda: all(each.has_its_cpus() for each in pods), _PATIENCE_S)
    for each in pods:
        each.end()
    assert [each.pid for each in node.agents if each.is_running] == node.pids
    assert not any("Traceback" in each.log.read_text() for each in node.agents)
