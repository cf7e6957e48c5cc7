"""The co-location loop: three real processes on a real API server, and what kubectl shows of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koordlet.agent_process import CPUS, AgentProcess, MachineOfFiles
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.session.manifests import node, pod
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually

from koordinator.domain.cgroups.files import CgroupFile

CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config", "namespace": NAMESPACE},
    "data": {
        "colocation-config": json.dumps(
            {
                "enable": True,
                "metricReportIntervalSeconds": 3,
                "cpuReclaimThresholdPercent": 65,
                "memoryReclaimThresholdPercent": 70,
            }
        ),
        "resource-threshold-config": json.dumps(
            {
                "clusterStrategy": {
                    "enable": True,
                    "cpuSuppressThresholdPercent": 50,
                    "cpuSuppressPolicy": "cfsQuota",
                }
            }
        ),
    },
}
BATCH = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "1Gi"}
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "koord-batch"},
    "value": 5000,
}


@pytest.fixture
def manager(controlplane: ControlPlane) -> Iterator[None]:
    """Run a manager in a cluster that has its namespace."""
    controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with ManagerProcess(controlplane):
        yield


@pytest.fixture
def machine(tmp_path: Path) -> MachineOfFiles:
    """Make a machine of eight CPUs that does nothing."""
    return MachineOfFiles(tmp_path)


@pytest.fixture
def agent(controlplane: ControlPlane, machine: MachineOfFiles) -> Iterator[AgentProcess]:
    """Make the node agent of ``n1``, which is not started yet."""
    made = AgentProcess(controlplane, controlplane.kubeconfig(), machine)
    yield made
    made.kill()


@pytest.mark.usefixtures("manager")
def test_batch_pod_runs_on_measured_idle_resources_and_is_throttled(
    controlplane: ControlPlane, user: User, agent: AgentProcess, machine: MachineOfFiles
) -> None:
    """Measured usage becomes batch resources, on which a batch pod is placed.

    Then the node agent throttles that pod by the same configuration.
    """
    controlplane.api.request("POST", "/api/v1/nodes", node("n1", str(CPUS)))
    controlplane.kubectl("apply", "--filename=-", stdin=json.dumps(PRIORITY))
    controlplane.kubectl("apply", "--filename=-", stdin=json.dumps(CONFIG))
    container = {
        "name": "main",
        "image": "app",
        "resources": {"requests": BATCH, "limits": BATCH},
    }
    job = pod(
        "job",
        labels={"koordinator.sh/qosClass": "BE"},
        containers=[container],
        priorityClassName="koord-batch",
    )
    user.apply(job)

    # The node has no metrics yet, so there are no batch resources.
    assert "Insufficient kubernetes.io/batch-cpu" in user.refusal_of("job")["message"]

    agent.start()
    shown = eventually(
        lambda: controlplane.kubectl(
            "get",
            "node",
            "n1",
            r"--output=jsonpath={.status.allocatable.kubernetes\.io/batch-cpu}",
        ),
        60,
    )
    # An idle machine: 65 % of eight CPUs.
    assert shown == "5200"
    assert user.node_of("job", 30) == "n1"
    assert "n1" in user.kubectl("get", "pod", "job", "--output=wide")
    # The NodeSLO that the manager has rendered is kept: half of the CPUs for best effort.
    tier = machine.layout.besteffort
    eventually(lambda: machine.read(CgroupFile.CFS_QUOTA, tier) == "400000", 60)
