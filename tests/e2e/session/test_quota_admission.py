"""Quotas that come at the same time, on a real API server that asks two replicas of the manager."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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


@pytest.fixture
def replicas(controlplane: ControlPlane) -> Iterator[None]:
    """Run two replicas, and let the API server ask the one or the other (or both)."""
    api = controlplane.api
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with ExitStack() as running:
        managers = [
            running.enter_context(
                ManagerProcess(controlplane, name=f"manager-{number}", elects=True)
            )
            for number in range(2)
        ]
        entries = [entry(each.webhook_port, number) for number, each in enumerate(managers)]
        name = "koordinator-validating-webhook-configuration"
        listed = f"{HOOKS}/validatingwebhookconfigurations"
        api.request("POST", listed, {"metadata": {"name": name}, "webhooks": entries})

        def trusted() -> bool:
            found = api.request("GET", f"{listed}/{name}")["webhooks"]
            return all(each["clientConfig"].get("caBundle") for each in found)

        eventually(trusted, 90)
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
    """Whichever replica is asked, and whatever its watch has told it; and go right before it."""
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

            said = list(pool.map(lambda child: refusal(controlplane, namespace, child), children))

            assert sorted(map(bool, said)) == [False, True]
            assert "checkMinQuotaSum all brothers' MinQuota" in max(said)
