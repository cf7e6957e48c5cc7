"""Kills of parts of a node: containers still start, and get their resources in the end."""

import json
import signal
import time
from collections.abc import Sequence

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.node.conftest import NodeAgent, StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.colocation import batch_resources, publish_batch_resources
from tests.e2e.real_node.node import CGROUPS, Manifest, pod
from tests.e2e.waiting import eventually

if not (CGROUPS / "cpuset").is_dir():
    pytest.skip("the files of cgroup v1 are read here", allow_module_level=True)

_STATUS = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "1"})}
_BACK_S = 20.0  # of a machine that is busy with other tests; benchmarks/nri.py measures it


def one_of_each(attempt: int) -> list[Manifest]:
    """Return a pod with a CPU of its own, one that shares the rest, and a batch job."""
    labels = [{"koordinator.sh/qosClass": qos} for qos in ("LSR", "LS", "BE")]
    whole, part = ({"requests": {"cpu": it}, "limits": {"cpu": it}} for it in ("1", "200m"))
    return [
        pod(f"own-{attempt}", labels=labels[0], annotations=_STATUS, resources=whole),
        pod(f"shared-{attempt}", labels=labels[1], resources=part),
        pod(f"job-{attempt}", labels=labels[2], **batch_resources(500, 48 << 20)),
    ]


def limits(node: RealNode, made: Manifest) -> tuple[str, str]:
    """Return CPUs and quota of a container, from the machine's side."""
    identity = node.container_id(made)
    (cpuset,) = (CGROUPS / "cpuset/kubepods").rglob(f"{identity}/cpuset.cpus")
    (quota,) = (CGROUPS / "cpu/kubepods").rglob(f"{identity}/cpu.cfs_quota_us")
    return cpuset.read_text().strip(), quota.read_text().strip()


def are_right(node: RealNode, pods: Sequence[Manifest]) -> bool:
    """Return whether each of ``one_of_each`` has what it was promised."""
    own, shared, job = (limits(node, each) for each in pods)
    return own == ("1", "-1") and shared == ("0", "20000") and job[1] == "50000"


def test_killed_parts_keep_no_container_from_starting(
    start_agent: StartAgent, node: RealNode, controlplane: ControlPlane
) -> None:
    """Agent, containerd and kubelet are killed in turn while pods start; all run in the end.

    A container that starts without the agent is set right when that is back.
    """
    publish_batch_resources(controlplane, node)
    agent = start_agent()
    for attempt in range(6):
        victim = ("agent", "containerd", "kubelet")[attempt % 3]
        pods = one_of_each(attempt)
        node.create(*pods)
        _kill(victim, agent, node)
        made = [node.wait_for(each, "Running") for each in pods]
        agent.wait_until_called(_BACK_S)
        eventually(lambda made=made: are_right(node, made), _BACK_S)  # type: ignore[misc]
        node.delete_pods()


def _kill(victim: str, agent: NodeAgent, node: RealNode) -> None:
    if victim != "agent":
        node.kill(victim)
        return
    agent.kill()
    began_s = time.monotonic()
    agent.start()
    agent.wait_until_called(_BACK_S)
    assert time.monotonic() - began_s < _BACK_S


def test_containers_start_while_there_is_no_agent(
    start_agent: StartAgent, node: RealNode, controlplane: ControlPlane
) -> None:
    """Containers start as without koordinator; the returning agent adjusts them."""
    publish_batch_resources(controlplane, node)
    agent = start_agent()
    agent.kill()
    made = node.run(*one_of_each(0))
    assert not are_right(node, made)
    agent.start()
    eventually(lambda: are_right(node, made), _BACK_S)


def test_a_stopped_agent_holds_up_no_container(
    start_agent: StartAgent, node: RealNode, controlplane: ControlPlane
) -> None:
    """An agent that hangs is dropped by the runtime within its limit; woken, it comes back."""
    publish_batch_resources(controlplane, node)
    agent = start_agent()
    agent.signal(signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        made = node.run(*one_of_each(0))
        assert time.monotonic() - began_s < _BACK_S
    finally:
        agent.signal(signal.SIGCONT)
    agent.wait_until_called(_BACK_S)
    eventually(lambda: are_right(node, made), _BACK_S)
