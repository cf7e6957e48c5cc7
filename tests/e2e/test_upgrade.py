"""Rolling upgrade under load, there and back: replicas of two releases side by side."""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any, Self

import pytest
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.descheduler_process import DeschedulerProcess
from tests.e2e.fleet import create, device, gpu_node, gpu_pod, pod
from tests.e2e.koord_process import KOORD, KoordProcess
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.old_release import old_koord
from tests.e2e.ready_backends import ReadyBackends
from tests.e2e.replicas import Replica
from tests.e2e.session.test_manager import CONFIGS, HOOKS, MERGE, SLOS, config, hook
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness, overcommitted, overgiven_gpus

pytestmark = pytest.mark.slow

NODES, GPUS = 10, 8
PAUSE_S = 0.1  # between two pods
PATIENCE_S = 180.0
MOST_PODS = 150  # at a time
NEWER = "scheduling.koordinator.sh/of-a-newer-release"
KEPT = '{"version":2,"kept":["as","it","is"]}'
JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
SIGS = "/apis/scheduling.sigs.k8s.io/v1alpha1"
COSCHEDULING = {"enabled": [{"name": "Coscheduling"}]}
PROFILE = {
    "plugins": {
        "multiPoint": {"enabled": [{"name": "DeviceShare"}, {"name": "ElasticQuota"}]},
        "preEnqueue": COSCHEDULING,
        "permit": COSCHEDULING,
    }
}
_ELECTION = {
    "leaderElect": True,
    "leaseDuration": "5s",
    "renewDeadline": "3.5s",
    "retryPeriod": "0.5s",
}
MOVES = {
    "leaderElection": _ELECTION,
    "profiles": [{"pluginConfig": [{"name": "MigrationController", "args": {}}]}],
}


class Load:
    """Creates pods all the time, each third with half a GPU, and deletes the oldest bound ones."""

    def __init__(self, api: Endpoint, namespace: str, witness: Witness) -> None:
        self.refused: list[str] = []
        self.created = 0
        self._api, self._namespace, self._witness = api, namespace, witness
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._pods: deque[str] = deque()
        self._over = api.connect()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._over.close()

    def _work(self) -> None:
        over = self._over
        for number in count():
            if self._is_over.wait(PAUSE_S):
                return
            name = f"p{number}"
            made = gpu_pod(name, 50) if number % 3 == 0 else pod(name, cpu="10m")
            made["metadata"] |= {"labels": {"app": "load"}, "annotations": {NEWER: KEPT}}
            try:
                self._api.request("POST", self._path, made, over=over)
                self.created += 1
                self._pods.append(name)
                oldest = self._pods[0]
                if len(self._pods) > MOST_PODS and self._is_bound(oldest):
                    self._api.request("DELETE", f"{self._path}/{oldest}", over=over)
                    self._pods.popleft()
            except ApiError as refusal:
                self.refused.append(str(refusal))

    def _is_bound(self, name: str) -> bool:
        return bool(self._witness.bound.get(f"{self._namespace}/{name}"))


class Fleet:
    """Two replicas of each component, each of one of two releases."""

    def __init__(self, controlplane: ControlPlane, cleanup: ExitStack) -> None:
        self.backends = cleanup.enter_context(ReadyBackends().serving())
        self._controlplane, self._cleanup = controlplane, cleanup
        self._numbers = count()
        self.running: dict[str, list[KoordProcess]] = {
            "scheduler": [],
            "manager": [],
            "descheduler": [],
        }

    def add(self, component: str, program: Sequence[str]) -> None:
        """Start a replica."""
        name = f"{component}-{next(self._numbers)}"
        made: KoordProcess
        if component == "scheduler":
            made = Replica(self._controlplane, name, profile=PROFILE, program=program)
        elif component == "manager":
            flags = ["--webhook-host=127.0.0.1", "--shutdown-delay-duration=2s"]
            made = ManagerProcess(
                self._controlplane, flags, name=name, elects=True, program=program
            )
        else:
            made = DeschedulerProcess(self._controlplane, MOVES, name=name, program=program)
        self._cleanup.callback(made.kill)
        made.start(wait=False)
        self.running[component].append(made)
        self._note_managers()

    def wait(self) -> None:
        """Wait until every replica is ready."""
        for each in (it for replicas in self.running.values() for it in replicas):
            eventually(lambda it=each: it.get("/readyz") == "ok", PATIENCE_S)  # type: ignore[misc]

    def replace_oldest(self, component: str, program: Sequence[str]) -> None:
        """Start a replica of another release, then stop the replica that has run longest."""
        self.add(component, program)
        self.wait()
        oldest = self.running[component].pop(0)
        assert oldest.stop() == 0, oldest.last_words()
        self._note_managers()

    def _note_managers(self) -> None:
        managers = [it for it in self.running["manager"] if isinstance(it, ManagerProcess)]
        self.backends.managers = managers


@pytest.fixture
def fleet(controlplane: ControlPlane) -> Iterator[Fleet]:
    """Run the old release of every component."""
    old = old_koord()
    controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with ExitStack() as cleanup:
        made = Fleet(controlplane, cleanup)
        for component in made.running:
            for _ in range(2):
                made.add(component, old)
        made.wait()
        yield made


@pytest.fixture
def witness(controlplane: ControlPlane) -> Iterator[Witness]:
    """Sees every pod get its node."""
    with Witness(controlplane.api) as watching:
        yield watching


def marked(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the annotation of a newer release."""
    manifest["metadata"].setdefault("annotations", {})[NEWER] = KEPT
    return manifest


def typed(
    kind: str, name: str, spec: dict[str, Any], group: str = "scheduling.sigs.k8s.io"
) -> dict[str, Any]:
    """Return an object of version v1alpha1."""
    version = f"{group}/v1alpha1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def annotation(api: Endpoint, path: str) -> str:
    metadata: dict[str, Any] = api.request("GET", path)["metadata"]
    return str(metadata.get("annotations", {}).get(NEWER, ""))


def add_objects(api: Endpoint, namespace: str) -> list[str]:
    """Create one object of each kind that components write to; return their paths."""
    nodes = [marked(gpu_node(f"n{it}", GPUS)) for it in range(NODES)]
    for each in nodes:  # the webhook translates a part of a GPU into it
        each["status"]["allocatable"]["koordinator.sh/gpu.shared"] = str(100 * GPUS)
    create(api, "/api/v1/nodes", nodes)
    create(api, DEVICES, [marked(device(f"n{it}", GPUS)) for it in range(NODES)])
    quota = typed("ElasticQuota", "team", {"max": {"cpu": "4"}, "min": {"cpu": "1"}})
    gang = typed("PodGroup", "gang", {"minMember": 2})
    api.request("POST", f"{SIGS}/namespaces/{namespace}/elasticquotas", marked(quota))
    api.request("POST", f"{SIGS}/namespaces/{namespace}/podgroups", marked(gang))
    for index in range(2):
        member = marked(pod(f"member-{index}", cpu="10m"))
        member["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "gang"}
        api.request("POST", f"/api/v1/namespaces/{namespace}/pods", member)
    eventually(lambda: api.request("GET", f"{SLOS}/n0"))
    mark = {"metadata": {"annotations": {NEWER: KEPT}}}
    api.request("PATCH", f"{SLOS}/n0", mark, content_type=MERGE)
    return [
        "/api/v1/nodes/n0",
        f"{DEVICES}/n0",
        f"{SLOS}/n0",
        f"{SIGS}/namespaces/{namespace}/elasticquotas/team",
        f"{SIGS}/namespaces/{namespace}/podgroups/gang",
        f"/api/v1/namespaces/{namespace}/pods/member-0",
    ]


def register_webhook(api: Endpoint, port: int) -> None:
    """Have pods of the load reviewed; their creation fails without an answer."""
    url = f"https://127.0.0.1:{port}/mutate-pod"
    made = hook("mutating", "mpod-create.koordinator.sh", url, "pods", "app")
    listed = f"{HOOKS}/mutatingwebhookconfigurations"
    api.request("POST", listed, made)

    def is_trusted() -> bool:
        configuration = api.request("GET", f"{listed}/{made['metadata']['name']}")
        return all("caBundle" in each["clientConfig"] for each in configuration["webhooks"])

    eventually(is_trusted, PATIENCE_S)


def test_replacing_every_replica_by_another_release_interrupts_nothing(
    controlplane: ControlPlane, namespace: str, fleet: Fleet, witness: Witness
) -> None:
    """Old to new, and back: every pod is admitted and bound once, and no GPU is given twice.

    Annotations that no release knows yet survive the writes of both; NodeSLO and jobs are written
    by each release in turn.
    """
    api = controlplane.api
    kept = add_objects(api, namespace)
    api.request("POST", CONFIGS, config(resource_threshold={"clusterStrategy": {"enable": True}}))
    register_webhook(api, fleet.backends.port)
    new = (str(KOORD),)
    turns = count(1)

    def expect_writes_of_leaders() -> None:
        """Change what manager and descheduler have to react to."""
        turn = next(turns)
        percent = 40 + turn
        strategy = {"enable": True, "cpuSuppressThresholdPercent": percent}
        changed = config(resource_threshold={"clusterStrategy": strategy})
        api.request("PATCH", f"{CONFIGS}/slo-controller-config", changed, content_type=MERGE)
        spec = {"podRef": {"namespace": namespace, "name": "absent"}, "mode": "EvictDirectly"}
        job = typed("PodMigrationJob", f"job-{turn}", spec, "scheduling.koordinator.sh")
        api.request("POST", JOBS, marked(job))
        kept.append(f"{JOBS}/job-{turn}")

        def is_written() -> bool:
            slo = api.request("GET", f"{SLOS}/n0")["spec"]["resourceUsedThresholdWithBE"]
            done = api.request("GET", f"{JOBS}/job-{turn}").get("status", {}).get("phase")
            return (slo["cpuSuppressThresholdPercent"], done) == (percent, "Failed")

        eventually(is_written, PATIENCE_S)

    with Load(api, namespace, witness) as load:
        expect_writes_of_leaders()
        for release in (new, old_koord()):
            for component in fleet.running:
                before = load.created
                fleet.replace_oldest(component, release)
                expect_writes_of_leaders()
                fleet.replace_oldest(component, release)
                assert load.created > before
            expect_writes_of_leaders()
    assert load.refused == []

    def unbound() -> list[str]:
        items = api.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return [it["metadata"]["name"] for it in items if not it["spec"].get("nodeName")]

    eventually(lambda: not unbound(), PATIENCE_S)
    witness.check_no_pod_moved()
    assert len(witness.nodes_of) == load.created + 2
    assert overgiven_gpus(api) == {}
    assert overcommitted(api) == {}
    items = api.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    assert {it["metadata"]["annotations"][NEWER] for it in items} == {KEPT}
    assert {path: annotation(api, path) for path in kept} == dict.fromkeys(kept, KEPT)
