"""Time from a failure to the next decision of scheduler, manager and descheduler.

Each component runs twice on a real API server, with the default durations of the lease.  The leader
is killed, or is asked to stop; or the API server is away for longer than the lease.  A decision is
a pod that is bound, the NodeSLO of a new node, a migration job that is finished.  The parts come
from the logs: ``lease`` is the time until another process leads, ``lists`` the time that it then
needs to know the last writes of the previous leader, ``decision`` the rest.
"""

import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.e2e import network
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.descheduler_process import DeschedulerProcess
from tests.e2e.fleet import node, pod
from tests.e2e.koord_process import KoordProcess
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.real_node.colocation import install
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

from benchmarks.benchmark import Benchmark
from benchmarks.cluster import send
from koordinator.foundation.clock import SystemClock

NODES, PODS = 500, 5_000
OUTAGE_S = 20.0
_PATIENCE_S = 90.0
_JSON = "--logging-format=json"
_SCHEDULING = "/apis/scheduling.koordinator.sh/v1alpha1"
_ELECTS = {"leaderElection": {"leaderElect": True}}
_NAMES = count()
_CLOCK = SystemClock()  # agrees with the times in the logs


@dataclass(frozen=True, slots=True)
class Component:
    """Start of a replica, request for a decision, and check whether it was made."""

    start: Callable[[ControlPlane, str], KoordProcess]
    path: str
    request: Callable[[str], dict[str, Any]]
    decided_path: str
    is_decided: Callable[[dict[str, Any]], bool]


def _scheduler(cluster: ControlPlane, name: str) -> KoordProcess:
    return SchedulerProcess(cluster, _ELECTS, name=name, flags=[_JSON])


def _manager(cluster: ControlPlane, name: str) -> KoordProcess:
    return ManagerProcess(cluster, ["--webhook-port=0", _JSON], name=name, elects=True)


def _descheduler(cluster: ControlPlane, name: str) -> KoordProcess:
    profiles = {"profiles": [{"pluginConfig": [{"name": "MigrationController", "args": {}}]}]}
    return DeschedulerProcess(cluster, {**_ELECTS, **profiles}, name=name, flags=[_JSON])


def _job(name: str) -> dict[str, Any]:
    """Return a job for a pod that does not exist, which fails at once."""
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": name},
        "spec": {"podRef": {"namespace": "default", "name": "absent"}, "mode": "EvictDirectly"},
    }


COMPONENTS = {
    "scheduler": Component(
        _scheduler,
        "/api/v1/namespaces/default/pods",
        pod,
        "/api/v1/namespaces/default/pods",
        lambda pod: bool(pod["spec"].get("nodeName")),
    ),
    "manager": Component(
        _manager, "/api/v1/nodes", node, "/apis/slo.koordinator.sh/v1alpha1/nodeslos", bool
    ),
    "descheduler": Component(
        _descheduler,
        f"{_SCHEDULING}/podmigrationjobs",
        _job,
        f"{_SCHEDULING}/podmigrationjobs",
        lambda job: job.get("status", {}).get("phase") == "Failed",
    ),
}


def _measure(component: Component) -> Callable[[float], dict[str, Any]]:
    def run(scale: float) -> dict[str, Any]:
        network.enter()
        with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as cluster:
            install(cluster)
            cluster.kubectl("create", "namespace", NAMESPACE)
            nodes, pods = max(int(NODES * scale), 2), int(PODS * scale)
            made = (("POST", "/api/v1/nodes", node(f"n{it}", cpu="64")) for it in range(nodes))
            send(cluster.api, made)
            placed = (
                ("POST", "/api/v1/namespaces/default/pods", _placed(it, nodes))
                for it in range(pods)
            )
            send(cluster.api, placed)
            durations: dict[str, Any] = {}
            with _replicas(cluster, component) as (leader, other):
                durations |= _until_decided(cluster, component, "kill -9", leader.kill, other)
            with _replicas(cluster, component) as (leader, other):
                stop = lambda it=leader: it.signal(signal.SIGTERM)  # noqa: E731
                durations |= _until_decided(cluster, component, "SIGTERM", stop, other)
            with _replicas(cluster, component) as (leader, other):
                cluster.stop_apiserver()
                time.sleep(OUTAGE_S)
                cluster.start_apiserver()
                durations |= _until_decided(
                    cluster, component, "outage", lambda: None, leader, other
                )
        return durations

    return run


def _placed(number: int, nodes: int) -> dict[str, Any]:
    made = pod(f"old-{number}")
    made["spec"]["nodeName"] = f"n{number % nodes}"
    return made


@contextmanager
def _replicas(cluster: ControlPlane, component: Component) -> Iterator[list[KoordProcess]]:
    """Run two replicas, the leader first, until a decision of theirs has been seen."""
    replicas = [component.start(cluster, f"replica-{next(_NAMES)}") for _ in range(2)]
    try:
        for each in replicas:
            each.start()
            eventually(lambda it=each: _moment(it, "cluster listed"), _PATIENCE_S)  # type: ignore[misc]
        replicas.sort(key=lambda it: _moment(it, "leading") == 0)
        _wait_for_decision(cluster, component, _ask(cluster, component))
        yield replicas
    finally:
        for each in replicas:
            each.kill()


def _until_decided(
    cluster: ControlPlane,
    component: Component,
    failure: str,
    fail: Callable[[], object],
    *left: KoordProcess,
) -> dict[str, Any]:
    began_s = _CLOCK.now_s()
    fail()
    decided_s = _wait_for_decision(cluster, component, _ask(cluster, component))
    led = [(led_s, it) for it in left if (led_s := _moment(it, "leading")) > began_s - OUTAGE_S]
    led_s, leader = max(led, key=lambda each: each[0], default=(began_s, left[0]))
    listed_s = max(_moment(leader, "cluster listed"), led_s)
    return {
        f"{failure}: s to a decision": round(decided_s - began_s, 2),
        f"{failure}: lease, lists, decision": ", ".join(
            f"{max(took_s, 0.0):.2f}"
            for took_s in (led_s - began_s, listed_s - led_s, decided_s - listed_s)
        ),
    }


def _ask(cluster: ControlPlane, component: Component) -> str:
    name = f"new-{next(_NAMES)}"
    eventually(lambda: _is_made(cluster, component, name), _PATIENCE_S)
    return name


def _is_made(cluster: ControlPlane, component: Component, name: str) -> bool:
    try:
        cluster.api.request("POST", component.path, component.request(name))
    except ApiError as error:
        return error.status == 409
    return True


def _wait_for_decision(cluster: ControlPlane, component: Component, name: str) -> float:
    """Return when the decision about an object was seen, in seconds since the epoch."""

    def is_decided() -> bool:
        try:
            manifest = cluster.api.request("GET", f"{component.decided_path}/{name}")
        except ApiError:
            return False
        return component.is_decided(manifest)

    eventually(is_decided, _PATIENCE_S)
    return _CLOCK.now_s()


def _moment(process: KoordProcess, message: str) -> float:
    """Return when a process last logged a message, in seconds since the epoch; 0 if never."""
    moment_s = 0.0
    for line in process.log.read_text().splitlines():
        if line.startswith("{") and (entry := json.loads(line))["msg"] == message:
            moment_s = entry["ts"] / 1e3
    return moment_s


BENCHMARKS = {
    f"recovery_{name}": Benchmark(
        f"recovery of the {name}: {NODES} nodes, {PODS} pods, a standby, lease 15 s",
        "kill -9 <= lease + 1 s, SIGTERM <= 1 s, API server back <= 2 s",
        _measure(component),
    )
    for name, component in COMPONENTS.items()
}
