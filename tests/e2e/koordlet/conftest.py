"""``koord koordlet`` as a process, with the rights it is installed with, on a machine of files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koordlet.agent_process import AgentProcess, MachineOfFiles
from tests.unit.deploy.installed import CHART, NAMESPACE


@pytest.fixture
def rights(controlplane: ControlPlane, helm: Callable[..., str]) -> Path:
    """Install the account of the chart and what limits it; return a kubeconfig of a pod of it."""
    rendered = helm("template", "koordinator", str(CHART), "--namespace", NAMESPACE)
    wanted = {
        "ServiceAccount": "koordlet",
        "ClusterRole": "koordlet",
        "ClusterRoleBinding": "koordlet",
        "ValidatingAdmissionPolicy": "koordlet-own-node",
        "ValidatingAdmissionPolicyBinding": "koordlet-own-node",
    }
    objects = [
        found
        for found in yaml.safe_load_all(rendered)
        if found and wanted.get(found["kind"]) == found["metadata"]["name"]
    ]
    assert len(objects) == len(wanted)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    text = yaml.safe_dump_all([namespace, *objects])
    controlplane.kubectl("apply", "--server-side", "--filename=-", stdin=text)
    return controlplane.service_account_kubeconfig(NAMESPACE, "koordlet", node="n1")


@pytest.fixture
def machine(tmp_path: Path) -> MachineOfFiles:
    """Make a machine of eight CPUs that does nothing."""
    return MachineOfFiles(tmp_path)


@pytest.fixture
def agent(
    controlplane: ControlPlane, rights: Path, machine: MachineOfFiles
) -> Iterator[AgentProcess]:
    """Make an agent that is not started yet."""
    made = AgentProcess(controlplane, rights, machine)
    yield made
    made.kill()
