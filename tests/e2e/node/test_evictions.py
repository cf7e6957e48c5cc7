"""A job that has to go is ended by the container runtime, in the time that its pod is given."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.koord_process import KOORD
from tests.e2e.node.conftest import StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import Manifest, pod
from tests.e2e.waiting import eventually

_GATES = "--feature-gates=BEMemoryEvict=true,AuditEvents=true"
_PRINTS_GOODBYE = "trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.1; done"


def slo(node: RealNode, kubectl: Callable[..., str], **threshold: Any) -> None:
    """Give the node a NodeSLO in which every node has too little memory."""
    spec = {"resourceUsedThresholdWithBE": {"enable": True, **threshold}}
    manifest = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": node.name},
        "spec": spec,
    }
    kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump(manifest))


def job(name: str, script: str, grace_s: int) -> Manifest:
    """Return a batch job that is given so many seconds to end."""
    labels = {"koordinator.sh/qosClass": "BE"}
    return pod(name, script, labels=labels, terminationGracePeriodSeconds=grace_s)


def audited(folder: Path) -> str:
    """Return what the agent did about evictions."""
    command = [str(KOORD), "koordlet", "audit", f"--audit-log-dir={folder}", "--type=eviction"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("endpoint", ["found", "none"])
def test_victim_is_stopped_gracefully_by_the_runtime(
    start_agent: StartAgent,
    node: RealNode,
    kubectl: Callable[..., str],
    tmp_path: Path,
    endpoint: str,
) -> None:
    """Without its socket the processes are ended at once."""
    (made,) = node.run(job("job", _PRINTS_GOODBYE, 20))
    eventually(lambda: "ready" in node.printed(made))
    slo(node, kubectl, memoryEvictThresholdPercent=2, memoryEvictLowerPercent=1)
    start_agent(_GATES, *(["--containerd-endpoint=/nowhere"] if endpoint == "none" else []))

    phase = "Succeeded" if endpoint == "found" else "Failed"
    eventually(lambda: node.get(made)["status"]["phase"] == phase)

    assert ("goodbye" in node.printed(made)) is (endpoint == "found")
    done = "containers have ended" if endpoint == "found" else "processes ended"
    eventually(lambda: done in audited(tmp_path / "audit"))


def test_one_that_does_not_listen_is_killed_when_its_time_is_over(
    start_agent: StartAgent, node: RealNode, kubectl: Callable[..., str], tmp_path: Path
) -> None:
    """The agent's limit applies if the pod's grace period is longer."""
    (made,) = node.run(job("deaf", "trap '' TERM; echo ready; while :; do sleep 0.1; done", 3600))
    eventually(lambda: "ready" in node.printed(made))
    slo(node, kubectl, memoryEvictThresholdPercent=2, memoryEvictLowerPercent=1)
    start_agent(_GATES, "--eviction-max-pod-grace-period=2")

    eventually(lambda: node.get(made)["status"]["phase"] == "Failed")
    ended = node.get(made)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 137
    assert "containers are stopped with a grace period of 2 s" in audited(tmp_path / "audit")
