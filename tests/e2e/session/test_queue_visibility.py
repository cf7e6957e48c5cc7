"""Koord-queue's aggregated API on a real API server: found, read with kubectl, guarded."""

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.controlplane.errors import ControlPlaneError
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.session.test_held_back_jobs import job, quota
from tests.e2e.waiting import eventually

from koordinator.cli.manager.visibility_pages import API_SERVICE, SERVICE

GROUP = "visibility.koord-queue.x-k8s.io"
BASE = f"/apis/{GROUP}/v1alpha1"
NAMESPACE = "koordinator-system"
LONG_S = 60.0  # discovery of aggregated groups is periodic


def services(port: int, **spec: Any) -> list[dict[str, Any]]:
    """Return the Service, which leads to this machine, and the APIService that names it."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": GROUP,
                "version": "v1alpha1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": SERVICE, "namespace": NAMESPACE, "port": port},
                **spec,
            },
        },
    ]


def is_available(controlplane: ControlPlane) -> bool:
    service = controlplane.api.request(
        "GET", f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"
    )
    conditions = service.get("status", {}).get("conditions", [])
    return any(it["type"] == "Available" and it["status"] == "True" for it in conditions)


@pytest.fixture
def visible(controlplane: ControlPlane, namespace: str) -> Iterator[tuple[ControlPlane, int]]:
    """Run a manager that shows its queues, where the API server finds it."""
    del namespace  # what is there afterwards goes with it, when nothing is aggregated any more
    api, port = controlplane.api, free_port()
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    queues = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koord-queue"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [space, queues, *services(port)]}
    controlplane.kubectl("apply", "--filename=-", stdin=json.dumps(listed))
    flags = (
        "--enabled-extensions=job",
        "--enableVisibilityServer=true",
        f"--visibility-port={port}",
        "--feature-gates=WebhookFramework=false",
    )
    with ManagerProcess(controlplane, flags) as manager:
        try:
            eventually(lambda: is_available(controlplane), LONG_S)
        except AssertionError:
            raise AssertionError(manager.last_words()) from None
        yield controlplane, port
    api.request("DELETE", f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}")


@pytest.fixture
def waiting(visible: tuple[ControlPlane, int], namespace: str) -> str:
    """Queue two jobs in a queue with the name of the namespace."""
    controlplane, _ = visible
    items = [
        {**quota(namespace, 1), "metadata": {"name": namespace, "namespace": namespace}},
        *(
            {**made, "metadata": {**made["metadata"], "namespace": namespace}}
            for made in (job("first", 2, namespace), job("second", 3, namespace))
        ),
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    controlplane.kubectl("apply", "--filename=-", stdin=json.dumps(listed))
    path = f"{BASE}/queues/{namespace}/queueunits"

    def both() -> bool:
        names = controlplane.kubectl("get", f"queues.{GROUP}", "--output=name").split()
        if f"queue.{GROUP}/{namespace}" not in names:
            return False
        return len(controlplane.api.request("GET", path)["items"]) == 2

    eventually(both, LONG_S)
    return namespace


def test_pending_units_are_listed_in_order(visible: tuple[ControlPlane, int], waiting: str) -> None:
    """As a summary, with places to begin and to end at; through kubectl as any API."""
    controlplane, _ = visible
    raw = f"{BASE}/queues/{waiting}/queueunits"
    shown = json.loads(controlplane.kubectl("get", f"--raw={raw}"))
    assert (shown["kind"], shown["apiVersion"]) == ("QueueUnitsSummary", f"{GROUP}/v1alpha1")
    first = shown["items"][0]
    assert first["metadata"] == {"name": "first", "namespace": waiting}
    assert (first["queueName"], first["quotaName"], first["phase"]) == (
        waiting,
        waiting,
        "Enqueued",
    )
    assert first["resources"] == {"cpu": "2"}
    assert [it["metadata"]["name"] for it in shown["items"]] == ["first", "second"]
    get = controlplane.api.request
    page = get("GET", f"{raw}?offset=1&limit=5")["items"]
    assert [it["metadata"]["name"] for it in page] == ["second"]
    assert get("GET", f"{raw}?phase=Running")["items"] == []
    of_quota = get("GET", f"{BASE}/elasticquotas/{waiting}/queueunits")["items"]
    assert {it["metadata"]["name"] for it in of_quota} == {"first", "second"}
    one = controlplane.kubectl("get", f"elasticquotas.{GROUP}", waiting, "--output=json")
    assert len(json.loads(one)["QueueUnitsSummary"]["items"]) == 2


def test_the_group_is_discovered_with_its_schema(visible: tuple[ControlPlane, int]) -> None:
    """Kubectl knows its resources, and explains its fields."""
    controlplane, _ = visible
    resources = controlplane.kubectl("api-resources", f"--api-group={GROUP}", "--output=name")
    assert set(resources.split()) == {f"queues.{GROUP}", f"elasticquotas.{GROUP}"}

    def explanation() -> str:
        try:
            return controlplane.kubectl("explain", "queues", f"--api-version={GROUP}/v1alpha1")
        except ControlPlaneError:
            return ""  # the API server fetches schemas periodically

    eventually(lambda: "QueueUnitsSummary" in explanation(), LONG_S)


def test_reading_queues_requires_permission(
    visible: tuple[ControlPlane, int], waiting: str
) -> None:
    """The cluster's roles decide; headers are accepted only from the API server."""
    controlplane, _ = visible
    path = f"{BASE}/queues/{waiting}/queueunits"
    stranger = str(controlplane.kubeconfig("stranger"))
    with pytest.raises(ControlPlaneError, match=r"stranger.*cannot get resource.*queueunits"):
        controlplane.kubectl("get", f"--raw={path}", f"--kubeconfig={stranger}")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"sees-{waiting}"},
        "rules": [
            {
                "apiGroups": [GROUP],
                "resources": ["queues/queueunits"],
                "resourceNames": [waiting],
                "verbs": ["get"],
            }
        ],
    }
    controlplane.kubectl("apply", "--filename=-", stdin=json.dumps(role))
    controlplane.kubectl(
        "create",
        "clusterrolebinding",
        f"sees-{waiting}",
        f"--clusterrole=sees-{waiting}",
        "--user=friend",
    )
    friend = str(controlplane.kubeconfig("friend"))
    shown = controlplane.kubectl("get", f"--raw={path}", f"--kubeconfig={friend}")
    assert len(json.loads(shown)["items"]) == 2
    _check_headers(visible, path)


def _check_headers(visible: tuple[ControlPlane, int], path: str) -> None:
    """Only the certificate of the API server authenticates the user headers."""
    controlplane, port = visible

    proxy = controlplane.state_dir / "pki/client-front-proxy"

    def status(*certificate: Path) -> int:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(certificate[0], certificate[1])
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
        with closing(connection):
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status

    assert status() == 403
    assert status(*controlplane.authority.issue_client("somebody")) == 403
    assert status(proxy.with_suffix(".crt"), proxy.with_suffix(".key")) == 200
