"""Disturbances of components on a real API server: of the server, of credentials and of clocks."""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.descheduler_process import DeschedulerProcess
from tests.e2e.koord_process import KoordProcess
from tests.e2e.koordlet.node_agents import NodeAgent
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

HOUR_S = 3600.0
STEPPED_S = 10.0  # for which a clock is wrong
#: Lease of all components by default.  With a short one, on a machine so busy that the API server
#: takes seconds for an answer, leaders change all the time and nothing is decided.
LEASE_S = 15.0
AGENT_SUSPENDED_S = 20.0  # longer than a round of any timer but reports
_PATIENCE_S = 120.0
TRACEBACK_SHOWN = 3000  # characters
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"

#: ``koord`` whose wall clock is fast by the seconds in a file.
STEPPED = """
import sys, time
from pathlib import Path
right, file, last = time.time, Path(sys.argv.pop(1)), [0.0, 0.0]
def stepped():
    now = time.monotonic()
    if now > last[0] + 0.2:
        last[:] = [now, float(file.read_text() or 0)]
    return right() + last[1]
time.time = stepped
from koordinator.cli.main import main
main()
"""
_ELECTION = {"leaderElection": {"leaderElect": True}}
_COSCHEDULING = {"enabled": [{"name": "Coscheduling"}]}
_PROFILE = {
    "plugins": {
        "multiPoint": {"enabled": [{"name": "ElasticQuota"}]},
        "preEnqueue": _COSCHEDULING,
        "permit": _COSCHEDULING,
    }
}


@dataclass(slots=True)
class Replicas:
    """Two replicas of each component and two node agents, with their credentials and clocks."""

    schedulers: list[KoordProcess]
    managers: list[KoordProcess]
    deschedulers: list[KoordProcess]
    agents: list[NodeAgent]
    token: Path
    clock: Path
    pids: dict[str, int]

    @property
    def all(self) -> list[KoordProcess]:
        """All processes."""
        return [*self.schedulers, *self.managers, *self.deschedulers, *self.agents]

    def check_alive(self) -> None:
        """Raise AssertionError unless every process runs on without an unexpected exception."""
        for each in self.all:
            assert each.is_running, f"{each.log.stem} has ended"
            assert each.pid == self.pids[each.log.stem]
            _, traceback, rest = each.log.read_text().partition("Traceback")
            assert not traceback, f"{each.log.stem}: Traceback{rest[:TRACEBACK_SHOWN]}"


def start_replicas(cluster: ControlPlane, cleanup: ExitStack) -> Replicas:
    """Start two replicas of each component and two agents, which end with ``cleanup``."""
    state = cluster.state_dir
    token, clock = state / "soak.token", state / "soak.clock"
    clock.write_text("0")
    program = (sys.executable, "-c", STEPPED, str(clock))
    by_token = cluster.write_kubeconfig("soak-token", {"tokenFile": str(token)})
    certificate, key = cluster.authority.issue_client("soak", ("system:masters",))
    files = {"client-certificate": str(certificate), "client-key": str(key)}
    by_certificate = cluster.write_kubeconfig("soak-certificate", files)
    ways = (by_token, by_certificate)
    replace_token(cluster.api, cluster, token, 0)
    configuration = {**_ELECTION, "profiles": [_PROFILE]}
    moves = {"profiles": [{"pluginConfig": [{"name": "MigrationController", "args": {}}]}]}
    replicas = Replicas(
        [
            SchedulerProcess(
                cluster, configuration, name=f"scheduler-{it}", kubeconfig=way, program=program
            )
            for it, way in enumerate(ways)
        ],
        [
            ManagerProcess(
                cluster,
                ["--webhook-port=0"],
                name=f"manager-{it}",
                kubeconfig=way,
                elects=True,
                program=program,
            )
            for it, way in enumerate(ways)
        ],
        [
            DeschedulerProcess(
                cluster,
                {**_ELECTION, **moves},
                name=f"descheduler-{it}",
                kubeconfig=way,
                program=program,
            )
            for it, way in enumerate(ways)
        ],
        [NodeAgent(cluster, f"agent-{it}", way, program) for it, way in enumerate(ways)],
        token,
        clock,
        {},
    )
    for each in replicas.all:
        cleanup.callback(each.kill)
        each.start(wait=False)
        replicas.pids[each.log.stem] = each.pid
    return replicas


def step_clock(clock: Path, seconds: float) -> None:
    """Have the clock of a process that reads its error from a file be fast for a while."""
    clock.write_text(str(seconds))
    time.sleep(STEPPED_S)
    clock.write_text("0")


def replace_token(api: Endpoint, cluster: ControlPlane, file: Path, number: int) -> None:
    """Write the token of a new account with all rights; the previous account ends."""
    name = f"soak-{number}"
    api.request("POST", _ACCOUNTS, {"metadata": {"name": name}})
    binding = {
        "metadata": {"name": name},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}],
    }
    api.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    temporary = file.with_suffix(".new")
    temporary.write_text(cluster.service_account_token("default", name))
    temporary.rename(file)
    if number:
        api.request("DELETE", f"{_ACCOUNTS}/soak-{number - 1}")


class Disturbances:
    """Each method disturbs, and returns when the disturbance is over."""

    def __init__(self, cluster: ControlPlane, replicas: Replicas) -> None:
        self._cluster, self._replicas = cluster, replicas
        self._tokens = count(1)

    def all(self) -> Sequence[Callable[[], None]]:
        """Return all disturbances in the order in which they happen."""
        return (
            self.restart_the_server,
            self.suspend_the_scheduler,
            self.replace_the_token,
            self.compact_the_history,
            self.suspend_the_manager,
            self.set_clocks_forward,
            self.replace_the_certificate,
            self.suspend_the_descheduler,
            self.suspend_the_agents,
            self.set_clocks_back,
        )

    def restart_the_server(self) -> None:
        """Break every watch."""
        self._cluster.restart_apiserver()

    def compact_the_history(self) -> None:
        """Make every watch begin with a new list (status 410)."""
        self._cluster.compact_history()

    def replace_the_token(self) -> None:
        """Revoke the token in use, after a new one is in the file."""
        replace_token(self._cluster.api, self._cluster, self._replicas.token, next(self._tokens))

    def replace_the_certificate(self) -> None:
        """Write a new client certificate to the files of the old one."""
        self._cluster.authority.issue_client("soak", ("system:masters",))

    def suspend_the_scheduler(self) -> None:
        """Stop each replica for longer than its lease, so that the leader changes."""
        self._suspend(self._replicas.schedulers, LEASE_S + 2)

    def suspend_the_manager(self) -> None:
        """Stop each replica for longer than its lease, so that the leader changes."""
        self._suspend(self._replicas.managers, LEASE_S + 2)

    def suspend_the_descheduler(self) -> None:
        """Stop each replica for longer than its lease, so that the leader changes."""
        self._suspend(self._replicas.deschedulers, LEASE_S + 2)

    def suspend_the_agents(self) -> None:
        """Stop each agent for longer than its timers wait."""
        self._suspend(self._replicas.agents, AGENT_SUSPENDED_S)

    def set_clocks_forward(self) -> None:
        """Set all clocks an hour forward for some seconds."""
        step_clock(self._replicas.clock, HOUR_S)

    def set_clocks_back(self) -> None:
        """Set all clocks an hour back for some seconds."""
        step_clock(self._replicas.clock, -HOUR_S)

    def _suspend(self, processes: Sequence[KoordProcess], seconds: float) -> None:
        for each in processes:
            each.signal(signal.SIGSTOP)
            time.sleep(seconds)
            each.signal(signal.SIGCONT)
            eventually(lambda it=each: it.get("/readyz") == "ok", _PATIENCE_S)  # type: ignore[misc]
