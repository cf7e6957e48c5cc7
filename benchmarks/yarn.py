"""The YARN operator: what 5,000 NodeManagers cost it, and how fast a change reaches one.

The API server is real; the ResourceManager is played at its REST boundary by a process of its own.
In each second containers come or go on one node in a hundred, and one node in three hundred has
more or less to give, as if koord-manager had written it.
"""

import json
import multiprocessing
import os
import resource
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.yarn.operator_process import YarnOperatorProcess

from benchmarks.benchmark import Benchmark
from benchmarks.cluster import PODS, send

NODES = 5_000
SECONDS = 60
CHANGES = 50
_ORIGIN, _OTHERS = 40_000, 10_000  # milli-CPU
_GIB = 1 << 30
_MERGE = "application/merge-patch+json"
_PAGE = resource.getpagesize()
_TICKS = os.sysconf("SC_CLK_TCK")


def yarn_operator(scale: float) -> dict[str, Any]:
    """Return what the operator uses while little changes, and how long a change takes."""
    nodes = int(NODES * scale)
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as cluster:
        send(cluster.api, (("POST", "/api/v1/nodes", _node(i)) for i in range(nodes)))
        send(cluster.api, (("POST", PODS, _pod(i)) for i in range(nodes)))
        with _resource_manager(nodes) as port:
            conf = Path(folder) / "conf"
            conf.mkdir()
            (conf / "yarn-site.xml").write_text(
                "<configuration><property><name>yarn.resourcemanager.webapp.address</name>"
                f"<value>127.0.0.1:{port}</value></property><property>"
                "<name>yarn.resourcemanager.address</name><value>127.0.0.1:1</value></property>"
                "</configuration>"
            )
            process = YarnOperatorProcess(cluster, conf)
            began = time.perf_counter()
            process.start()
            try:
                while _limited(port) < nodes:
                    time.sleep(0.2)
                settled_s = time.perf_counter() - began
                time.sleep(5)
                used_s, began = _cpu_s(process.pid), time.perf_counter()
                with _drift(cluster, nodes):
                    time.sleep(SECONDS * scale if scale < 1 else SECONDS)
                cores = (_cpu_s(process.pid) - used_s) / (time.perf_counter() - began)
                rss = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE
                times = sorted(_change(cluster, port, i) for i in range(CHANGES))
            finally:
                process.kill()
    return {
        "s until all are settled": round(settled_s, 1),
        "cores": round(cores, 3),
        "MiB": rss >> 20,
        "ms from a node to its limit, p50": round(times[len(times) // 2] * 1e3),
        "ms, worst": round(times[-1] * 1e3),
    }


def _node(number: int, origin: int = _ORIGIN) -> dict[str, Any]:
    """Return a node whose NodeManager has been promised 36 vcores and 115,200 MiB."""
    promise = {"kubernetes.io/batch-cpu": "36000", "kubernetes.io/batch-memory": "115200Mi"}
    entry = {"name": "hadoop-yarn", "priority": "koord-batch", "resources": promise}
    room = {
        "cpu": "64",
        "memory": "256Gi",
        "pods": "110",
        "kubernetes.io/batch-cpu": str(max(origin - 36_000, 0)),
        "kubernetes.io/batch-memory": str((125 << 30) - (115_200 << 20)),
    }
    return {
        "metadata": {
            "name": f"n{number:05}",
            "annotations": {
                "node.koordinator.sh/originExtendedAllocatable": _origin(origin),
                "node.koordinator.sh/thirdPartyAllocations": json.dumps({"allocations": [entry]}),
            },
        },
        "status": {"capacity": room, "allocatable": room},
    }


def _origin(cpu_milli: int) -> str:
    resources = {"kubernetes.io/batch-cpu": str(cpu_milli), "kubernetes.io/batch-memory": "125Gi"}
    return json.dumps({"resources": resources})


def _pod(number: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"nm-{number:05}",
            "labels": {"app.kubernetes.io/component": "node-manager"},
            "annotations": {"yarn.hadoop.apache.org/node-id": f"n{number:05}:8041"},
        },
        "spec": {
            "nodeName": f"n{number:05}",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "nm", "image": "hadoop"}],
        },
    }


def _give(cluster: ControlPlane, number: int, origin: int) -> None:
    """Set the batch resources of a node, as koord-manager writes them."""
    left = {"kubernetes.io/batch-cpu": str(max(origin - 36_000, 0))}
    body = {
        "metadata": {
            "annotations": {"node.koordinator.sh/originExtendedAllocatable": _origin(origin)}
        },
        "status": {"allocatable": left, "capacity": left},
    }
    cluster.api.request("PATCH", f"/api/v1/nodes/n{number:05}/status", body, content_type=_MERGE)


def _change(cluster: ControlPlane, port: int, number: int) -> float:
    """Take CPUs from a node; return the seconds until its NodeManager has fewer."""
    before = _read(port, f"/limit/n{number:05}:8041")
    _give(cluster, number, _ORIGIN - _OTHERS)
    began = time.perf_counter()
    while _read(port, f"/limit/n{number:05}:8041") == before:
        time.sleep(0.005)
    return time.perf_counter() - began


@contextmanager
def _drift(cluster: ControlPlane, nodes: int) -> Iterator[None]:
    stopping = threading.Event()

    def run() -> None:
        number = nodes // 2
        while not stopping.wait(max(300 / nodes, 0.06)):
            number = number + 1 if number + 1 < nodes else nodes // 2
            _give(cluster, number, _ORIGIN - 2_000 * (number % 3))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


# -- the ResourceManager -------------------------------------------------------------------------


def _limited(port: int) -> int:
    return int(_read(port, "/limited"))


def _read(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        text: bytes = answer.read()
    return text


@contextmanager
def _resource_manager(nodes: int) -> Iterator[int]:
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(port, nodes))
    process.start()
    try:
        while True:
            try:
                _read(port, "/limited")
            except OSError:
                time.sleep(0.1)
            else:
                break
        yield port
    finally:
        process.terminate()
        process.join()


def _serve(port: int, nodes: int) -> None:
    """Play a ResourceManager whose NodeManagers have registered just now."""
    limits = {f"n{i:05}:8041": (1, 1024) for i in range(nodes)}
    used = dict.fromkeys(limits, 0)
    texts = {node_id: _text(node_id, limits, used) for node_id in limits}
    ids = list(limits)
    turn = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            nonlocal turn
            path = self.path.partition("?")[0]
            if path == "/limited":
                self._send(str(sum(each != (1, 1024) for each in limits.values())).encode())
            elif path.startswith("/limit/"):
                self._send(str(limits[path.removeprefix("/limit/")]).encode())
            elif path.endswith("/info"):
                version = {"haState": "ACTIVE", "resourceManagerVersion": "3.3.6"}
                self._send(json.dumps({"clusterInfo": version}).encode())
            elif path.endswith("/nodes"):
                turn += 1
                for node_id in ids[turn % 100 :: 100]:
                    used[node_id] = turn % 7
                    texts[node_id] = _text(node_id, limits, used)
                self._send(b'{"nodes":{"node":[' + b",".join(texts.values()) + b"]}}")
            else:
                self._send(b'{"node":' + texts[path.rpartition("/")[2]] + b"}")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            node_id = self.path.partition("?")[0].split("/")[-2]
            wanted = body["resource"]
            limits[node_id] = wanted["vCores"], wanted["memory"]
            texts[node_id] = _text(node_id, limits, used)
            self._send(json.dumps({"resourceInfo": wanted}).encode())

        def log_message(self, *_: Any) -> None:
            pass

        def _send(self, text: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.wfile.flush()

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def _text(node_id: str, limits: dict[str, tuple[int, int]], used: dict[str, int]) -> bytes:
    """Return a node with all fields of Hadoop 3.3.6; most of them are not read."""
    vcores, memory = limits[node_id]
    host = node_id.partition(":")[0]
    usage = {"nodePhysicalMemoryMB": 100, "nodeVirtualMemoryMB": 100, "nodeCPUUsage": 0.5}
    more = {f"aggregatedContainers{name}MemoryMB": 0 for name in ("Physical", "Virtual")}
    return json.dumps(
        {
            "rack": "/default-rack",
            "state": "RUNNING",
            "id": node_id,
            "nodeHostName": host,
            "nodeHTTPAddress": f"{host}:8042",
            "lastHealthUpdate": 1_700_000_000_000,
            "version": "3.3.6",
            "healthReport": "",
            "numContainers": used[node_id],
            "usedMemoryMB": used[node_id] * 1024,
            "availMemoryMB": memory - used[node_id] * 1024,
            "usedVirtualCores": used[node_id],
            "availableVirtualCores": vcores - used[node_id],
            "numRunningOpportContainers": 0,
            "usedMemoryOpportGB": 0,
            "usedVirtualCoresOpport": 0,
            "numQueuedContainers": 0,
            "allocationTags": {},
            "resourceUtilization": {**usage, **more, "containersCPUUsage": 0.0},
            "usedResource": {"memory": used[node_id] * 1024, "vCores": used[node_id]},
            "availableResource": {"memory": memory, "vCores": vcores},
            "totalResource": {"memory": memory, "vCores": vcores},
        }
    ).encode()


BENCHMARKS = {
    "yarn-operator": Benchmark(
        f"YARN operator, {NODES:,} NodeManagers, real API server, played ResourceManager",
        "under 0.1 core, 150 MiB; a change in under 2 s",
        yarn_operator,
    )
}
