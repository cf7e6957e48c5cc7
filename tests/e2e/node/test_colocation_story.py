"""Co-location on a real node with four real programs: resources of batch jobs under load.

A server with load and batch jobs share a node.  The manager publishes the unused resources, the
scheduler places jobs on them, and the agent suppresses the jobs when the server needs more CPU,
raises the server's quota, and evicts a job with too little CPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.koord_process import KOORD
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.node.conftest import NodeAgent, StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.colocation import (
    CONFIG,
    LIMIT_MILLI,
    SUPPRESS_PERCENT,
    TIER,
    Load,
    QuietMachine,
    address_of,
    batch_cpu_milli,
    batch_pod,
    cgroup_of,
    configure,
    create_priorities,
    quota_us,
    scheduling,
    server_pod,
)
from tests.e2e.real_node.node import CGROUPS, Manifest, pod
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.markdown import code_blocks

if not (CGROUPS / "cpuset").is_dir():
    pytest.skip("the files of cgroup v1 are read here", allow_module_level=True)

_GATES = "--feature-gates=BECPUEvict=true,AuditEvents=true"
_PATIENCE_S = 90.0
_REQUESTS_PER_S = 25.0


@dataclass
class Site:
    """The node, and how its agent is started."""

    node: RealNode
    start_agent: StartAgent
    machine: QuietMachine

    def start(self, *flags: str) -> NodeAgent:
        """Start an agent that sees a machine with nothing but pods."""
        return self.start_agent(_GATES, *flags, program=[*self.machine.program, str(KOORD)])


@pytest.fixture
def site(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent, tmp_path: Path
) -> Iterator[Site]:
    """Run manager and scheduler."""
    configure(controlplane)
    create_priorities(controlplane)
    with (
        QuietMachine(tmp_path / "stat") as machine,
        ManagerProcess(controlplane),
        SchedulerProcess(controlplane, scheduling()),
    ):
        yield Site(node, start_agent, machine)
        node.delete_pods()


def neighbour() -> Manifest:
    """Return a latency-sensitive pod that takes as much CPU as it gets."""
    labels = {"koordinator.sh/qosClass": "LS"}
    one = {"requests": {"cpu": "500m"}}
    loops = "while :; do :; done & " * len(cpus())
    return pod("neighbour", f"{loops} wait", labels=labels, resources=one)


def configured_on_the_page() -> object:
    """Return the chart values on the page."""
    page = Path(__file__).parents[3] / "docs/how-to/see-colocation-on-a-node.md"
    (block,) = code_blocks(page.read_text("utf-8"), "yaml")
    return yaml.safe_load(block)["manager"]["config"]


def test_a_server_and_batch_jobs_share_a_node(site: Site, controlplane: ControlPlane) -> None:
    """From what is published to who is ended, in both ways."""
    assert configured_on_the_page() == CONFIG
    node, agent = site.node, site.start()
    (server,) = node.run(server_pod())
    place = cgroup_of(node, server)
    assert quota_us(place) == LIMIT_MILLI * 100
    with Load(address_of(node, server), _REQUESTS_PER_S) as load:
        # The manager publishes what the server leaves, and the scheduler places jobs on it.
        published = eventually(lambda: batch_cpu_milli(controlplane, node), _PATIENCE_S)
        assert 0 < published < 1000 * len(cpus())
        jobs = placed(node, batch_pod("job-0", 500), batch_pod("job-1", 500))

        # The server is throttled at times, and may go beyond its limit.
        eventually(lambda: quota_us(place) > LIMIT_MILLI * 100, _PATIENCE_S)

        # Jobs have what is left below the threshold, and less when a neighbour comes.
        threshold_us = SUPPRESS_PERCENT * len(cpus()) * 1000
        calm_us = eventually(lambda: at_least(quota_us(TIER), 30_000), _PATIENCE_S)
        assert calm_us <= threshold_us
        node.run(neighbour())
        eventually(lambda: at_most(quota_us(TIER), calm_us - 10_000) > 0, _PATIENCE_S)

        # A job that gets too little ends: its processes, by the agent itself.
        failed = eventually(lambda: phases(node, jobs).count("Failed"), _PATIENCE_S)
        assert failed <= len(jobs)
        assert node.get(server)["status"]["phase"] == "Running"
        assert load.taken

        # Or through the API, where disruption budgets count.
        agent.kill()
        node.delete(*jobs)
        site.start("--only-evict-by-api")
        node.create(batch_pod("job-2", 500), batch_pod("job-3", 500))
        eventually(lambda: len(present(node, "job-2", "job-3")) < 2, _PATIENCE_S)
        assert node.get(server)["status"]["phase"] == "Running"


def at_least(amount: int, least: int) -> int:
    """Return a number; raises AssertionError, with the number, for one that is too small."""
    assert amount >= least
    return amount


def at_most(amount: int, most: int) -> int:
    """Return a number; raises AssertionError, with the number, for one that is too large."""
    assert amount <= most
    return amount


def cpus() -> list[str]:
    """Return the CPUs of the machine."""
    return [path.name for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*")]


def placed(node: RealNode, *pods: Manifest) -> list[Manifest]:
    """Create pods that name no node, and wait until they run on this one."""
    node.create(*pods)
    return [node.wait_for(each, "Running", _PATIENCE_S) for each in pods]


def phases(node: RealNode, pods: list[Manifest]) -> list[str]:
    """Return the phases of pods now."""
    return [node.get(each)["status"]["phase"] for each in pods]


def present(node: RealNode, *names: str) -> list[str]:
    """Return the pods in the API server that are not being deleted."""
    existing = []
    for name in names:
        try:
            meta = node.get({"metadata": {"namespace": "default", "name": name}})["metadata"]
        except ApiError:
            continue
        if "deletionTimestamp" not in meta:
            existing.append(name)
    return existing
