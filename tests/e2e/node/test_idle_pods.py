"""The replacement of group identity on a mainline kernel leaves the kubelet's cgroups alone."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.koord_process import KOORD
from tests.e2e.node.conftest import StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import CGROUPS, Manifest, pod
from tests.e2e.waiting import eventually

_TIER = CGROUPS / "cpu/kubepods/besteffort"
if not (CGROUPS / "cpu/cpu.idle").exists():
    pytest.skip("the kernel has no cpu.idle of cgroup v1", allow_module_level=True)

_REFUSED = "Failed to update QoS cgroup configuration"


def of_class(name: str, qos: str) -> Manifest:
    """Return a pod without requests, which so is in the best-effort tier."""
    return pod(name, labels={"koordinator.sh/qosClass": qos})


def cpu(made: Manifest, file: str) -> str:
    """Return what a file of a pod's cgroup holds."""
    return (_TIER / f"pod{made['metadata']['uid']}" / file).read_text().strip()


@pytest.mark.usefixtures("group_identity")
def test_a_kubelet_starts_again_while_jobs_idle(
    start_agent: StartAgent, node: RealNode, kubectl: Callable[..., str], tmp_path: Path
) -> None:
    """The kubelet resets its tiers, and makes and ends pods; then the shares are the kubelet's."""
    log = node.state / "log/kubelet.log"
    start = log.stat().st_size
    start_agent()
    job, _ = node.run(of_class("job", "BE"), of_class("first", "LS"))
    eventually(lambda: cpu(job, "cpu.idle") == "1")

    node.kill("kubelet")
    (late,) = node.run(of_class("late", "BE"))

    eventually(lambda: cpu(late, "cpu.idle") == "1")
    assert (_TIER / "cpu.shares").read_text().strip() == "2"
    assert _REFUSED not in log.read_bytes()[start:].decode(errors="replace")
    kubectl("delete", "pod", "job")
    eventually(lambda: not (_TIER / f"pod{job['metadata']['uid']}").exists())

    off = {"resourceQOSStrategy": None}
    patch = ("--type=merge", f"--patch={json.dumps({'spec': off})}")
    kubectl("patch", "nodeslo", node.name, *patch)

    eventually(lambda: cpu(late, "cpu.idle") == "0")
    eventually(lambda: cpu(late, "cpu.shares") == "2")
    audit = [str(KOORD), "koordlet", "audit", f"--audit-log-dir={tmp_path}/audit"]
    written = subprocess.run([*audit, "--size=999"], capture_output=True, text=True, check=True)
    assert "cpu.idle: 0 -> 1" in written.stdout
    refused = subprocess.run([*audit, "--failed"], capture_output=True, text=True, check=True)
    assert "cpu." not in refused.stdout
