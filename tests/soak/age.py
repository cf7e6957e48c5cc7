"""Age: two replicas of each component on a real API server, disturbed while objects pass.

Two node agents run beside them, on machines of files.  Each round creates one object of every kind
under new names, waits for the decisions about them, and deletes them.  Between the rounds one
disturbance after the other happens.  At the end every process has its first pid, no pod was seen on
two nodes, and anonymous memory may be a tenth more than at a tenth of the way, but not before each
disturbance has happened once.  Threads, open files and the watches that the API server serves are
counted after each round, too.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.e2e import network
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.fleet import node, pod
from tests.e2e.koord_process import KoordProcess
from tests.e2e.koordlet.node_agents import BoundPod
from tests.e2e.manager_process import NAMESPACE
from tests.e2e.real_node.colocation import install
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness, overcommitted
from tests.soak.disturbances import Disturbances, Replicas, start_replicas
from tests.soak.usage import Course, Usage

HOURS_S = 8 * 3600.0
ALLOWED = 1.1  # of the memory at a tenth of the way
PODS = 20  # per round, besides a gang and a large pod
_PATIENCE_S = 120.0  # after a disturbance: a lease, lists and backoff on a busy machine
_LARGE = 200_000  # characters of an annotation
_SIGS = "/apis/scheduling.sigs.k8s.io/v1alpha1"
_KOORDINATOR = "/apis/scheduling.koordinator.sh/v1alpha1"
_SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
_CLAIMS = "/apis/resource.k8s.io/v1"
_AGENT_PODS = "/api/v1/namespaces/default/pods"
#: Requests that the API server is serving, such as watches, by verb and kind.
_SERVED = "apiserver_longrunning_requests{"


def run(
    cluster: ControlPlane, seconds: float, least_rounds: int = 0, rest_s: float = 0.0
) -> Course:
    """Pass rounds for so many seconds, and at least so many of them, on an empty cluster.

    ``rest_s`` is a pause after each disturbance.

    Raises AssertionError if a decision is missing, or if an invariant does not hold at the end.
    """
    course = Course()
    with ExitStack() as cleanup:
        cluster.kubectl("create", "namespace", NAMESPACE)
        for number in range(4):
            cluster.api.request("POST", "/api/v1/nodes", node(f"kept-{number}", cpu="16"))
        replicas = start_replicas(cluster, cleanup)
        witness = cleanup.enter_context(Witness(cluster.api))
        disturbances = cycle(Disturbances(cluster, replicas).all())
        try:
            for each in replicas.all:
                eventually(lambda it=each: it.get("/readyz") == "ok", _PATIENCE_S)  # type: ignore[misc]
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s or course.rounds < least_rounds:
                _pass_round(cluster, replicas, course, next(disturbances))
                time.sleep(rest_s)
            _Round(cluster, replicas, course.rounds).run()
            witness.check_no_pod_moved()
            assert overcommitted(cluster.api) == {}
            replicas.check_alive()
        except BaseException:
            for each in replicas.all:
                sys.stderr.write(f"{each.log.name}\n{each.last_words(40)}\n")
            raise
    return course


def _pass_round(
    cluster: ControlPlane, replicas: Replicas, course: Course, disturb: Callable[[], None]
) -> None:
    """Pass a round, measure, and disturb."""
    began_s = time.monotonic()
    _Round(cluster, replicas, course.rounds).run()
    course.rounds += 1
    course.seconds.append(time.monotonic() - began_s)
    course.watches.append(_watches(cluster))
    for each in replicas.all:
        course.usage.setdefault(each.log.stem, []).append(_usage(each))
    course.disturbances.append(disturb.__name__)
    disturb()


class _Round:
    """Objects of one round, in a namespace of their own."""

    def __init__(self, cluster: ControlPlane, replicas: Replicas, number: int) -> None:
        self._api, self._own = cluster.api, f"round-{number}"
        self._agents = replicas.agents
        self._pods = f"/api/v1/namespaces/{self._own}/pods"
        self._created: list[str] = []

    def run(self) -> None:
        """Create, wait for all decisions, delete."""
        own = self._own
        self._create("/api/v1/namespaces", {"metadata": {"name": own}})
        self._create("/api/v1/nodes", node(own, cpu="8"))
        for path, body in self._objects():
            self._create(path, body)
        on_agents = [BoundPod(each, self._api, _AGENT_PODS) for each in self._agents]
        eventually(self._are_bound, _PATIENCE_S)
        eventually(lambda: self._get(f"{_SLOS}/{own}"), _PATIENCE_S)
        eventually(lambda: self._phase(f"absent-{own}") == "Failed", _PATIENCE_S)
        eventually(lambda: self._phase(f"late-{own}") == "Failed", _PATIENCE_S)
        eventually(lambda: all(each.has_its_cpus() for each in on_agents), _PATIENCE_S)
        for each in on_agents:
            each.end()
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
            manifest: dict[str, Any] = self._api.request("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return manifest

    def _are_bound(self) -> bool:
        items = self._api.request("GET", self._pods)["items"]
        return len(items) == PODS + 4 and all(it["spec"].get("nodeName") for it in items)

    def _phase(self, job: str) -> str:
        manifest = self._get(f"{_KOORDINATOR}/podmigrationjobs/{job}") or {}
        return str(manifest.get("status", {}).get("phase", ""))


def _typed(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": kind, **body}


def _usage(process: KoordProcess) -> Usage:
    folder = Path(f"/proc/{process.pid}")
    status = dict(it.split(":", 1) for it in (folder / "status").read_text().splitlines())
    mib = int(status["RssAnon"].split()[0]) / 1024
    threads, files = (sum(1 for _ in (folder / each).iterdir()) for each in ("task", "fd"))
    return Usage(mib, threads, files)


def _watches(cluster: ControlPlane) -> int:
    lines = cluster.api.request("GET", "/metrics").splitlines()
    served = [line for line in lines if line.startswith(_SERVED) and 'verb="WATCH"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in served)


def soak(scale: float, rest_s: float = 0.0) -> bool:
    """Run for a share of eight hours; print a table; return whether memory stayed in bounds."""
    network.enter()
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as cluster:
        install(cluster)
        course = run(cluster, HOURS_S * scale, least_rounds=20, rest_s=rest_s)
    print_course(course)
    return all(ratio <= ALLOWED for ratio in course.growth().values())


def print_course(course: Course) -> None:
    """Print usage in the first round that counts and at the end."""
    table = Table("process", "MiB", "at the end", "ratio", "threads", "files", box=None)
    for name, ratio in course.growth().items():
        first, last = course.usage[name][course.first], course.usage[name][-1]
        table.add_row(
            name,
            f"{first.mib:.0f}",
            f"{last.mib:.0f}",
            f"{ratio:.2f}",
            f"{first.threads} → {last.threads}",
            f"{first.files} → {last.files}",
        )
    console = Console()
    console.print(f"{course.rounds} rounds; usage in round {course.first + 1}, and at the end")
    console.print(table)
    for what, of_round in (("watches", course.watches), ("seconds of a round", course.seconds)):
        console.print(f"{what}: {of_round[course.first]:.0f} → {of_round[-1]:.0f}")
