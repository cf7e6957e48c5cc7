"""The YARN operator with the real ResourceManager, API server and manager."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.session.manifests import Manifest, node
from tests.e2e.waiting import eventually
from tests.e2e.yarn.account_auditor import AccountAuditor
from tests.e2e.yarn.copilot_process import CopilotProcess
from tests.e2e.yarn.operator_process import YarnOperatorProcess
from tests.e2e.yarn.real_yarn import Amounts, RealYarn

from koordinator.host.linux.sockets import SocketCopilot

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
MERGE = "application/merge-patch+json"
NODE = "/api/v1/nodes/n1"
THIRD_PARTIES = "node.koordinator.sh/thirdPartyAllocations"
CONFIG = {
    "metadata": {"name": "slo-controller-config"},
    "data": {
        "colocation-config": json.dumps(
            {
                "enable": True,
                "cpuReclaimThresholdPercent": 100,
                "memoryReclaimThresholdPercent": 100,
            }
        )
    },
}
CPUS = 10


class Machine:
    """The node ``n1`` of 10 CPUs and 16 GiB, and what its koordlet reports."""

    def __init__(self, controlplane: ControlPlane, yarn: RealYarn, namespace: str) -> None:
        self._api, self._namespace = controlplane.api, namespace
        self._api.request("POST", "/api/v1/nodes", node("n1", str(CPUS)))
        self._api.request("POST", f"/api/v1/namespaces/{namespace}/pods", node_manager(yarn))

    def uses(self, cpus: float, memory: str) -> float:
        """Report what the system uses; return when the node showed it."""
        before = self.origin()
        self.report(cpus, memory)
        eventually(lambda: self.origin() != before)
        return time.monotonic()

    def report(self, cpus: float, memory: str) -> None:
        """Report what the system uses."""
        eventually(lambda: self._api.request("GET", f"{METRICS}/n1"))
        used = {"resources": {"cpu": f"{int(cpus * 1000)}m", "memory": memory}}
        status = {
            "updateTime": datetime.now(UTC).isoformat(),  # noqa: TID251 -- the real time
            "nodeMetric": {"nodeUsage": used, "systemUsage": used},
        }
        self._api.request("PATCH", f"{METRICS}/n1/status", {"status": status}, content_type=MERGE)

    def origin(self) -> object:
        annotations = self._api.request("GET", NODE)["metadata"].get("annotations", {})
        return annotations.get("node.koordinator.sh/originExtendedAllocatable")

    def shown(self) -> dict[str, str]:
        allocatable: dict[str, str] = self._api.request("GET", NODE)["status"]["allocatable"]
        return {name: allocatable[f"kubernetes.io/batch-{name}"] for name in ("cpu", "memory")}

    def promised(self) -> object:
        annotations = self._api.request("GET", NODE)["metadata"]["annotations"]
        return json.loads(annotations[THIRD_PARTIES])


def node_manager(yarn: RealYarn) -> Manifest:
    """Return the pod of a NodeManager, as the chart hadoop-yarn makes it."""
    container = {"name": "nm", "image": "hadoop", "resources": {}}
    return {
        "metadata": {
            "name": "node-manager-0",
            "labels": {"app.kubernetes.io/component": "node-manager"},
            "annotations": {"yarn.hadoop.apache.org/node-id": yarn.node_id},
        },
        "spec": {"nodeName": "n1", "containers": [container]},
    }


@pytest.fixture
def machine(
    controlplane: ControlPlane, yarn: RealYarn, namespace: str, operator: YarnOperatorProcess
) -> Machine:
    """Make a node that gives all it has, with an operator that runs."""
    assert operator.is_running
    path = "/api/v1/namespaces/koordinator-system/configmaps"
    controlplane.api.request("POST", path, CONFIG)
    return Machine(controlplane, yarn, namespace)


def took(since_s: float, probe: Callable[[], bool], timeout_s: float = 20.0) -> float:
    """Return the seconds from a moment until the probe is true."""
    eventually(probe, timeout_s)
    return time.monotonic() - since_s


def test_capacity_follows_load_up_and_down(
    controlplane: ControlPlane, yarn: RealYarn, machine: Machine
) -> None:
    """Nine tenths of what the node's system leaves is the NodeManager's own limit, within 2 s."""
    with AccountAuditor(controlplane, yarn, "n1") as auditor:
        times = []
        for cpus, memory, limit in (
            (0, "0", Amounts(9, 14745)),
            (6, "8Gi", Amounts(3, 7372)),
            (2, "2Gi", Amounts(7, 12902)),
            (9, "15Gi", Amounts(0, 921)),
            (0, "0", Amounts(9, 14745)),
        ):
            since_s = machine.uses(cpus, memory)
            times.append(took(since_s, lambda limit=limit: yarn.own_limit() == limit))  # type: ignore[misc]
        eventually(lambda: machine.shown() == {"cpu": "1k", "memory": "1639Mi"})

    assert max(times) < 2, times
    assert auditor.samples
    assert not auditor.violations()
    assert machine.promised() == {
        "allocations": [
            {
                "name": "hadoop-yarn",
                "priority": "koord-batch",
                "resources": {
                    "kubernetes.io/batch-cpu": "9k",
                    "kubernetes.io/batch-memory": "14745Mi",
                },
            }
        ]
    }


def test_containers_go_when_the_node_is_needed_and_no_sooner(
    controlplane: ControlPlane, yarn: RealYarn, machine: Machine, operator: YarnOperatorProcess
) -> None:
    """A lower limit ends containers after the grace period, here two seconds, and not before.

    What containers have is the least that is promised, and kill -9 of the operator forgets nothing.
    """
    machine.uses(0, "0")
    eventually(lambda: yarn.own_limit() == Amounts(9, 14745))
    app = yarn.run_tasks(6)
    try:
        with AccountAuditor(controlplane, yarn, "n1") as auditor:
            eventually(lambda: len(yarn.tasks()) == 6, 60)
            operator.kill()
            since_s = machine.uses(6, "8Gi")  # a latency-sensitive service takes six CPUs
            operator.start()
            assert len(yarn.tasks()) == 6
            ended_s = took(since_s, lambda: len(yarn.tasks()) <= 3)
            assert ended_s > 2
            eventually(lambda: yarn.used().vcores <= 4)
            machine.uses(0, "0")
            eventually(lambda: len(yarn.tasks()) == 6, 60)
        assert not auditor.violations()
    finally:
        yarn.end(app)


def test_twenty_kills_promise_nothing_twice(
    controlplane: ControlPlane,
    yarn: RealYarn,
    machine: Machine,
    operator: YarnOperatorProcess,
    manager: ManagerProcess,
) -> None:
    """Operator and manager die at random moments, while the load and what containers have change.

    In the end YARN has what the node leaves.
    """
    draw = np.random.default_rng(20)
    machine.uses(0, "0")
    eventually(lambda: yarn.own_limit() == Amounts(9, 14745))
    app = yarn.run_tasks(4)
    try:
        with AccountAuditor(controlplane, yarn, "n1") as auditor:
            for turn in range(20):
                victim = manager if turn % 4 == 3 else operator
                gib = int(draw.integers(0, 12))
                machine.report(int(draw.integers(0, 8)), f"{gib}Gi")
                time.sleep(draw.uniform(0.0, 0.6))
                victim.kill()
                machine.report(int(draw.integers(0, 8)), f"{gib}Gi")
                victim.start(wait=False)
                time.sleep(draw.uniform(0.3, 2.0))
            machine.uses(9, "15Gi")
            machine.uses(0, "0")
            eventually(lambda: yarn.own_limit() == Amounts(9, 14745), 60)
    finally:
        yarn.end(app)
    assert len(auditor.samples) > 100
    assert not auditor.violations()


def test_a_node_that_is_short_ends_the_newest_container(
    controlplane: ControlPlane, yarn: RealYarn, machine: Machine
) -> None:
    """Koordlet asks the copilot on the node, and this one the ResourceManager: no cgroups here."""
    machine.uses(0, "0")
    eventually(lambda: yarn.own_limit() == Amounts(9, 14745))
    copilot = CopilotProcess(controlplane, yarn, yarn.folder / "copilot.sock")
    app = yarn.run_tasks(3)
    try:
        eventually(lambda: len(yarn.tasks()) == 3, 60)
        copilot.start()
        newest = max(yarn.tasks())
        released = SocketCopilot(str(copilot.socket)).release(
            {"kubernetes.io/batch-memory": 1.0}, node_cpu_ratio=-1, node_memory_ratio=0.9
        )
        assert released["kubernetes.io/batch-memory"] == 256 << 20
        eventually(lambda: newest not in yarn.tasks())
        assert copilot.stop() == 0
        assert not copilot.socket.exists()
    finally:
        copilot.kill()
        yarn.end(app)


def test_restarts_promise_nothing_twice(
    controlplane: ControlPlane, yarn: RealYarn, machine: Machine, operator: YarnOperatorProcess
) -> None:
    """A NodeManager that registers again gets its limit, also at a new ResourceManager.

    Promised amounts are kept while the running containers are unknown.
    """
    machine.uses(0, "0")
    eventually(lambda: yarn.own_limit() == Amounts(9, 14745))
    with AccountAuditor(controlplane, yarn, "n1") as auditor:
        yarn.kill("nm")
        yarn.start_node_manager()
        eventually(lambda: yarn.own_limit() == Amounts(9, 14745), 60)

        yarn.kill("rm")
        operator.kill()
        operator.start()
        machine.uses(6, "8Gi")
        shown = {"cpu": "0", "memory": "0"}
        assert machine.shown() == shown
        yarn.start_resource_manager()
        eventually(lambda: yarn.limit() == Amounts(3, 7372), 60)
        eventually(lambda: machine.shown() != shown, 90)  # a new operator trusts no promise yet
        machine.uses(0, "0")
        eventually(lambda: yarn.own_limit() == Amounts(9, 14745), 60)
    assert auditor.samples
    assert not auditor.violations()
