"""Kubelet, containerd and agent are killed at random while pods come and go on a real node.

Each kill comes while three pods start: one with a CPU of its own, one that shares the rest, a batch
job.  Violations are counted: a container that does not start, or has other CPUs or limits than
promised once the agent is back, a device reported for another pod than its owner.  The time until
the agent is back is measured.
"""

import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from tests.e2e import network, real_node
from tests.e2e.controlplane import ControlPlane
from tests.e2e.node import fake_multus
from tests.e2e.node.conftest import NodeAgent
from tests.e2e.real_node.colocation import install, publish_batch_resources
from tests.e2e.real_node.node import CGROUPS, Manifest
from tests.e2e.waiting import eventually

from benchmarks.benchmark import Benchmark
from koordinator.api.resource_names import RDMA

KILLS, SEED = 20, 18
_PROGRAMS = ("kubelet", "containerd", "agent")
_GATES = "--feature-gates=CPUNormalization=true,PodResourcesProxy=true"
_PATIENCE_S = 120.0
_ALLOCATED = "scheduling.koordinator.sh/device-allocated"


def _crashes(scale: float) -> dict[str, Any]:
    problem = real_node.missing() or ("" if (CGROUPS / "cpuset").is_dir() else "needs cgroup v1")
    if problem:
        return {"skipped": problem}
    programs = real_node.find_programs()
    if not network.enter():
        return {"skipped": "a real node needs a network namespace"}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as parts:
        state = Path(folder)
        cluster = parts.enter_context(ControlPlane(state / "cluster"))
        node = parts.enter_context(real_node.RealNode(cluster, programs, state / "node"))
        install(cluster)
        node.start_kubelet()
        proxy = f"--pod-resources-proxy-path={state}/pod-resources"
        agent = parts.enter_context(NodeAgent(cluster, node, state, _GATES, proxy))
        agent.wait_until_called(_PATIENCE_S)
        socket = f"{state}/pod-resources/kubelet.sock"
        result = _killed(cluster, node, agent, socket, int(KILLS * scale))
        node.stop_kubelet()
        return result


def _killed(
    cluster: ControlPlane, node: real_node.RealNode, agent: NodeAgent, socket: str, kills: int
) -> dict[str, Any]:
    from tests.e2e.node.test_crashes import are_right, one_of_each  # noqa: PLC0415 -- may skip

    publish_batch_resources(cluster, node)
    chance = np.random.default_rng(SEED)
    back_s: list[float] = []
    wrong = not_started = shared = 0
    why: list[str] = []
    for attempt in range(max(kills, 1)):
        victim = _PROGRAMS[chance.integers(len(_PROGRAMS))]
        pods = one_of_each(attempt)
        pods[0]["metadata"]["annotations"] |= _function(attempt)
        for amounts in pods[0]["spec"]["containers"][0]["resources"].values():
            amounts[RDMA] = "1"
        node.create(*pods)
        time.sleep(chance.uniform(0, 1.5))
        if victim == "agent":
            agent.kill()
            began_s = time.monotonic()
            agent.start(wait=False)
            agent.wait_until_called(_PATIENCE_S)
            back_s.append(time.monotonic() - began_s)
        else:
            node.kill(victim)
        made = []
        for each in pods:
            try:
                made.append(node.wait_for(each, "Running", _PATIENCE_S))
            except AssertionError:
                not_started += 1
                why.append(_why(cluster, node, each, victim))
        agent.wait_until_called(_PATIENCE_S)
        wrong += _is_never(lambda made=made: are_right(node, made))
        shared += _is_never(lambda made=made: _reports_right_devices(socket, made))
        node.delete_pods()
    return {
        "kills": kills,
        "containers_not_started": not_started,
        "why": why,
        "rounds_with_wrong_limits": wrong,
        "rounds_with_wrong_devices": shared,
        "agent_mib": _resident_mib(agent.pid),
        "agent_back_s": [round(each, 1) for each in back_s],
    }


def _why(cluster: ControlPlane, node: real_node.RealNode, made: Manifest, victim: str) -> str:
    """Return what is known of a pod that does not run: its status, its events, the last logs."""
    now = node.get(made)
    meta, status = now["metadata"], now["status"]
    response = cluster.api.request("GET", f"/api/v1/namespaces/{meta['namespace']}/events")
    logged = [
        f"{event['reason']} x{event.get('count') or 1}: {event.get('message', '')}"
        for event in response["items"]
        if event["involvedObject"].get("uid") == meta["uid"]
    ]
    waiting = [each.get("state") for each in status.get("containerStatuses", [])]
    logs = [
        line[:300]
        for program in ("kubelet", "containerd")
        for line in node.log_tail(program).splitlines()
        if meta["uid"] in line or meta["name"] in line
    ]
    words = {"killed": victim, "phase": status.get("phase"), "containers": waiting}
    return json.dumps({"pod": meta["name"], **words, "events": logged, "logs": logs[-10:]})


def _resident_mib(pid: int) -> int:
    """Return the memory of a process, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(size) >> 10


def _is_never(holds: Any) -> int:
    try:
        eventually(holds, 30.0)
    except Exception:  # noqa: BLE001 -- counted
        return 1
    return 0


def _function(attempt: int) -> dict[str, str]:
    """Return the annotation of a pod that has a virtual function, another one each time."""
    function = f"0000:01:{attempt % 32:02x}.2"
    card = {"minor": 0, "extension": {"vfs": [{"minor": -1, "busID": function}]}}
    return {_ALLOCATED: json.dumps({"rdma": [card]})}


def _reports_right_devices(socket: str, made: list[Manifest]) -> bool:
    """Return whether exactly the pods that have a device are reported to have it."""
    wanted = {}
    for each in made:
        text = each["metadata"].get("annotations", {}).get(_ALLOCATED)
        if text is not None:
            vfs = json.loads(text)["rdma"][0]["extension"]["vfs"]
            wanted[each["metadata"]["name"]] = [vfs[0]["busID"]]
    listed = fake_multus.list_pods(socket)
    reported = {pod.name: fake_multus.devices(pod).get(RDMA) for pod in listed}
    return {name: ids for name, ids in reported.items() if ids} == wanted


BENCHMARKS = {
    "node-crashes": Benchmark(
        "20 kills under churn on a real node", "0 wrong, agent back in 5 s", _crashes
    ),
}
