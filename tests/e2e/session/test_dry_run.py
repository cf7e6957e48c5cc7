"""``koord schedule --dry-run`` predicts decisions and changes nothing."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koord_process import KOORD
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.conftest import CONFIGURATION
from tests.e2e.session.manifests import (
    HOST,
    ZONE,
    Manifest,
    claim,
    local_volume,
    mounted,
    node,
    pod,
    priority_class,
    required_pod_affinity,
    storage_class,
)
from tests.e2e.session.user import User

WEB = {"app": "web"}
APART = required_pod_affinity("podAntiAffinity", WEB, HOST)
SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": WEB},
}
NODES = (
    *(node(f"a{i}", "4", labels={ZONE: "a"}) for i in range(3)),
    *(node(f"b{i}", "8", labels={ZONE: "b", "disk": "ssd"}) for i in range(2)),
    node("tainted", "64", taint="dedicated"),
)
PENDING = (
    pod("web-0", "1", labels=WEB, affinity=APART, topologySpreadConstraints=[SPREAD]),
    pod("web-1", "1", labels=WEB, affinity=APART, topologySpreadConstraints=[SPREAD]),
    pod("web-2", "1", labels=WEB, affinity=APART, topologySpreadConstraints=[SPREAD]),
    pod("ssd", "5", nodeSelector={"disk": "ssd"}),
    pod("tolerant", "9", tolerations=[{"key": "dedicated", "operator": "Exists"}]),
    pod("too-large", "9"),
    pod("nowhere", nodeSelector={"disk": "tape"}),
)


@pytest.fixture
def user(controlplane: ControlPlane, namespace: str) -> User:
    """Work in a cluster without a running scheduler."""
    return User(controlplane, namespace)


@pytest.fixture
def viewer(controlplane: ControlPlane) -> Path:
    """Return the kubeconfig of a user who may read everything and write nothing."""
    rights = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    api, path = controlplane.api, "/apis/rbac.authorization.k8s.io/v1"
    api.request(
        "POST", f"{path}/clusterroles", {"metadata": {"name": "test-viewer"}, "rules": rights}
    )
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    binding = {
        "metadata": {"name": "test-viewer"},
        "roleRef": {**reference, "name": "test-viewer"},
        "subjects": [{**reference, "kind": "User", "name": "viewer"}],
    }
    api.request("POST", f"{path}/clusterrolebindings", binding)
    return controlplane.kubeconfig("viewer")


def koord(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KOORD, *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=60
    )


def dry_run(kubeconfig: Path, *manifests: Manifest) -> Any:
    """Return the output of ``koord schedule --dry-run`` for the cluster or for objects."""
    given = yaml.safe_dump_all(manifests)
    files = ["--filename=-"] if manifests else []
    options = (f"--kubeconfig={kubeconfig}", "--dry-run", "--output=json")
    done = koord("schedule", *options, *files, stdin=given)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def nodes(result: Any) -> dict[str, str]:
    return {it["pod"].partition("/")[2]: it["node"] for it in result["placements"]}


def messages(result: Any) -> dict[str, str]:
    return {it["pod"].partition("/")[2]: it["message"] for it in result["unschedulable"]}


def stored(user: User) -> dict[str, str]:
    """Return the versions of all objects that a scheduler writes."""
    kinds = ("pods", "events", "persistentvolumeclaims")
    return {
        f"{kind}/{it['metadata']['name']}": it["metadata"]["resourceVersion"]
        for kind in kinds
        for it in user.get(kind)
    }


def start(controlplane: ControlPlane) -> SchedulerProcess:
    return SchedulerProcess(controlplane, CONFIGURATION)


@pytest.mark.usefixtures("kubelet")
def test_pending_pods_are_bound_as_the_dry_run_predicted(
    controlplane: ControlPlane, user: User, viewer: Path
) -> None:
    """Read-only rights are enough; no object has another version afterwards."""
    user.apply(*NODES)
    for each in PENDING:  # one after the other: this is their order in the queue
        user.apply(each)
    before = stored(user)

    result = dry_run(viewer)

    assert stored(user) == before
    with start(controlplane):
        expected = nodes(result)
        assert dict(zip(expected, user.nodes_of(*expected), strict=True)) == expected
        assert set(expected) == {"web-0", "web-1", "web-2", "ssd", "tolerant"}
        for name, message in messages(result).items():
            user.wait_for_refusal(name, message)
        assert set(messages(result)) == {"too-large", "nowhere"}


@pytest.mark.usefixtures("kubelet")
def test_a_pod_that_does_not_exist_yet_is_tried(controlplane: ControlPlane, user: User) -> None:
    """With -f only the given pods are spoken of, beside everything that runs already."""
    with start(controlplane):
        user.apply(*NODES, *PENDING)
        user.nodes_of("web-0", "web-1", "web-2", "ssd", "tolerant")
        user.refusal_of("nowhere")
    fits = inside(user, pod("new", "2", labels=WEB, affinity=APART))
    too_many = inside(user, pod("newer", "9", nodeSelector={"disk": "ssd"}))
    before = stored(user)

    result = dry_run(controlplane.kubeconfig(), fits, too_many)

    assert stored(user) == before
    assert [set(nodes(result)), set(messages(result))] == [{"new"}, {"newer"}]
    with start(controlplane):
        user.apply(fits, too_many)
        assert user.node_of("new") == nodes(result)["new"]
        user.wait_for_refusal("newer", messages(result)["newer"])


def inside(user: User, manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": user.namespace}}


@pytest.mark.usefixtures("kubelet")
def test_dry_run_predicts_preemption_without_evicting(
    controlplane: ControlPlane, user: User
) -> None:
    """The victim is named, and runs on."""
    user.apply(node("n0", "2"), priority_class("high", 1000))
    with start(controlplane):
        user.apply(pod("victim", "2"))
        user.node_of("victim")
    before = stored(user)
    important = inside(user, pod("important", "2", priorityClassName="high"))

    result = dry_run(controlplane.kubeconfig(), important)

    assert nodes(result) == {"important": "n0"}
    (evicted,) = result["evicted"]
    assert evicted["pod"] == f"{user.namespace}/victim"
    assert evicted["by"] == f"{user.namespace}/important"
    assert stored(user) == before


@pytest.mark.usefixtures("kubelet")
def test_once_over_manifests_predicts_the_cluster(
    controlplane: ControlPlane, user: User, tmp_path: Path
) -> None:
    """``koord scheduler --once`` writes in memory what it writes to a cluster otherwise."""
    controlplane.start_controller_manager(("persistentvolume-binder-controller",))
    pods = (*PENDING, pod("database", "1", volumes=mounted("data")))
    objects = (
        *NODES,
        storage_class("local"),
        local_volume("disk", "b1", "10Gi", "local"),
        claim("data", "5Gi", "local"),
        *sorted(pods, key=lambda it: it["metadata"]["name"]),  # as a cluster lists them
    )
    manifests = tmp_path / "cluster.yaml"
    namespaced = [it if it["kind"] in CLUSTER_WIDE else inside(user, it) for it in objects]
    manifests.write_text(yaml.safe_dump_all(namespaced))

    done = koord("scheduler", "--once", f"--filename={manifests}", "--output=json")

    assert done.returncode == 0, done.stderr
    changed = json.loads(done.stdout)["changed"]
    foretold = {it["metadata"]["name"]: it for it in changed if it["kind"] == "Pod"}
    user.kubectl("apply", f"--filename={manifests}")
    with start(controlplane):
        for name, it in foretold.items():
            if "nodeName" in it["spec"]:
                assert user.node_of(name) == it["spec"]["nodeName"]
            else:
                (condition,) = it["status"]["conditions"]
                user.wait_for_refusal(name, condition["message"])
    assert len(foretold) == len(PENDING) + 1
    volume = next(it for it in changed if it["kind"] == "PersistentVolume")
    assert volume["spec"]["claimRef"]["name"] == "data"
    assert user.get("persistentvolumeclaims", "data")["spec"]["volumeName"] == "disk"


CLUSTER_WIDE = ("Node", "StorageClass", "PersistentVolume")


def test_a_cluster_is_never_scheduled_by_koord_schedule(controlplane: ControlPlane) -> None:
    """Without --dry-run it is an error of usage, before anything is read."""
    done = koord("schedule", f"--kubeconfig={controlplane.kubeconfig()}")

    assert done.returncode == 2
    assert done.stdout == ""
    assert "--dry-run" in done.stderr
    assert "koord scheduler" in done.stderr


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    """No traceback, and no guess."""
    done = koord("schedule", f"--kubeconfig={tmp_path}/none", "--dry-run")

    assert done.returncode == 2
    assert f"{tmp_path}/none" in done.stderr
    assert "Traceback" not in done.stderr
