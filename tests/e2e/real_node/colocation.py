"""A server with load beside batch jobs on a real node, and how long its requests take.

The server's pod runs the Python of this machine, which it sees through a mount; load comes from the
outside, open loop: requests are sent at their time, whether or not the last one was answered.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import numpy as np
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koord_process import KOORD
from tests.e2e.manager_process import NAMESPACE
from tests.e2e.real_node import latency_server
from tests.e2e.real_node.node import CGROUPS, Manifest, RealNode, pod
from tests.e2e.waiting import eventually

SERVER, PORT, REQUEST_MS = "server", 8080, 8.0
LIMIT_MILLI = 400  # 40 ms in each period of 100 ms: five requests
SUPPRESS_PERCENT = 40  # of the node, which servers and jobs may use together
PRIORITIES = {"koord-prod": 9500, "koord-batch": 5500}
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
TIER = CGROUPS / "cpu/kubepods/besteffort"
CONFIG = {
    "colocation-config": {
        "enable": True,
        "metricReportIntervalSeconds": 2,
        "metricAggregateDurationSeconds": 10,
        "cpuReclaimThresholdPercent": 90,
        "memoryReclaimThresholdPercent": 90,
        "updateTimeThresholdSeconds": 2,
    },
    "resource-threshold-config": {
        "clusterStrategy": {
            "enable": True,
            "cpuSuppressPolicy": "cfsQuota",
            "cpuSuppressThresholdPercent": SUPPRESS_PERCENT,
            "cpuEvictBESatisfactionLowerPercent": 40,
            "cpuEvictBESatisfactionUpperPercent": 60,
            "cpuEvictBEUsageThresholdPercent": 50,
            "cpuEvictTimeWindowSeconds": 10,
        }
    },
    "cpu-burst-config": {
        "clusterStrategy": {
            "policy": "cfsQuotaBurstOnly",
            "cfsQuotaBurstPercent": 300,
            "cfsQuotaBurstPeriodSeconds": -1,
            "sharePoolThresholdPercent": 90,
        }
    },
}
_CONNECTIONS = 32
_EXTENDED = "node.koordinator.sh/extended-resource-spec"
_ANSWER_S = 30.0
_STAT_S = 0.1
_UP_S = 1000.0  # so long has the machine been up when it begins


def install(controlplane: ControlPlane) -> None:
    """Create what Koordinator adds to the API."""
    done = subprocess.run([KOORD, "crds"], stdout=subprocess.PIPE, text=True, check=True)
    controlplane.kubectl("apply", "--server-side", "--filename=-", stdin=done.stdout)
    established = "--for=condition=Established"
    controlplane.kubectl("wait", "crd", "--all", established, "--timeout=600s")


def configure(controlplane: ControlPlane, *sections: str) -> None:
    """Write what manager and agent are to do, all of it or these sections."""
    api = controlplane.api
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    data = {key: json.dumps(CONFIG[key]) for key in sections or CONFIG}
    config = {"metadata": {"name": "slo-controller-config"}, "data": data}
    api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", config)


def create_priorities(controlplane: ControlPlane) -> None:
    """Make the classes that pods here are of."""
    for name, value in PRIORITIES.items():
        made = {"metadata": {"name": name}, "value": value}
        controlplane.api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", made)


def server_pod() -> Manifest:
    """Return a latency-sensitive server; its limit is enough for its load, but not at all times."""
    made = pod(
        SERVER,
        labels={"koordinator.sh/qosClass": "LS"},
        resources={
            "requests": {"cpu": "200m", "memory": "64Mi"},
            "limits": {"cpu": f"{LIMIT_MILLI}m", "memory": "256Mi"},
        },
        priorityClassName="koord-prod",
        volumes=[{"name": "machine", "hostPath": {"path": "/"}}],
        container={"volumeMounts": [{"name": "machine", "mountPath": "/machine"}]},
    )
    program = [sys.executable, latency_server.__file__, str(PORT), str(REQUEST_MS)]
    made["spec"]["containers"][0]["command"] = ["chroot", "/machine", *program]
    return made


def batch_resources(cpu_milli: int, memory: int) -> Manifest:
    """Return what a pod with batch resources has: in its spec, and as the webhook annotates it."""
    amounts = {BATCH_CPU: str(cpu_milli), BATCH_MEMORY: str(memory)}
    resources = {"requests": amounts, "limits": amounts}
    annotations = {_EXTENDED: json.dumps({"containers": {"main": resources}})}
    return {"resources": resources, "annotations": annotations}


def publish_batch_resources(controlplane: ControlPlane, node: RealNode) -> None:
    """Write batch resources of the node, as the manager does; return when the kubelet knows them.

    It permanently rejects a pod that requests more of them than its node has.
    """
    amounts = {BATCH_CPU: "4000", BATCH_MEMORY: str(4 << 30)}
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    words = ("patch", "node", node.name, "--subresource=status", "--type=merge", "--patch", patch)
    controlplane.kubectl(*words)

    def is_admitted() -> bool:
        probe = pod("probe", "true", **batch_resources(1, 1 << 20))
        node.create(probe)
        ended = eventually(lambda: _ended(node, probe))
        node.delete(ended)
        return bool(ended["status"]["phase"] == "Succeeded")

    eventually(is_admitted)


def _ended(node: RealNode, made: Manifest) -> Manifest:
    now = node.get(made)
    return now if now["status"]["phase"] in {"Succeeded", "Failed"} else {}


def batch_pod(name: str, cpu_milli: int) -> Manifest:
    """Return a job that computes in two processes, on batch resources; no node is named."""
    made = pod(
        name,
        "while :; do :; done & while :; do :; done",
        labels={"koordinator.sh/qosClass": "BE"},
        priorityClassName="koord-batch",
        schedulerName="koord-scheduler",
        **batch_resources(cpu_milli, 64 << 20),
    )
    del made["spec"]["nodeName"]
    return made


def batch_cpu_milli(controlplane: ControlPlane, node: RealNode) -> int:
    """Return what the manager has published of batch CPU; 0 for nothing."""
    status = controlplane.api.request("GET", f"/api/v1/nodes/{node.name}")["status"]
    return int(status["allocatable"].get(BATCH_CPU, "0"))


def quota_us(folder: Path) -> int:
    """Return the quota of a cgroup; -1 for none."""
    return int((folder / "cpu.cfs_quota_us").read_text())


def cgroup_of(node: RealNode, made: Manifest) -> Path:
    """Return the folder of a pod's container."""
    identity = node.container_id(made)
    (folder,) = (path for path in (CGROUPS / "cpu/kubepods").rglob(identity) if path.is_dir())
    return folder


@dataclass
class Load:
    """Requests to the server, ``per_s`` of them at random times; ``with`` begins and ends it."""

    address: str
    per_s: float
    seed: int = 1
    taken: list[tuple[float, float]] = field(default_factory=list)  #: when asked, seconds
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        """Connect, and begin to ask."""
        self._due: SimpleQueue[float] = SimpleQueue()
        self._threads = [threading.Thread(target=self._time, daemon=True)]
        for _ in range(_CONNECTIONS):
            connection = eventually(
                lambda: socket.create_connection((self.address, PORT), _ANSWER_S)
            )
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asker = threading.Thread(target=self._ask, args=(connection,), daemon=True)
            self._threads.append(asker)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop asking."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_ANSWER_S)

    def _time(self) -> None:
        chance, at_s = np.random.default_rng(self.seed), time.monotonic()
        while not self._stopping.is_set():
            at_s += chance.exponential(1 / self.per_s)
            self._stopping.wait(max(at_s - time.monotonic(), 0))
            self._due.put(at_s)
        for _ in range(_CONNECTIONS):
            self._due.put(-1.0)

    def _ask(self, connection: socket.socket) -> None:
        with connection:
            while (due_s := self._due.get()) >= 0:
                connection.sendall(b"?")
                connection.recv(1)
                self.taken.append((due_s, time.monotonic() - due_s))

    def p99_ms(self, since_s: float = 0.0) -> float:
        """Return the 99th percentile of requests that were due since a time, in milliseconds."""
        return percentile_ms([taken for due_s, taken in self.taken if due_s >= since_s], 99)


def percentile_ms(seconds: list[float], percent: float) -> float:
    """Return the nearest rank; NaN of nothing."""
    ordered = sorted(seconds)
    if not ordered:
        return float("nan")
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] * 1000


class QuietMachine:
    """A /proc/stat on which nothing runs but pods: other work of this machine is none of the story.

    ``program`` is in front of a command that is to see it instead of the machine's; ``with`` keeps
    it up to date.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began_s = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._write()

    @property
    def program(self) -> list[str]:
        """Program that runs a command."""
        return [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f'mount --bind {self._path} /proc/stat; exec "$@"',
            "-",
        ]

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self._stopping.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._stopping.wait(_STAT_S):
            self._write()

    def _write(self) -> None:
        usage = CGROUPS / "cpuacct/kubepods/cpuacct.usage"
        used = int(usage.read_text()) // 10_000_000 if usage.exists() else 0
        cpus = len(os.sched_getaffinity(0))
        whole = int((time.monotonic() - self._began_s + _UP_S) * 100 * cpus)
        line = f"cpu  {used:012d} 0 0 {whole - used:012d} 0 0 0 0 0 0\n"
        if self._path.exists():  # in place: it is mounted
            with self._path.open("r+") as file:
                file.write(line)
        else:
            self._path.write_text(line)


def address_of(node: RealNode, made: Manifest) -> str:
    """Return the address of a pod that runs."""
    return str(eventually(lambda: node.get(made)["status"].get("podIP")))


def scheduling() -> dict[str, Any]:
    """Return the configuration of a scheduler for these pods."""
    return {
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "koord-scheduler"}],
    }
