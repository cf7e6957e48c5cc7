"""Claims that wait for their first pod get a volume where the pod can run."""

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.session.manifests import (
    Manifest,
    claim,
    having,
    local_volume,
    mounted,
    node,
    on_nodes,
    pod,
    preferred_node_affinity,
    storage_class,
)
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually

LOCAL = storage_class("local")
CLOUD = storage_class("cloud", "provisioner.test.example")
SELECTED_NODE = "volume.kubernetes.io/selected-node"


@pytest.fixture
def controllers(controlplane: ControlPlane) -> None:
    """Run who binds claims and volumes."""
    controlplane.start_controller_manager(("persistentvolume-binder-controller",))


@pytest.mark.usefixtures("controllers")
def test_a_disk_of_a_node_decides_where_the_pod_runs(
    controlplane: ControlPlane, user: User
) -> None:
    """The smallest disk that is enough is taken, and the claim is bound before the pod is."""
    user.apply(
        LOCAL,
        *(node(f"n{i}") for i in range(3)),
        local_volume("small", "n0", "1Gi", "local"),
        local_volume("large", "n1", "100Gi", "local"),
        local_volume("enough", "n1", "10Gi", "local"),
        claim("data", "5Gi", "local"),
    )
    before = user.now()

    user.apply(pod("database", volumes=mounted("data")))

    assert user.node_of("database") == "n1"
    bound = user.get("persistentvolumeclaims", "data")
    assert (bound["status"]["phase"], bound["spec"]["volumeName"]) == ("Bound", "enough")
    volume = controlplane.api.request("GET", "/api/v1/persistentvolumes/enough")
    reference = volume["spec"]["claimRef"]
    del reference["resourceVersion"]
    assert reference == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": user.namespace,
        "name": "data",
        "uid": bound["metadata"]["uid"],
    }
    claim_bound = first(user.history("persistentvolumeclaims", "data", before), is_bound)
    pod_bound = first(user.history("pods", "database", before), lambda it: "nodeName" in it["spec"])
    assert claim_bound < pod_bound


def is_bound(claim: Manifest) -> bool:
    """Whether a claim has its volume for good; its phase, for people, is written after that."""
    return "pv.kubernetes.io/bind-completed" in claim["metadata"].get("annotations", {})


def first(states: list[Manifest], holds: Callable[[Manifest], bool]) -> int:
    """Return when it first held, on etcd's clock, which counts the writes of all kinds."""
    return min(int(it["metadata"]["resourceVersion"]) for it in states if holds(it))


@pytest.mark.usefixtures("controllers")
def test_no_disk_is_given_twice(user: User) -> None:
    """Of three simultaneous pods two get a disk each, and the third gets the reason."""
    user.apply(
        LOCAL,
        node("n0"),
        node("n1"),
        local_volume("disk-0", "n0", "10Gi", "local"),
        local_volume("disk-1", "n1", "10Gi", "local"),
        *(claim(f"data-{i}", "5Gi", "local") for i in range(3)),
    )
    user.apply(*(pod(f"db-{i}", volumes=mounted(f"data-{i}")) for i in range(3)))

    eventually(lambda: sorted(placed(user)) == ["n0", "n1"])
    waiting = next(it for it in ("db-0", "db-1", "db-2") if user.is_pending(it))
    user.wait_for_refusal(waiting, "2 node(s) didn't find available persistent volumes to bind")

    user.apply(local_volume("disk-2", "n1", "10Gi", "local"))

    assert user.node_of(waiting) == "n1"


def placed(user: User) -> list[str]:
    return [it["spec"]["nodeName"] for it in user.get("pods") if "nodeName" in it["spec"]]


def test_a_pod_waits_for_its_claim(user: User) -> None:
    """A claim that is missing is named."""
    user.apply(LOCAL, node("n0"), local_volume("disk", "n0", "10Gi", "local"))
    user.apply(pod("early", volumes=mounted("data")))

    assert user.refusal_of("early")["message"].startswith(
        '0/1 nodes are available: persistentvolumeclaim "data" not found. '
    )


class Provisioner:
    """Makes volumes for claims as an external provisioner does, in a thread."""

    def __init__(self, controlplane: ControlPlane, user: User) -> None:
        self.requested_nodes: list[str] = []  # the nodes for which volumes were asked
        self.refused: set[str] = set()  # nodes for which there is no more room
        self._api, self._user = controlplane.api, user
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="provisioner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.05):
                for it in self._user.get("persistentvolumeclaims"):
                    self._serve(it)
        except Exception as error:  # noqa: BLE001 -- raised by stop
            self._failure = error

    def _serve(self, asking: Manifest) -> None:
        meta = asking["metadata"]
        wanted = meta.get("annotations", {}).get(SELECTED_NODE, "")
        volume = f"pvc-{meta['uid']}"
        if not wanted or asking["status"]["phase"] == "Bound":
            return
        if wanted in self.refused:
            self.requested_nodes.append(wanted)
            none = {"metadata": {"annotations": {SELECTED_NODE: None}}}
            path = self._user.path("persistentvolumeclaims", meta["name"])
            self._api.request("PATCH", path, none, content_type="application/merge-patch+json")
            return
        if not self.requested_nodes or self.requested_nodes[-1] != wanted:
            self.requested_nodes.append(wanted)
            storage = asking["spec"]["resources"]["requests"]["storage"]
            made = local_volume(volume, wanted, storage, "cloud")
            made["spec"]["claimRef"] = {key: meta[key] for key in ("namespace", "name", "uid")}
            self._api.request("POST", "/api/v1/persistentvolumes", made)


@pytest.fixture
def provisioner(controlplane: ControlPlane, user: User) -> Iterator[Provisioner]:
    playing = Provisioner(controlplane, user)
    playing.start()
    yield playing
    playing.stop()


@pytest.mark.usefixtures("controllers")
def test_volume_is_provisioned_on_the_node_of_the_pod(user: User, provisioner: Provisioner) -> None:
    """The claim names the node; the pod is bound when the volume is there."""
    user.apply(CLOUD, node("n0", "1"), node("n1", "4"), claim("data", "5Gi", "cloud"))

    user.apply(pod("database", "2", volumes=mounted("data")))

    assert user.node_of("database") == "n1"
    assert provisioner.requested_nodes == ["n1"]
    bound = user.get("persistentvolumeclaims", "data")
    assert bound["metadata"]["annotations"][SELECTED_NODE] == "n1"
    assert bound["status"]["phase"] == "Bound"


@pytest.mark.usefixtures("controllers")
def test_another_node_is_tried_where_no_volume_can_be_made(
    user: User, provisioner: Provisioner
) -> None:
    """The provisioner takes back the node; the pod goes where the driver has room."""
    provisioner.refused.add("n0")
    user.apply(
        CLOUD,
        node("n0"),
        node("n1"),
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": CLOUD["provisioner"]},
            "spec": {"storageCapacity": True},
        },
        capacity("n0", "100Gi"),
        capacity("n1", "100Gi"),
        claim("data", "5Gi", "cloud"),
    )
    user.apply(
        pod(
            "database",
            volumes=mounted("data"),
            affinity=preferred_node_affinity(having("kubernetes.io/hostname", "n0")),
        )
    )
    eventually(lambda: "n0" in provisioner.requested_nodes)

    user.apply(capacity("n0", "1Gi"))

    assert user.node_of("database", within_s=30) == "n1"


def capacity(node_name: str, free: str) -> Manifest:
    (term,) = on_nodes(node_name)["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": f"cloud-{node_name}"},
        "storageClassName": "cloud",
        "nodeTopology": {"matchExpressions": [expression]},
        "capacity": free,
    }
