"""Cost of ``koord koordlet`` as it runs on a node: a process that has all its connections.

110 pods of two containers are in a real API server and in real cgroups; the runtime asks it over
NRI about a container each second, the PodResources proxy waits for who asks, and its metrics are
scraped every 15 s.  CPU is what the process took while that went on, memory what it had then.
"""

import json
import os
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.e2e import network
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.host.machine import PodsMachine, missing
from tests.e2e.koord_process import KOORD, KoordProcess
from tests.e2e.real_node.colocation import install
from tests.nodes import LAYOUT
from tests.unit.host.nri.runtime_peer import RuntimePeer

from benchmarks.benchmark import Benchmark
from koordinator.api.codec import decode
from koordinator.api.pod import Pod
from koordinator.host.nri.messages import (
    CreateContainerRequest,
    NriContainer,
    NriPod,
    NriPodLinux,
)
from koordinator.koordlet.view.pods import PodView, pod_view

PODS, CONTAINERS = 110, 2
WARM_UP_S, MEASURED_S, SCRAPED_EVERY_S = 20.0, 60.0, 15
_GATES = "PodResourcesProxy=true,AuditEvents=true,BECPUEvict=true,BEMemoryEvict=true"
_NODE = "n1"
_ON = {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True}}
_SLO = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65},
    "cpuBurstStrategy": {"policy": "auto"},
    "resourceQOSStrategy": {"lsClass": _ON, "beClass": _ON},
}


def _cost(scale: float) -> dict[str, Any]:
    problem = missing() or ("" if network.enter() else "needs a network namespace")
    if problem:
        return {"skipped": problem}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as parts:
        state = Path(folder)
        cluster = parts.enter_context(ControlPlane(state / "cluster"))
        install(cluster)
        (state / "machine").mkdir()
        machine = PodsMachine(state / "machine")
        parts.callback(machine.remove)
        views = _fill(cluster, machine)
        (state / "run/nri").mkdir(parents=True)
        runtime = parts.enter_context(RuntimePeer(state / "run/nri/nri.sock"))
        agent = parts.enter_context(_agent(cluster, state))
        runtime.accept()
        asking = threading.Event()
        asker = threading.Thread(target=_ask, args=(runtime, views, asking))
        asker.start()
        parts.callback(asker.join)
        parts.callback(asking.set)
        time.sleep(WARM_UP_S)
        return _measured(agent, max(MEASURED_S * scale, 10.0))


def _agent(cluster: ControlPlane, state: Path) -> KoordProcess:
    port = free_port()
    command = [
        str(KOORD),
        "koordlet",
        f"--node-name={_NODE}",
        f"--kubeconfig={cluster.kubeconfig()}",
        f"--addr=127.0.0.1:{port}",
        f"--cgroup-root-dir={state}/machine/cgroup",
        f"--proc-root-dir={state}/machine/proc",
        f"--var-run-root-dir={state}/run",
        f"--var-lib-kubelet-dir={state}/kubelet",
        f"--audit-log-dir={state}/audit",
        f"--prediction-checkpoint-filepath={state}/checkpoints",
        f"--pod-resources-proxy-path={state}/pod-resources",
        f"--feature-gates={_GATES}",
    ]
    return KoordProcess(cluster, "koordlet", command, port)


def _fill(cluster: ControlPlane, machine: PodsMachine) -> list[PodView]:
    """Make the node, its pods and their cgroups."""
    api = cluster.api
    amounts = {"cpu": str(machine.cpus), "memory": "1Gi", "pods": "110"}
    api.request("POST", "/api/v1/nodes", {"metadata": {"name": _NODE}})
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    merge = "application/merge-patch+json"
    api.request("PATCH", f"/api/v1/nodes/{_NODE}/status", status, content_type=merge)
    slos = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO"}
    api.request("POST", slos, {**kind, "metadata": {"name": _NODE}, "spec": _SLO})
    views = []
    for number in range(PODS):
        made = api.request("POST", "/api/v1/namespaces/default/pods", _pod(number))
        name = made["metadata"]["name"]
        path = f"/api/v1/namespaces/default/pods/{name}/status"
        made = api.request("PATCH", path, {"status": _running(name)}, content_type=merge)
        view = pod_view(decode(json.dumps(made).encode(), Pod), LAYOUT)
        machine.make_cgroups(view)
        views.append(view)
    return views


def _pod(number: int) -> dict[str, Any]:
    is_batch = number % 3 == 0
    batch = {"kubernetes.io/batch-cpu": "200", "kubernetes.io/batch-memory": "64Mi"}
    plain = {"cpu": "200m", "memory": "128Mi"}
    limits = batch if is_batch else plain
    requests = batch if is_batch else {"cpu": "100m", "memory": "64Mi"}
    container = {"image": "none", "resources": {"requests": requests, "limits": limits}}
    return {
        "metadata": {
            "name": f"pod-{number}",
            "labels": {"koordinator.sh/qosClass": "BE" if is_batch else "LS"},
        },
        "spec": {
            "nodeName": _NODE,
            "containers": [{"name": f"c{n}", **container} for n in range(CONTAINERS)],
        },
    }


def _running(name: str) -> dict[str, Any]:
    containers = [
        {
            "name": f"c{n}",
            "containerID": f"containerd://{name}-c{n}",
            "image": "none",
            "imageID": "none",
            "ready": True,
            "restartCount": 0,
        }
        for n in range(CONTAINERS)
    ]
    return {"phase": "Running", "containerStatuses": containers}


def _ask(runtime: RuntimePeer, views: list[PodView], stopping: threading.Event) -> None:
    """Play the runtime, which makes a container now and then."""
    number = 0
    while not stopping.wait(1.0):
        view = views[number % len(views)]
        number += 1
        meta = view.pod.metadata
        request = CreateContainerRequest(
            pod=NriPod(
                id="s",
                name=meta.name,
                uid=meta.uid,
                namespace=meta.namespace,
                labels=dict(meta.labels),
                annotations=dict(meta.annotations),
                linux=NriPodLinux(cgroup_parent=f"/{view.folder}"),
            ),
            container=NriContainer(id=f"again{number}", name="c0"),
        )
        runtime.call("CreateContainer", request)


def _measured(agent: KoordProcess, seconds: float) -> dict[str, Any]:
    began_s, before_s = time.monotonic(), _cpu_s(agent.pid)
    while (passed_s := time.monotonic() - began_s) < seconds:
        agent.get("/metrics")
        time.sleep(min(SCRAPED_EVERY_S, max(seconds - passed_s, 0.0)))
    cores = (_cpu_s(agent.pid) - before_s) / (time.monotonic() - began_s)
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{agent.pid}/status").read_text().splitlines()
    )
    return {
        "cores": round(cores, 3),
        "rss_mib": round(int(status["VmRSS"].split()[0]) / 1024),
        "peak_mib": round(int(status["VmHWM"].split()[0]) / 1024),
        "threads": int(status["Threads"]),
        "answers": int(_answers(agent)),
        "load": round(os.getloadavg()[0], 1),
    }


def _answers(agent: KoordProcess) -> float:
    """Return how many hooks the runtime waited for."""
    name = "koordlet_runtime_hook_invoked_duration_milliseconds_count"
    lines = agent.get("/metrics").splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


BENCHMARKS = {
    "koordlet-process": Benchmark(
        "koordlet as a process, NRI and proxy on, 110 pods", "<= 0.15 core, <= 120 MiB", _cost
    ),
}
