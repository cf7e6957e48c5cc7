"""Quotas that come at the same time, on a real API server that asks two replicas of the manager."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.errors import ApiError
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.waiting import eventually

HOOKS = "/apis/admissionregistration.k8s.io/v1"
PREFIX = "quota.scheduling.koordinator.sh/"
ROUNDS = 10


def entry(port: int, replica: int) -> dict[str, Any]:
    """Return a webhook that asks one of two replicas, by what the name of a quota ends with."""
    name = "(request.operation == 'DELETE' ? oldObject : object).metadata.name"
    not_mine = "a" if replica else "b"
    return {
        "name": f"velasticquota{replica}.koordinator.sh",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "matchConditions": [{"name": "is-mine", "expression": f"!{name}.endsWith('{not_mine}')"}],
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
        },
        "rules": [
            {
                "apiGroups": ["scheduling.sigs.k8s.io"],
                "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "resources": ["elasticquotas"],
            }
        ],
    }


def quota(name: str, cpu: int, **labels: str) -> dict[str, Any]:
    """Return a quota of at most 10 CPUs."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "labels": {f"{PREFIX}{key.replace('_', '-')}": v for key, v in labels.items()},
        },
        "spec": {"min": {"cpu": str(cpu)}, "max": {"cpu": "10"}},
    }


@contextmanager
def started_replicas(
    controlplane: ControlPlane,
    webhook: Callable[[int, int], dict[str, Any]],
    flags: Sequence[str] = (),
) -> Iterator[None]:
    """Run two replicas; the API server calls one or the other or both."""
    api = controlplane.api
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with ExitStack() as running:
        managers = [
            running.enter_context(
                ManagerProcess(controlplane, flags, name=f"manager-{number}", elects=True)
            )
            for number in range(2)
        ]
        entries = [webhook(each.webhook_port, number) for number, each in enumerate(managers)]
        name = "koordinator-validating-webhook-configuration"
        listed = f"{HOOKS}/validatingwebhookconfigurations"
        api.request("POST", listed, {"metadata": {"name": name}, "webhooks": entries})

        def trusted() -> bool:
            webhooks = api.request("GET", f"{listed}/{name}")["webhooks"]
            return all(each["clientConfig"].get("caBundle") for each in webhooks)

        eventually(trusted, 90)
        yield


@pytest.fixture
def replicas(controlplane: ControlPlane) -> Iterator[None]:
    """Run two replicas that are asked about quotas."""
    with started_replicas(controlplane, entry):
        yield


def refusal(controlplane: ControlPlane, namespace: str, obj: dict[str, Any]) -> str:
    """Create a quota; return why that was refused, empty if it wasn't."""
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/elasticquotas"
    try:
        controlplane.api.request("POST", path, obj)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("replicas")
def test_a_child_may_come_right_after_its_parent(
    controlplane: ControlPlane, namespace: str
) -> None:
    """For each replica and state of its watch; the child may be deleted right before the parent."""
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/elasticquotas"
    eventually(lambda: refusal(controlplane, namespace, quota("first-a", 1)) == "", 30)
    eventually(lambda: refusal(controlplane, namespace, quota("first-b", 1)) == "", 30)
    for number in range(ROUNDS):
        parent = f"dept{number}-{'ab'[number % 2]}"
        assert refusal(controlplane, namespace, quota(parent, 10, is_parent="true")) == ""
        for end in "ab":
            child = f"team{number}-{end}"
            assert refusal(controlplane, namespace, quota(child, 1, parent=parent)) == ""
        for end in "ab":
            controlplane.api.request("DELETE", f"{path}/team{number}-{end}")
        controlplane.api.request("DELETE", f"{path}/{parent}")


@pytest.mark.usefixtures("replicas")
def test_children_that_come_together_get_no_more_than_their_parent_has(
    controlplane: ControlPlane, namespace: str
) -> None:
    """Asked of two replicas at the same moment: one of them is admitted, never both."""
    eventually(lambda: refusal(controlplane, namespace, quota("first-a", 1)) == "", 30)
    eventually(lambda: refusal(controlplane, namespace, quota("first-b", 1)) == "", 30)
    with ThreadPoolExecutor(2) as pool:
        for number in range(ROUNDS):
            parent = f"dept{number}"
            assert refusal(controlplane, namespace, quota(parent, 10, is_parent="true")) == ""
            children = [quota(f"team{number}-{end}", 6, parent=parent) for end in "ab"]

            refusals = list(
                pool.map(lambda child: refusal(controlplane, namespace, child), children)
            )

            assert sorted(map(bool, refusals)) == [False, True]
            assert "checkMinQuotaSum all brothers' MinQuota" in max(refusals)


def pod_entry(port: int, replica: int) -> dict[str, Any]:
    """Return a webhook for pods that asks one of two replicas, by what their names end with."""
    return entry(port, replica) | {
        "name": f"vpod{replica}.koordinator.sh",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/validate-pod"},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
    }


def pod_of(name: str, quota_name: str) -> dict[str, Any]:
    """Return a pod of one CPU."""
    resources = {"requests": {"cpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {f"{PREFIX}name": quota_name}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "app", "resources": resources}],
        },
    }


@pytest.fixture
def pod_replicas(controlplane: ControlPlane) -> Iterator[None]:
    """Run two replicas that refuse pods of full quotas; half of all pods is asked of each."""
    with started_replicas(controlplane, pod_entry, ["--feature-gates=EnableQuotaAdmission=true"]):
        yield


@pytest.mark.usefixtures("pod_replicas")
def test_pods_that_come_together_get_no_more_than_their_quota_has(
    controlplane: ControlPlane, namespace: str
) -> None:
    """Thirty requests, half of them to each replica: ten are admitted, the others get the reason.

    A pod that waits for its charge is rejected with 503 and retried.
    """
    quotas = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/elasticquotas"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    controlplane.api.request("POST", quotas, quota("team", 1))

    def create(name: str) -> str:
        """Create a pod; return the answer, or an empty one where it is to be tried again."""
        try:
            controlplane.api.request("POST", pods, pod_of(name, "team"))
        except ApiError as error:
            is_final = error.status != HTTPStatus.SERVICE_UNAVAILABLE and "try again" not in str(
                error
            )
            return str(error) if is_final else ""
        return "created"

    def settled(name: str) -> str:
        """Create a pod as a controller does: again, until the answer is final."""
        return eventually(lambda: create(name), 60)

    # Both replicas have to know the quota before they can refuse anything.
    def knows(end: str) -> bool:
        path = f"{pods}?dryRun=All"
        wide = pod_of(f"wide-{end}", "team")
        wide["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "11"
        try:
            controlplane.api.request("POST", path, wide)
        except ApiError as error:
            return "exceeded quota" in str(error)
        return False

    for end in "ab":
        eventually(lambda end=end: knows(end), 30)  # type: ignore[misc] # a default

    names = [f"p{number}-{'ab'[number % 2]}" for number in range(30)]
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(settled, names))

    assert responses.count("created") == 10
    assert all("exceeded quota" in each for each in responses if each != "created")
    assert len(controlplane.api.request("GET", pods)["items"]) == 10
