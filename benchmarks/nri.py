"""Latency of the agent's answers to the runtime, and its cost for a container's start.

``nri-answers``: 110 pods in real cgroups; the agent's loop never rests, and serves its metrics all
the time.  Another process plays the runtime and asks about containers, known and not yet known.
The same with a loop that works when something is due (service; its metrics are scraped each
second) is what a node sees, and with one that rests (idle), how much of it is the machine.
``nri-start``: pods on a real node, one with the plugin, one without, in turn; the time is from the
request to the first line that the container prints.
"""

import json
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from tests.e2e import network, real_node
from tests.e2e.controlplane import ControlPlane
from tests.e2e.host.machine import PodsMachine, missing
from tests.e2e.real_node.node import pod
from tests.nodes import LAYOUT, cpus, machine, slo
from tests.unit.host.nri.runtime_peer import RuntimePeer

from benchmarks.benchmark import Benchmark
from koordinator.foundation.clock import SystemClock, WallClock
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.nri_connection import NriConnection, NriSettings
from koordinator.host.nri.messages import (
    CreateContainerRequest,
    NriContainer,
    NriPod,
    NriPodLinux,
)
from koordinator.host.port import HOST
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.cgroup_tree import CgroupTree, find_version
from koordinator.koordlet.hooks.pod_hooks import PodHooks
from koordinator.koordlet.runtime_hooks.nri_plugin import NriHookPlugin
from koordinator.koordlet.runtime_hooks.runtime_hooks import PublishedHooks, RuntimeHooks
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.slo import effective_slo

PODS, CALLS, PAIRS = 110, 2000, 30
_SWITCH_S = 0.00005  # as in the agent's process
_PAUSE_S = 0.005  # between two questions
_NAP_S = 0.02  # of the loop, at the most
_GATES = {"CPUSetAllocator": True, "CPUNormalization": True}


def _answers(scale: float) -> dict[str, Any]:
    problem = missing()
    if problem:
        return {"skipped": problem}
    sys.setswitchinterval(_SWITCH_S)
    with tempfile.TemporaryDirectory() as folder:
        pods = PodsMachine(Path(folder))
        try:
            return _latencies(pods, Path(folder) / "nri.sock", max(int(CALLS * scale), 100))
        finally:
            pods.remove()


def _latencies(pods: PodsMachine, path: Path, calls: int) -> dict[str, Any]:
    on = {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True}}
    pods.slo(slo(resourceQOSStrategy={"lsClass": on, "beClass": on}))
    for number in range(PODS):
        pods.place(f"ls-{number}", "LS", 2, requests={"cpu": "100m"}, limits={"cpu": "200m"})
    registry = CollectorRegistry()
    gauges = NodeGauges(registry, "n1", 0.0)
    files = LinuxHost(kept_open=0)
    hooks = RuntimeHooks(
        pods.clock,
        files,
        pods.roots,
        CgroupTree(files, pods.roots.cgroup, find_version(files, pods.roots.cgroup)),
        observer=gauges,
    )
    pods.agent.close()
    pods.agent = pods.start(gauges, hooks, **_GATES)
    pods.count()
    pods.agent.step()  # the first one publishes what is known
    idle_ms = _measured(hooks, path.with_suffix(".idle"), calls, lambda: time.sleep(_PAUSE_S))
    steps = [0]

    def work() -> None:
        pods.agent.step()
        generate_latest(registry)
        steps[0] += 1

    taken_ms = _measured(hooks, path, calls, work)
    scraped_s = [0.0]

    def work_as_in_service() -> None:
        pods.agent.step()
        if time.monotonic() >= scraped_s[0] + 1.0:
            scraped_s[0] = time.monotonic()
            generate_latest(registry)
        time.sleep(min(max(pods.agent.next_s() - pods.clock.now_s(), 0.0), _NAP_S))

    service_ms = _measured(hooks, path.with_suffix(".service"), calls, work_as_in_service)
    return {
        "p50_ms": round(statistics.median(taken_ms), 2),
        "p99_ms": round(taken_ms[int(len(taken_ms) * 0.99)], 2),
        "max_ms": round(taken_ms[-1], 2),
        "service_p50_ms": round(statistics.median(service_ms), 2),
        "service_p99_ms": round(service_ms[int(len(service_ms) * 0.99)], 2),
        "idle_p50_ms": round(statistics.median(idle_ms), 2),
        "idle_p99_ms": round(idle_ms[int(len(idle_ms) * 0.99)], 2),
        "calls": len(taken_ms),
        "steps_meanwhile": steps[0],
    }


def _measured(hooks: RuntimeHooks, path: Path, calls: int, work: Callable[[], None]) -> list[float]:
    """Return what each answer took, ascending, while the agent's thread did its work."""
    spawning = multiprocessing.get_context("spawn")
    results = spawning.SimpleQueue()
    runtime = spawning.Process(target=_ask, args=(str(path), calls, results))
    runtime.start()
    connection = NriConnection(NriHookPlugin(hooks), NriSettings(socket_path=str(path)))
    connection.start()
    while results.empty():
        work()
    taken_ms: list[float] = sorted(results.get())
    connection.stop()
    runtime.join()
    return taken_ms


def _ask(path: str, calls: int, results: Any) -> None:
    """Play the runtime."""
    with RuntimePeer(Path(path)) as runtime:
        runtime.accept()
        taken_ms = []
        for number in range(calls):
            request = _request(number)
            began_s = time.perf_counter()
            response = runtime.call("CreateContainer", request)
            taken_ms.append((time.perf_counter() - began_s) * 1000)
            assert response.status is None
            time.sleep(_PAUSE_S)
        results.put(taken_ms)


def _request(number: int) -> CreateContainerRequest:
    """Return a container: of a known pod, of one with CPUs of its own, of a batch job."""
    labels = {f"label-{index}": "x" * 20 for index in range(15)}
    annotations = {f"annotation-{index}": "x" * 100 for index in range(10)}
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1073741824"}
    spec = {"containers": {"c0": {"requests": amounts, "limits": amounts}}}
    name, qos, tier, own = (
        (f"ls-{number % PODS}", "LS", "burstable", {}),
        (f"own-{number}", "LSR", "burstable", _own("0")),
        (f"be-{number}", "BE", "besteffort",
         {"node.koordinator.sh/extended-resource-spec": json.dumps(spec)}),
    )[number % 3]  # fmt: skip
    return CreateContainerRequest(
        pod=NriPod(
            id="s",
            name=name,
            uid=f"uid-{name}",
            namespace="default",
            labels={**labels, "koordinator.sh/qosClass": qos},
            annotations={**annotations, **own},
            linux=NriPodLinux(cgroup_parent=f"/kubepods/{tier}/poduid-{name}"),
        ),
        container=NriContainer(id=f"id{number}", name="c0", env=("PATH=/bin",) * 20),
    )


def _own(cpus: str) -> dict[str, str]:
    return {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpus})}


def _start(scale: float) -> dict[str, Any]:
    problem = real_node.missing()
    if problem:
        return {"skipped": problem}
    programs = real_node.find_programs()
    if not network.enter():
        return {"skipped": "a real node needs a network namespace"}
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        with (
            ControlPlane(state / "cluster") as cluster,
            real_node.RealNode(cluster, programs, state / "node") as node,
        ):
            node.start_kubelet()
            return _paired(node, max(int(PAIRS * scale), 3))


def _paired(node: real_node.RealNode, pairs: int) -> dict[str, Any]:
    hooks = _hooks()
    without: list[float] = []
    differences: list[float] = []
    for pair in range(pairs + 1):
        taken = {}
        for has_plugin in (True, False) if pair % 2 else (False, True):
            connection = _connect(node, hooks) if has_plugin else None
            taken[has_plugin] = _start_one(node, f"p{pair}-{has_plugin}".lower())
            if connection is not None:
                connection.stop()
        if pair:  # the first one finds nothing in the caches
            without.append(taken[False])
            differences.append(taken[True] - taken[False])
    node.stop_kubelet()
    plain_ms = statistics.median(without) * 1000
    added_ms = statistics.median(differences) * 1000
    return {
        "start_ms": round(plain_ms),
        "added_ms": round(added_ms, 1),
        "added_percent": round(100 * added_ms / plain_ms, 1),
        "pairs": len(without),
    }


def _hooks() -> RuntimeHooks:
    """Return hooks of an agent that knows its node and no pods."""
    files = LinuxHost(kept_open=0)
    tree = CgroupTree(files, HOST.cgroup, find_version(files, HOST.cgroup))
    hooks = RuntimeHooks(SystemClock(), files, HOST, tree)
    settings = effective_slo(slo(), LAYOUT)
    view = NodeView(0.0, machine(topology=cpus(2)), settings, (), LAYOUT, tree)
    hooks.publish(PublishedHooks(PodHooks.of(view, {*_GATES, "BatchResource"})))
    return hooks


def _start_one(node: real_node.RealNode, name: str) -> float:
    """Return the seconds until a container printed its first line."""
    labels = {"koordinator.sh/qosClass": "LSR"}
    manifest = pod(name, "echo started; sleep 2147483647", labels=labels, annotations=_own("0"))
    requested_s = WallClock().now_s()
    (made,) = node.run(manifest)
    printed_s = node.first_line_s(made)
    node.delete_pods()
    return printed_s - requested_s


def _connect(node: real_node.RealNode, hooks: RuntimeHooks) -> NriConnection:
    connected = threading.Event()
    connection = NriConnection(
        NriHookPlugin(hooks),
        NriSettings(socket_path=str(node.nri_socket)),
        on_state=lambda is_connected: connected.set() if is_connected else None,
    )
    connection.start()
    connected.wait(10)
    return connection


BENCHMARKS = {
    "nri-answers": Benchmark("NRI: answers while the agent is busy", "p99 <= 5 ms", _answers),
    "nri-start": Benchmark("NRI: a container's start, paired", "<= 2 % later", _start),
}
