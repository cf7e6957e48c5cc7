"""The same pods through kube-scheduler, through koord scheduler and through a bare client.

In each round all three bind pods with equal specs, one after the other, on the same API server and
etcd and the same nodes, which nothing plays; the order rotates from round to round.  The two
schedulers have the stock profile and the same limits of requests, which neither reaches, and start
when all pods are pending.  The bare client (aiohttp, 64 requests in flight) sends nothing but
bindings.  When a pod was bound is read from its condition, which the server writes with the bind;
only whole seconds in the middle of a run count.  Everything shares one machine, so the ratios of a
round count, and of them the median.  Rates depend on what else the machine does; the CPU time that
contestant, API server and etcd need for a bind together hardly does, and bounds the rate of a
machine that does nothing else.  The time that a start with ten pods takes is not part of it.

kube-scheduler reads some of the nodes for each pod (``percentageOfNodesToScore``) and sends an
event for each bind at once; koord scheduler reads all nodes and sends most events when no binding
waits.  ``events`` is their number when the last pod was bound.
"""

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.controlplane import ControlPlane, ControlPlaneError, binaries
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.scheduler_process import SchedulerProcess

from benchmarks.benchmark import Benchmark
from benchmarks.cluster import NODES, PODS, Call, running_cluster, send

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
CLASSES = 200
POD_COUNT = 8_000
WARM_UP = 2_000
ROUNDS = 3
START_PODS = 10
PATIENCE_S = 900.0
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_TICKS = os.sysconf("SC_CLK_TCK")

#: Starts what binds the pods of its name; yields the CPU seconds of its process so far.
Contestant = Callable[[ControlPlane, int], AbstractContextManager[Callable[[], float]]]


def peers(scale: float) -> dict[str, Any]:
    """Return rates of binding, and the ratios of the schedulers and the bare client."""
    try:
        for program in PROGRAMS:
            binaries.find(program)
    except ControlPlaneError as missing:
        return {"skipped": str(missing)}
    pods = max(int(POD_COUNT * scale), 100)
    names = list(CONTESTANTS)
    results: dict[str, list[_Run]] = {name: [] for name in names}
    with running_cluster(NODES) as cluster:
        _run(cluster, "bare", max(int(WARM_UP * scale), 100))  # the first requests are slow
        start_s = {name: _run(cluster, name, START_PODS).cpu_s for name in names}
        for number in range(ROUNDS):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                results[name].append(_run(cluster, name, pods))
    for name in names:
        results[name] = [
            replace(run, bind_ms=(run.cpu_s - start_s[name]) / (pods - START_PODS) * 1e3)
            for run in results[name]
        ]
    return _summary(results)


@dataclass(frozen=True, slots=True)
class _Run:
    """The result of one contestant in one round."""

    rate: float  # binds in a second
    cpu_s: float  # of contestant, API server and etcd
    events: int
    bind_ms: float = 0.0  # of this time, for one bind, without the start


def _run(cluster: ControlPlane, name: str, pods: int) -> _Run:
    """Create pods, have the contestant bind them, and delete them and their events."""
    send(cluster.api, (("POST", PODS, _pod(i, name)) for i in range(pods)))
    servers = [cluster.programs[server].pid for server in ("kube-apiserver", "etcd")]
    before_s = sum(map(_cpu_s, servers))
    with CONTESTANTS[name](cluster, pods) as cpu_s:
        give_up = time.monotonic() + PATIENCE_S
        while _has_unbound(cluster.api, name):
            if time.monotonic() > give_up:
                raise TimeoutError(f"{name}: pods are not bound after {PATIENCE_S:.0f} s")
            time.sleep(1.0)
        spent_s = cpu_s() + sum(map(_cpu_s, servers)) - before_s
        run = _Run(_rate(cluster.api, name), spent_s, _event_count(cluster.api))
    for path in (PODS, EVENTS):
        send(cluster.api, [("DELETE", path, None)])
    return run


def _summary(results: dict[str, list[_Run]]) -> dict[str, Any]:
    def ratios(name: str, other: str, field: str) -> str:
        pairs = zip(results[name], results[other], strict=True)
        each = sorted(getattr(one, field) / getattr(two, field) for one, two in pairs)
        return f"{statistics.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f})"

    summary: dict[str, Any] = {
        "rate, koord to stock": ratios("koord", "stock", "rate"),
        "koord to bare": ratios("koord", "bare", "rate"),
        "stock to bare": ratios("stock", "bare", "rate"),
        "CPU of a bind, bare to koord": ratios("bare", "koord", "bind_ms"),
        "bare to stock": ratios("bare", "stock", "bind_ms"),
    }
    for name, runs in results.items():
        summary[f"{name} binds/s"] = ", ".join(f"{run.rate:.0f}" for run in runs)
        summary[f"{name} ms"] = ", ".join(f"{run.bind_ms:.2f}" for run in runs)
        summary[f"{name} events"] = round(statistics.median(run.events for run in runs))
    return summary


# -- contestants -----------------------------------------------------------------------------


def _configuration(name: str) -> dict[str, Any]:
    return {
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 100_000, "burst": 100_000},
        "profiles": [{"schedulerName": name}],
    }


@contextmanager
def _koord(cluster: ControlPlane, _pods: int) -> Iterator[Callable[[], float]]:
    with SchedulerProcess(cluster, _configuration("koord")) as process:
        yield partial(_cpu_s, process.pid)


@contextmanager
def _stock(cluster: ControlPlane, _pods: int) -> Iterator[Callable[[], float]]:
    kind = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    cluster.start_scheduler(kind | _configuration("stock"))
    try:
        yield partial(_cpu_s, cluster.programs["kube-scheduler"].pid)
    finally:
        cluster.stop_program("kube-scheduler")


@contextmanager
def _bare(cluster: ControlPlane, pods: int) -> Iterator[Callable[[], float]]:
    began_s = time.process_time()
    send(cluster.api, (_binding(i, i % NODES) for i in range(pods)))
    spent_s = time.process_time() - began_s
    yield lambda: spent_s


CONTESTANTS: dict[str, Contestant] = {"koord": _koord, "stock": _stock, "bare": _bare}


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


# -- objects ---------------------------------------------------------------------------------


def _pod(number: int, scheduler: str) -> dict[str, Any]:
    """Return a pod that differs from the one of another scheduler in names only."""
    kind = number * 37 % CLASSES
    requests = {"cpu": f"{100 + kind * 9}m", "memory": f"{128 + kind * 20}Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{scheduler}-{number:05}", "labels": {"scheduler": scheduler}},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        },
    }


def _binding(number: int, node: int) -> Call:
    name = f"bare-{number:05}"
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": f"n{node:05}"},
    }
    return "POST", f"{PODS}/{name}/binding", body


def _has_unbound(api: Endpoint, scheduler: str) -> bool:
    """Return whether a pod has no node: one short answer, unlike a list of all pods."""
    selectors = f"labelSelector=scheduler%3D{scheduler}&fieldSelector=spec.nodeName%3D"
    return bool(api.request("GET", f"{PODS}?{selectors}&limit=1")["items"])


def _event_count(api: Endpoint) -> int:
    answer = api.request("GET", f"{EVENTS}?limit=1")
    remaining: int = answer["metadata"].get("remainingItemCount", 0)
    return len(answer["items"]) + remaining


def _rate(api: Endpoint, scheduler: str) -> float:
    """Return how many pods were bound in a second, the first and the last one left out."""
    answer = api.request("GET", f"{PODS}?labelSelector=scheduler%3D{scheduler}")
    when = Counter(
        int(time.mktime(time.strptime(condition["lastTransitionTime"], "%Y-%m-%dT%H:%M:%SZ")))
        for pod in answer["items"]
        for condition in pod["status"].get("conditions", ())
        if condition["type"] == "PodScheduled" and condition["status"] == "True"
    )
    first, last = min(when), max(when)
    inner = sum(count for second, count in when.items() if first < second < last)
    return inner / (last - first - 1) if last - first > 1 else sum(when.values())


BENCHMARKS = {
    "peers": Benchmark(
        f"kube-apiserver, {NODES:,} nodes, {POD_COUNT:,} pods of {CLASSES} classes, in turn",
        "0.97 of a bare client",
        peers,
    )
}
