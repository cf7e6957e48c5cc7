"""The control plane that the other end-to-end tests stand on does what they take for granted."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.controlplane import ApiError, ControlPlane, ControlPlaneError
from tests.e2e.leftovers import Leftovers
from tests.e2e.waiting import eventually

Kubectl = Callable[..., str]
Manifest = dict[str, Any]

SCHEDULER = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "clientConnection": {"qps": 1000, "burst": 1000},
}


def node(name: str) -> Manifest:
    headroom = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {"metadata": {"name": name}, "status": {"capacity": headroom, "allocatable": headroom}}


def pod(name: str, node_name: str = "", **metadata: object) -> Manifest:
    spec = {"nodeName": node_name, "containers": [{"name": "main", "image": "app"}]}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


@pytest.fixture
def pods(controlplane: ControlPlane, namespace: str) -> str:
    """Create a node and return the path of the pods of the test's namespace."""
    controlplane.api.request("POST", "/api/v1/nodes", node("n1"))
    return f"/api/v1/namespaces/{namespace}/pods"


def test_client_and_server_are_of_one_version(kubectl: Kubectl) -> None:
    """The client and the API server come from one build."""
    versions = json.loads(kubectl("version", "--output=json"))

    assert versions["clientVersion"]["gitVersion"] == versions["serverVersion"]["gitVersion"]


def test_koordinators_kinds_are_served(kubectl: Kubectl) -> None:
    """The API server accepts objects of the kinds that ``koord crds`` prints."""
    offered = kubectl("api-resources", "--output=name").split()

    assert {"noderesourcetopologies", "nodemetrics", "reservations"} <= {
        resource.partition(".")[0] for resource in offered
    }


@pytest.mark.usefixtures("kubelet")
def test_kubelet_runs_the_pods_bound_to_its_node(controlplane: ControlPlane, pods: str) -> None:
    """Each pod gets an address and is Running; one that is not bound stays as it is."""
    for name, node_name in {"a": "n1", "b": "n1", "unbound": ""}.items():
        controlplane.api.request("POST", pods, pod(name, node_name))

    statuses = eventually(lambda: two_running(controlplane, pods))

    assert len({status["podIP"] for status in statuses}) == 2
    assert all(status["containerStatuses"][0]["ready"] for status in statuses)
    assert controlplane.api.request("GET", f"{pods}/unbound")["status"]["phase"] == "Pending"


def two_running(controlplane: ControlPlane, pods: str) -> list[Manifest]:
    statuses = [it["status"] for it in controlplane.api.request("GET", pods)["items"]]
    running = [status for status in statuses if status["phase"] == "Running"]
    return running if len(running) == 2 else []


@pytest.mark.usefixtures("kubelet", "pods")
def test_the_kubelet_keeps_its_node_ready(kubectl: Kubectl) -> None:
    """Ready is set, and set again when someone takes it away; there is a lease."""
    kubectl("wait", "node/n1", "--for=condition=Ready")

    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    kubectl("patch", "node/n1", "--subresource=status", f"--patch={json.dumps(unknown)}")

    kubectl("wait", "node/n1", "--for=condition=Ready")
    lease = kubectl("get", "lease/n1", "-n=kube-node-lease", "--output=jsonpath={.spec}")
    assert json.loads(lease)["holderIdentity"] == "n1"


@pytest.mark.usefixtures("kubelet")
def test_the_kubelet_ends_pods_that_are_deleted(
    controlplane: ControlPlane, pods: str, kubectl: Kubectl, namespace: str
) -> None:
    """A deletion with grace is over soon."""
    controlplane.api.request("POST", pods, pod("a", "n1"))
    kubectl("wait", "pod/a", f"--namespace={namespace}", "--for=jsonpath={.status.phase}=Running")

    kubectl("delete", "pod/a", f"--namespace={namespace}", "--wait", "--timeout=20s")

    assert controlplane.api.request("GET", pods)["items"] == []


@pytest.mark.usefixtures("kubelet", "pods")
def test_the_stock_programs_run_a_deployment(
    controlplane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    """Controllers make pods, kube-scheduler binds them, the kubelet makes them available."""
    controlplane.start_controller_manager()
    controlplane.start_scheduler(SCHEDULER)

    inside = f"--namespace={namespace}"
    kubectl("create", "deployment", "web", "--image=app", "--replicas=2", inside)

    kubectl("wait", "deployment/web", inside, "--for=condition=Available", "--timeout=30s")


def test_a_service_account_may_do_what_rbac_grants(
    controlplane: ControlPlane, namespace: str, kubectl: Kubectl
) -> None:
    """The API server knows the account's token, and permits nothing but the granted verb."""
    inside = f"--namespace={namespace}"
    kubectl("create", "serviceaccount", "reader", inside)
    kubectl("create", "role", "reader", "--verb=list", "--resource=pods", inside)
    account = f"--serviceaccount={namespace}:reader"
    kubectl("create", "rolebinding", "reader", "--role=reader", account, inside)

    reader = controlplane.service_account_kubeconfig(namespace, "reader")

    assert kubectl("get", "pods", inside, kubeconfig=reader) == ""
    with pytest.raises(
        ControlPlaneError, match=f'{namespace}:reader" cannot list resource "nodes"'
    ):
        kubectl("get", "nodes", kubeconfig=reader)


def test_any_user_can_have_a_client_certificate(
    controlplane: ControlPlane, kubectl: Kubectl
) -> None:
    """Name and groups are from the certificate."""
    alice = controlplane.kubeconfig("alice", groups=("developers",))

    user = json.loads(kubectl("auth", "whoami", "--output=json", kubeconfig=alice))

    assert user["status"]["userInfo"]["username"] == "alice"
    assert "developers" in user["status"]["userInfo"]["groups"]


def test_compacted_history_is_answered_with_410(controlplane: ControlPlane, pods: str) -> None:
    """A watch from before, and the rest of a list that was begun before, are answered with 410."""
    for name in ("a", "b", "c"):
        controlplane.api.request("POST", pods, pod(name))
    page = controlplane.api.request("GET", f"{pods}?limit=1")["metadata"]
    controlplane.api.request("DELETE", f"{pods}/c")

    controlplane.compact_history()

    since = f"resourceVersion={page['resourceVersion']}"
    watched = controlplane.api.request("GET", f"{pods}?watch=1&timeoutSeconds=5&{since}")
    assert (watched["type"], watched["object"]["code"]) == ("ERROR", 410)
    with pytest.raises(ApiError, match="HTTP 410"):
        controlplane.api.request("GET", f"{pods}?limit=1&continue={page['continue']}")


def test_objects_survive_a_crash_of_the_servers(controlplane: ControlPlane, pods: str) -> None:
    """The API server comes back on its port with what it had acknowledged."""
    controlplane.api.request("POST", pods, pod("a"))

    controlplane.stop_etcd()
    controlplane.stop_apiserver()
    with pytest.raises(OSError, match="refused"):
        controlplane.api.request("GET", pods)
    controlplane.start_etcd()
    controlplane.start_apiserver()

    assert controlplane.api.request("GET", f"{pods}/a")["metadata"]["name"] == "a"


def test_a_test_leaves_nothing_behind(
    controlplane: ControlPlane, pods: str, namespace: str, leftovers: Leftovers, kubectl: Kubectl
) -> None:
    """Nodes, namespaces, bound pods with a finalizer and objects of CRDs are taken away."""
    controlplane.api.request("POST", pods, pod("a", "n1", finalizers=["test/kept"]))
    kubectl("delete", "pod/a", f"--namespace={namespace}", "--wait=false")
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"max": {"cpu": "1"}},
    }
    kubectl("create", "--filename=-", stdin=json.dumps(quota))

    leftovers.clear()

    everything = "nodes,pods,elasticquotas,namespaces"
    left = kubectl("get", everything, "--all-namespaces", "--output=name").split()
    assert left == [f"namespace/{it}" for it in SYSTEM_NAMESPACES]


SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
