"""Age: two replicas of each component on a real API server, disturbed while objects pass.

Each round creates one object of every kind under new names, waits for the decisions about them, and
deletes them.  Between the rounds one disturbance after the other happens.  At the end every process
has its first pid, no pod was seen on two nodes, and resident memory may be a tenth more than at a
tenth of the way.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.e2e import network
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.fleet import node, pod
from tests.e2e.koord_process import KoordProcess
from tests.e2e.manager_process import NAMESPACE
from tests.e2e.real_node.colocation import install
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness, overcommitted
from tests.soak.disturbances import Disturbances, Replicas, start_replicas

HOURS_S = 8 * 3600.0
ALLOWED = 1.1  # of the memory at a tenth of the way
PODS = 20  # per round, besides a gang and a large pod
_PATIENCE_S = 120.0  # after a disturbance: a lease, lists and backoff on a busy machine
_LARGE = 200_000  # characters of an annotation
_SIGS = "/apis/scheduling.sigs.k8s.io/v1alpha1"
_KOORDINATOR = "/apis/scheduling.koordinator.sh/v1alpha1"
_SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
_CLAIMS = "/apis/resource.k8s.io/v1"


@dataclass(slots=True)
class Course:
    """Result of a soak: resident MiB of each process over time, and the time of each round."""

    rounds: int = 0
    seconds: list[float] = field(default_factory=list)
    mib: dict[str, list[float]] = field(default_factory=dict)
    disturbances: list[str] = field(default_factory=list)

    def growth(self) -> dict[str, float]:
        """Return memory at the end divided by memory at a tenth of the way, by process."""
        return {name: each[-1] / each[len(each) // 10] for name, each in self.mib.items()}


def run(cluster: ControlPlane, seconds: float, least_rounds: int = 0) -> Course:
    """Pass rounds for so many seconds, and at least so many of them, on an empty cluster.

    Raises AssertionError if a decision is missing, or if an invariant does not hold at the end.
    """
    course = Course()
    with ExitStack() as cleanup:
        cluster.kubectl("create", "namespace", NAMESPACE)
        for number in range(4):
            cluster.api.request("POST", "/api/v1/nodes", node(f"kept-{number}", cpu="16"))
        replicas = start_replicas(cluster, cleanup)
        witness = cleanup.enter_context(Witness(cluster.api))
        try:
            for each in replicas.all:
                eventually(lambda it=each: it.get("/readyz") == "ok", _PATIENCE_S)  # type: ignore[misc]
            _pass_rounds(cluster, replicas, course, seconds, least_rounds)
            witness.check_nobody_moved()
            assert overcommitted(cluster.api) == {}
            replicas.check_alive()
        except BaseException:
            for each in replicas.all:
                sys.stderr.write(f"{each.log.name}\n{each.last_words(40)}\n")
            raise
    return course


def _pass_rounds(
    cluster: ControlPlane,
    replicas: Replicas,
    course: Course,
    seconds: float,
    least_rounds: int,
) -> None:
    disturbances = cycle(Disturbances(cluster, replicas).all())
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s or course.rounds < least_rounds:
        began_s = time.monotonic()
        _Round(cluster, course.rounds).run()
        course.rounds += 1
        course.seconds.append(time.monotonic() - began_s)
        for each in replicas.all:
            course.mib.setdefault(each.log.stem, []).append(_resident_mib(each))
        disturb = next(disturbances)
        course.disturbances.append(disturb.__name__)
        disturb()
    _Round(cluster, course.rounds).run()


class _Round:
    """Objects of one round, in a namespace of their own."""

    def __init__(self, cluster: ControlPlane, number: int) -> None:
        self._api, self._own = cluster.api, f"round-{number}"
        self._pods = f"/api/v1/namespaces/{self._own}/pods"
        self._created: list[str] = []

    def run(self) -> None:
        """Create, wait for all decisions, delete."""
        own = self._own
        self._create("/api/v1/namespaces", {"metadata": {"name": own}})
        self._create("/api/v1/nodes", node(own, cpu="8"))
        for path, body in self._objects():
            self._create(path, body)
        eventually(self._are_bound, _PATIENCE_S)
        eventually(lambda: self._get(f"{_SLOS}/{own}"), _PATIENCE_S)
        eventually(lambda: self._phase(f"absent-{own}") == "Failed", _PATIENCE_S)
        eventually(lambda: self._phase(f"late-{own}") == "Failed", _PATIENCE_S)
        for path in reversed(self._created):
            self._delete(path)
        eventually(lambda: not self._get(f"{_SLOS}/{own}"), _PATIENCE_S)

    def _objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        own = self._own
        for index in range(PODS):
            yield self._pods, pod(f"p{index}", cpu="10m")
        large = pod("large", cpu="10m")
        large["metadata"]["annotations"] = {"example.com/large": "x" * _LARGE}
        yield self._pods, large
        gang = {
            "metadata": {"name": "gang"},
            "spec": {"minMember": 3, "scheduleTimeoutSeconds": 60},
        }
        yield f"{_SIGS}/namespaces/{own}/podgroups", _typed(gang, "PodGroup")
        for index in range(3):
            member = pod(f"member-{index}", cpu="10m")
            member["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "gang"}
            yield self._pods, member
        quota = {"metadata": {"name": own}, "spec": {"max": {"cpu": "4"}, "min": {"cpu": "1"}}}
        yield f"{_SIGS}/namespaces/{own}/elasticquotas", _typed(quota, "ElasticQuota")
        requests = [{"name": "r", "exactly": {"deviceClassName": f"absent-{own}"}}]
        claim = {"metadata": {"name": "claim"}, "spec": {"devices": {"requests": requests}}}
        yield f"{_CLAIMS}/namespaces/{own}/resourceclaims", claim
        yield f"{_KOORDINATOR}/podmigrationjobs", self._job(f"absent-{own}", "absent")
        # No scheduler binds its reservation: its time-out ends it.
        late = self._job(f"late-{own}", "p0")
        late["spec"] |= {"mode": "ReservationFirst", "ttl": "5s"}
        yield f"{_KOORDINATOR}/podmigrationjobs", late

    def _job(self, name: str, pod_name: str) -> dict[str, Any]:
        spec = {"podRef": {"namespace": self._own, "name": pod_name}, "mode": "EvictDirectly"}
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "PodMigrationJob",
            "metadata": {"name": name},
            "spec": spec,
        }

    def _create(self, path: str, body: dict[str, Any]) -> None:
        self._api.request("POST", path, body)
        self._created.append(f"{path}/{body['metadata']['name']}")

    def _delete(self, path: str) -> None:
        try:
            self._api.request("DELETE", path, {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._api.request("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return found

    def _are_bound(self) -> bool:
        found = self._api.request("GET", self._pods)["items"]
        return len(found) == PODS + 4 and all(it["spec"].get("nodeName") for it in found)

    def _phase(self, job: str) -> str:
        found = self._get(f"{_KOORDINATOR}/podmigrationjobs/{job}") or {}
        return str(found.get("status", {}).get("phase", ""))


def _typed(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": kind, **body}


def _resident_mib(process: KoordProcess) -> float:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def soak(scale: float) -> bool:
    """Run for a share of eight hours; print a table; return whether memory stayed in bounds."""
    network.enter()
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as cluster:
        install(cluster)
        course = run(cluster, HOURS_S * scale, least_rounds=20)
    table = Table("process", "rounds", "MiB at 1/10", "MiB at the end", "ratio", box=None)
    for name, ratio in course.growth().items():
        mib = course.mib[name]
        first = mib[len(mib) // 10]
        row = (name, str(course.rounds), f"{first:.0f}", f"{mib[-1]:.0f}", f"{ratio:.2f}")
        table.add_row(*row)
    Console().print(table)
    return all(ratio <= ALLOWED for ratio in course.growth().values())
