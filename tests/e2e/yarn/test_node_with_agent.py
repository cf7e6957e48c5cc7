"""YARN on a node with its agent: manager, koordlet, operator and copilot, each a process.

What runs on the node is played by files that koordlet reads; the API server, the ResourceManager,
the NodeManager and the containers are real.
"""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koordlet.agent_process import CPUS, AgentProcess, install_rights
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.session.manifests import Manifest, node
from tests.e2e.waiting import eventually
from tests.e2e.yarn.account_auditor import AccountAuditor
from tests.e2e.yarn.busy_machine import GIB, MEMORY_BYTES, BusyMachine
from tests.e2e.yarn.copilot_process import CopilotProcess
from tests.e2e.yarn.operator_process import YarnOperatorProcess
from tests.e2e.yarn.real_yarn import Amounts, RealYarn

from koordinator.api.qos import KubeQos
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout

CGROUPS = Path("/sys/fs/cgroup")
LAYOUT = CgroupLayout(CgroupDriver.CGROUPFS)
HADOOP = f"{LAYOUT.besteffort}/hadoop-yarn"
CONFIG = {
    "metadata": {"name": "slo-controller-config"},
    "data": {
        "colocation-config": json.dumps(
            {
                "enable": True,
                "cpuReclaimThresholdPercent": 100,
                "memoryReclaimThresholdPercent": 100,
                "metricReportIntervalSeconds": 30,
                "metricAggregateDurationSeconds": 60,
                "metricAggregatePolicy": {"durations": ["5s"]},
                "resourceDiffThreshold": 0.01,
            }
        ),
        "resource-threshold-config": json.dumps(
            {
                "clusterStrategy": {
                    "enable": True,
                    "cpuSuppressPolicy": "cfsQuota",
                    "cpuSuppressThresholdPercent": 90,
                    "memoryEvictThresholdPercent": 80,
                }
            }
        ),
        # As docs/how-to/run-yarn.md has it.
        "host-application-config": json.dumps(
            {
                "applications": [
                    {
                        "name": "yarn-task",
                        "priority": "koord-batch",
                        "qos": "BE",
                        "cgroupPath": {
                            "base": "KubepodsBesteffort",
                            "relativePath": "hadoop-yarn/",
                        },
                    }
                ]
            }
        ),
    },
}
#: Koordlet reports each half minute at most, means of a minute.
SETTLED_S = 180
#: 8 CPUs less 0.8, less a tenth of that; 7 GiB less a tenth.
IDLE = Amounts(6, 6451)
GATES = "AuditEvents,AuditEventsHTTPHandler,BEMemoryEvict"


@dataclass(frozen=True)
class Site:
    """The processes that share a node out."""

    manager: ManagerProcess
    operator: YarnOperatorProcess
    agent: AgentProcess
    copilot: CopilotProcess


class SharedNode:
    """The node ``n1`` of eight CPUs and 8 GiB: a service, a NodeManager, and all that serves it."""

    def __init__(
        self,
        controlplane: ControlPlane,
        namespace: str,
        yarn: RealYarn,
        machine: BusyMachine,
    ) -> None:
        self._api, self._namespace = controlplane.api, namespace
        self.machine = machine
        memory = f"{MEMORY_BYTES >> 20}Mi"
        self._api.request("POST", "/api/v1/nodes", node("n1", str(CPUS), memory=memory))
        self._folders = {
            name: self._run(pod, qos)
            for name, pod, qos in (
                ("web", _service(), KubeQos.BURSTABLE),
                ("node-manager-0", _node_manager(yarn), KubeQos.BEST_EFFORT),
            )
        }
        machine.add(HADOOP)
        machine.use(HADOOP, 0.0)

    def serves(self, cores: float, memory_bytes: int) -> None:
        """Set the CPU usage of the service."""
        self.machine.use(self._folders["web"], cores, memory_bytes)

    def containers_use(self, cores: float, memory_bytes: int) -> None:
        """Set the CPU usage of all YARN containers."""
        self.machine.use(HADOOP, cores, memory_bytes)

    def shown(self) -> dict[str, str]:
        allocatable: dict[str, str] = self._api.request("GET", "/api/v1/nodes/n1")["status"][
            "allocatable"
        ]
        return {name: allocatable[f"kubernetes.io/batch-{name}"] for name in ("cpu", "memory")}

    def has_pod(self, name: str) -> bool:
        pods = self._api.request("GET", f"/api/v1/namespaces/{self._namespace}/pods")["items"]
        return name in {pod["metadata"]["name"] for pod in pods}

    def _run(self, pod: Manifest, qos: KubeQos) -> str:
        """Make a pod and what the kubelet makes of it; return its cgroup."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        uid = self._api.request("POST", path, pod)["metadata"]["uid"]
        container = {"name": "main", "containerID": f"containerd://{uid}", "image": "x"}
        whole = {**container, "imageID": "x", "ready": True, "restartCount": 0, "started": True}
        status = {"phase": "Running", "containerStatuses": [whole]}
        name = pod["metadata"]["name"]
        self._api.request(
            "PATCH",
            f"{path}/{name}/status",
            {"status": status},
            content_type="application/merge-patch+json",
        )
        folder = LAYOUT.pod(qos, uid)
        self.machine.add(folder)
        self.machine.add(LAYOUT.container(folder, f"containerd://{uid}"))
        return folder


def _service() -> Manifest:
    resources = {"requests": {"cpu": "6", "memory": "4Gi"}}
    return {
        "metadata": {"name": "web", "labels": {"koordinator.sh/qosClass": "LS"}},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "main", "image": "web", "resources": resources}],
        },
    }


def _node_manager(yarn: RealYarn) -> Manifest:
    """Return the pod of a NodeManager as docs/how-to/run-yarn.md has it."""
    return {
        "metadata": {
            "name": "node-manager-0",
            "labels": {
                "app.kubernetes.io/component": "node-manager",
                "koordinator.sh/qosClass": "BE",
            },
            "annotations": {"yarn.hadoop.apache.org/node-id": yarn.node_id},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "hadoop"}]},
    }


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[BusyMachine]:
    """Run a machine of eight CPUs that does nothing yet."""
    with BusyMachine(tmp_path / "machine") as running:
        yield running


@pytest.fixture
def copilot(controlplane: ControlPlane, yarn: RealYarn, tmp_path: Path) -> Iterator[CopilotProcess]:
    """Run a copilot that finds containers in real cgroups."""
    folder = f"koordinator-e2e-{uuid.uuid4().hex[:8]}"
    made = CopilotProcess(controlplane, yarn, tmp_path / "copilot.sock", folder)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def agent(
    controlplane: ControlPlane,
    helm: Callable[..., str],
    machine: BusyMachine,
    copilot: CopilotProcess,
) -> Iterator[AgentProcess]:
    """Make an agent that asks the copilot; it is not started yet."""
    gates = ",".join(f"{gate}=true" for gate in GATES.split(","))
    flags = [
        f"--feature-gates={gates}",
        "--evict-by-copilot-agent",
        f"--copilot-server-endpoint={copilot.socket}",
    ]
    made = AgentProcess(controlplane, install_rights(controlplane, helm), machine, flags)
    yield made
    made.kill()


@pytest.fixture
def site(
    manager: ManagerProcess,
    operator: YarnOperatorProcess,
    agent: AgentProcess,
    copilot: CopilotProcess,
) -> Site:
    """Return the processes, the agent not started yet."""
    return Site(manager, operator, agent, copilot)


@pytest.fixture
def shared(
    controlplane: ControlPlane,
    namespace: str,
    yarn: RealYarn,
    machine: BusyMachine,
    site: Site,
) -> SharedNode:
    """Run everything on one node."""
    path = "/api/v1/namespaces/koordinator-system/configmaps"
    controlplane.api.request("POST", path, CONFIG)
    made = SharedNode(controlplane, namespace, yarn, machine)
    made.serves(0.8, GIB)
    site.agent.start()
    eventually(lambda: yarn.own_limit() == IDLE, SETTLED_S)
    return made


def test_capacity_follows_what_a_service_uses_up_and_down(
    controlplane: ControlPlane, yarn: RealYarn, shared: SharedNode
) -> None:
    """As koordlet measures it: what containers use is not taken off what they may have.

    Containers beyond the lower limit end; they are back when there is room again.
    """
    mib = 1 << 20
    app = yarn.run_tasks(4, memory_mb=512)
    try:
        with AccountAuditor(controlplane, yarn, "n1") as auditor:
            eventually(lambda: len(yarn.tasks()) == 4, 60)
            shared.containers_use(2.0, 4 * 512 * mib)
            shared.serves(5.5, 3 * GIB + 7 * mib)
            # (8 - 5.5) and 8 GiB - 3 GiB - 7 MiB, less a tenth.
            eventually(lambda: yarn.own_limit() == Amounts(2, 4601), SETTLED_S)
            # At once BestEffort gets what the service leaves of nine tenths: 7.2 - 5.5 CPUs.
            # Were containers taken for the system or for others, it would be less.
            quota_us = int(shared.machine.read(CgroupFile.CFS_QUOTA, LAYOUT.besteffort))
            assert 160_000 <= quota_us <= 180_000
            eventually(lambda: yarn.used().vcores <= 2)
            shared.containers_use(0.5, 512 * mib)
            shared.serves(0.8, GIB)
            eventually(lambda: yarn.own_limit() == IDLE, SETTLED_S)
            eventually(lambda: len(yarn.tasks()) == 4, 60)
        assert not auditor.violations()
        assert shared.has_pod("node-manager-0")
    finally:
        yarn.end(app)


def test_containers_end_when_a_service_needs_the_memory(
    yarn: RealYarn, shared: SharedNode, site: Site
) -> None:
    """Koordlet asks the copilot, and the newest goes: by its cgroup if it has one; the pod stays.

    One without a cgroup is ended by the ResourceManager.
    """
    app = yarn.run_tasks(3, memory_mb=512)
    mib = 1 << 20
    try:
        eventually(lambda: len(yarn.tasks()) == 3, 60)
        for way in ("processes", "ResourceManager"):
            tasks = sorted(yarn.tasks())
            with _cgroups(site.copilot.cgroups, tasks if way == "processes" else [], yarn):
                shared.containers_use(0.5, 3 * 512 * mib)
                shared.serves(0.8, 5 * GIB + 100 * mib)  # with the containers 82 % of the node
                eventually(lambda newest=tasks[-1]: newest not in yarn.tasks(), 60)  # type: ignore[misc]
                shared.serves(0.8, GIB)
                assert tasks[0] in yarn.tasks()
            logged = [line for line in site.copilot.log.read_text().splitlines() if way in line]
            ended = [line for line in logged if "container ended" in line]
            assert any(task in line for line in ended for task in tasks), logged
            eventually(lambda: len(yarn.tasks()) == 3, 60)  # the application requested another one
        assert shared.has_pod("node-manager-0")
        audit = eventually(lambda: site.agent.get("/events?size=100"))
        assert "end containers of YARN" in audit
    finally:
        yarn.end(app)


def test_twenty_kills_do_not_overcommit_the_node(
    controlplane: ControlPlane,
    yarn: RealYarn,
    shared: SharedNode,
    site: Site,
) -> None:
    """All processes are killed at random, while the service and the containers change.

    In the end YARN has what the node leaves.
    """
    draw = np.random.default_rng(19)
    it = site
    deaths: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "operator": (it.operator.kill, lambda: it.operator.start(wait=False)),
        "manager": (it.manager.kill, lambda: it.manager.start(wait=False)),
        "koordlet": (it.agent.kill, lambda: it.agent.start(wait=False)),
        "copilot": (it.copilot.kill, lambda: it.copilot.start(wait=False)),
        "NodeManager": (lambda: yarn.kill("nm"), yarn.start_node_manager),
        "ResourceManager": (lambda: yarn.kill("rm"), yarn.start_resource_manager),
    }
    order = [*deaths] * 2 + ["operator", "manager", "koordlet", "operator"] * 2
    app = yarn.run_tasks(3)
    with AccountAuditor(controlplane, yarn, "n1") as auditor:
        for victim in draw.permutation(order).tolist():
            kill, start = deaths[victim]
            shared.serves(float(draw.uniform(0.5, 6.5)), int(draw.integers(1, 6)) * GIB)
            time.sleep(draw.uniform(0.0, 1.5))
            kill()
            shared.serves(float(draw.uniform(0.5, 6.5)), int(draw.integers(1, 6)) * GIB)
            time.sleep(draw.uniform(0.0, 1.0))
            start()
            time.sleep(draw.uniform(0.5, 3.0))
        shared.serves(0.8, GIB)
        eventually(lambda: yarn.own_limit() == IDLE, SETTLED_S)
    with suppress(Exception):  # its ResourceManager may be down
        yarn.end(app)
    assert len(order) == 20
    assert not auditor.violations()
    assert len(auditor.samples) > 40  # fewer where the machine is busy with other things


@contextmanager
def _cgroups(folder: str, tasks: list[str], yarn: RealYarn) -> Iterator[None]:
    """Put containers into cgroups of their own, as LinuxContainerExecutor does."""
    root = CGROUPS if (CGROUPS / "cgroup.controllers").exists() else CGROUPS / "cpu"
    if tasks and not os.access(root, os.W_OK):
        pytest.skip(f"{root} cannot be written")
    made = [root / folder / task for task in tasks]
    for path in made:
        path.mkdir(parents=True)
        for pid in eventually(lambda name=path.name: yarn.processes_of(name)):  # type: ignore[misc]
            (path / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        for path in made:
            for left in (path / "cgroup.procs").read_text().split():
                (root / "cgroup.procs").write_text(left)
            path.rmdir()
        if made:
            (root / folder).rmdir()
