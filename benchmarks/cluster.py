"""The scheduler against a real kube-apiserver: memory, start and latency.

The control plane is that of ``make e2e``.  ``benchmarks.peers`` compares the rates of binding.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.scheduler_process import SchedulerProcess

from benchmarks.benchmark import Benchmark

IN_FLIGHT = 64  # requests of the bare client; more are not faster
PODS = "/api/v1/namespaces/default/pods"
NODES = 5_000

Call = tuple[str, str, dict[str, Any] | None]  # verb, path, body


def memory(scale: float) -> dict[str, Any]:
    """Return the memory of the scheduler at 5,000 nodes and 20,000 pods, half of them its own."""
    pods = int(20_000 * scale)
    with running_cluster(NODES) as cluster:
        bound = (("POST", PODS, _pod(i, "other", i % NODES)) for i in range(pods // 2))
        send(cluster.api, bound)
        send(cluster.api, (("POST", PODS, _pod(i, "koord")) for i in range(pods - pods // 2)))
        with _koord(cluster) as process:
            _wait_until_bound(process, pods - pods // 2)
            status = Path(f"/proc/{process.pid}/status").read_text()
            fields = dict(line.split(":", 1) for line in status.splitlines())
            return {
                "MiB now": int(fields["VmRSS"].split()[0]) >> 10,
                "MiB at most": int(fields["VmHWM"].split()[0]) >> 10,
            }


def start(scale: float) -> dict[str, Any]:
    """Return the seconds from the start of the process to its first bind."""
    pods = int(50_000 * scale)
    with running_cluster(NODES) as cluster:
        send(cluster.api, (("POST", PODS, _pod(i, "other", i % NODES)) for i in range(pods - 1000)))
        send(cluster.api, (("POST", PODS, _pod(i, "koord")) for i in range(1000)))
        began = time.perf_counter()
        process = SchedulerProcess(cluster, KOORD)
        process.start(wait=False)
        try:
            while not process.metric(_BOUND):
                time.sleep(0.05)
            return {"s to the first bind": round(time.perf_counter() - began, 1)}
        finally:
            process.kill()


def latency(scale: float) -> dict[str, Any]:
    """Return how long a decision takes while pods come one by one."""
    pods = int(1_000 * scale)
    with running_cluster(NODES) as cluster, _koord(cluster) as process:
        for i in range(pods):
            send(cluster.api, [("POST", PODS, _pod(i, "koord"))])
        _wait_until_bound(process, pods)
        name = "scheduler_scheduling_algorithm_duration_seconds"
        text = process.get("/metrics")
    buckets = [
        (float(line.split('le="')[1].split('"')[0]), float(line.rpartition(" ")[2]))
        for line in text.splitlines()
        if line.startswith(f"{name}_bucket")
    ]
    return {f"p{share} ms": f"{_quantile(buckets, share / 100) * 1e3:.1f}" for share in (50, 99)}


_BOUND = 'scheduler_schedule_attempts_total{profile="koord",result="scheduled"}'
KOORD = {"leaderElection": {"leaderElect": False}, "profiles": [{"schedulerName": "koord"}]}


def _koord(cluster: ControlPlane) -> SchedulerProcess:
    return SchedulerProcess(cluster, KOORD)


def _wait_until_bound(process: SchedulerProcess, pods: int) -> None:
    while process.metric(_BOUND) < pods:
        time.sleep(1.0)


def _quantile(buckets: list[tuple[float, float]], share: float) -> float:
    """Return what ``histogram_quantile`` of Prometheus would."""
    wanted = share * buckets[-1][1]
    for (low, below), (high, count) in pairwise([(0.0, 0.0), *buckets]):
        if count >= wanted:
            return low + (high - low) * (wanted - below) / max(count - below, 1)
    return buckets[-1][0]


# -- the cluster -----------------------------------------------------------------------------


@contextmanager
def running_cluster(nodes: int) -> Iterator[ControlPlane]:
    """Run a control plane with so many nodes that nothing plays."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as cluster:
        send(cluster.api, (("POST", "/api/v1/nodes", _node(i)) for i in range(nodes)))
        yield cluster


def _node(number: int) -> dict[str, Any]:
    name = f"n{number:05}"
    capacity = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{number % 3}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": capacity,
            "capacity": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(number: int, scheduler: str, node: int | None = None) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"}
    placed = {} if node is None else {"nodeName": f"n{node:05}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{scheduler}-{number:05}", "labels": {"app": scheduler}},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
            **placed,
        },
    }


def send(api: Endpoint, calls: Iterable[Call]) -> list[Any]:
    """Send requests, many at a time; return the answers to those that only read."""
    return asyncio.run(_send_all(api, iter(calls)))


async def _send_all(api: Endpoint, calls: Iterator[Call]) -> list[Any]:
    answers: list[Any] = []
    connector = aiohttp.TCPConnector(ssl=api.tls or True, limit=IN_FLIGHT)
    headers = {"Authorization": f"Bearer {api.token}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def work() -> None:
            for verb, path, body in calls:
                url = f"https://127.0.0.1:{api.port}{path}"
                async with session.request(verb, url, json=body) as reply:
                    reply.raise_for_status()
                    if verb == "GET":
                        answers.append(await reply.json())
                    else:
                        await reply.read()

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return answers


BENCHMARKS = {
    "memory": Benchmark("kube-apiserver, 5,000 nodes, 20,000 pods", "400 MiB", memory),
    "start": Benchmark("kube-apiserver, 5,000 nodes, 50,000 pods", "15 s", start),
    "latency": Benchmark("kube-apiserver, 5,000 nodes, short queue", "p99 5 ms", latency),
}
