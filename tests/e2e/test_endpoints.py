"""Endpoints of the scheduler, over TLS with authorization by the API server."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint, free_port
from tests.e2e.fleet import node, pod
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

Kubectl = Callable[..., str]

CONFIGURATION = {
    "leaderElection": {"leaderElect": False},
    "podInitialBackoffSeconds": 3,
    "profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "second"}],
}

#: Of kube-scheduler 1.35, by type: what dashboards and alerts are made of.
METRICS = {
    "counter": {
        "rest_client_requests_total",
        "scheduler_plugin_evaluation_total",
        "scheduler_preemption_attempts_total",
        "scheduler_queue_incoming_pods_total",
        "scheduler_schedule_attempts_total",
    },
    "gauge": {
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "scheduler_cache_size",
        "scheduler_pending_pods",
        "scheduler_unschedulable_pods",
    },
    "histogram": {
        "rest_client_request_duration_seconds",
        "scheduler_event_handling_duration_seconds",
        "scheduler_framework_extension_point_duration_seconds",
        "scheduler_permit_wait_duration_seconds",
        "scheduler_plugin_execution_duration_seconds",
        "scheduler_pod_scheduling_attempts",
        "scheduler_pod_scheduling_sli_duration_seconds",
        "scheduler_preemption_victims",
        "scheduler_scheduling_algorithm_duration_seconds",
        "scheduler_scheduling_attempt_duration_seconds",
    },
}


@pytest.fixture(scope="module")
def secure_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def scheduler(controlplane: ControlPlane, secure_port: int) -> Iterator[SchedulerProcess]:
    """Run one scheduler for all tests of this file."""
    certificate, key = controlplane.authority.issue_server("koord-scheduler", ["127.0.0.1"])
    flags = (
        f"--secure-port={secure_port}",
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
    )
    with SchedulerProcess(controlplane, CONFIGURATION, name="endpoints", flags=flags) as running:
        yield running


@pytest.fixture
def anonymous(
    controlplane: ControlPlane,
    secure_port: int,
    scheduler: SchedulerProcess,  # noqa: ARG001 -- it serves
) -> Endpoint:
    """Return the secure port for a client without credentials."""
    return Endpoint(secure_port, controlplane.api.tls)


@pytest.fixture
def admin(controlplane: ControlPlane, anonymous: Endpoint) -> Endpoint:
    """Return the secure port as the admin sees it."""
    return replace(anonymous, token=controlplane.api.token)


def status(endpoint: Endpoint, path: str, method: str = "GET", body: Any = None) -> int:
    """Return the HTTP status of a request."""
    try:
        endpoint.request(method, path, body)
    except ApiError as refusal:
        return refusal.status
    return 200


def test_health_requires_no_credentials(anonymous: Endpoint) -> None:
    """A kubelet has no token."""
    assert [anonymous.request("GET", path) for path in ("/healthz", "/livez", "/readyz")] == [
        "ok",
        "ok",
        "ok",
    ]
    assert "[+]sched-handler-sync ok" in anonymous.request("GET", "/readyz?verbose")


def test_everything_else_needs_a_right(
    controlplane: ControlPlane, anonymous: Endpoint, namespace: str, kubectl: Kubectl
) -> None:
    """No token and no right are two different refusals; a right is one to a path."""
    inside = f"--namespace={namespace}"
    for name in ("nobody", "prometheus"):
        kubectl("create", "serviceaccount", name, inside)
    kubectl("create", "clusterrole", "scraper", "--verb=get", "--non-resource-url=/metrics")
    account = f"--serviceaccount={namespace}:prometheus"
    kubectl("create", "clusterrolebinding", "scraper", "--clusterrole=scraper", account)
    user = f"--as=system:serviceaccount:{namespace}:prometheus"
    eventually(lambda: "yes" in kubectl("auth", "can-i", "get", "/metrics", user))

    def status_for(name: str, path: str) -> int:
        token = controlplane.service_account_token(namespace, name)
        return status(replace(anonymous, token=token), path)

    stranger = replace(anonymous, token="made-up")  # noqa: S106 -- of no user
    assert status(stranger, "/metrics") == 401
    assert status(anonymous, "/metrics") == 403
    assert status_for("nobody", "/metrics") == 403
    assert status_for("prometheus", "/metrics") == 200
    assert status_for("prometheus", "/configz") == 403
    assert status_for("nobody", "/readyz") == 200


def test_scheduler_is_ready_after_its_caches_synced(controlplane: ControlPlane) -> None:
    """Until then it is live, and reports the missing kinds."""
    controlplane.stop_apiserver()
    starting = SchedulerProcess(controlplane, name="not-ready")
    starting.start(wait=False)
    try:
        eventually(lambda: starting.get("/healthz") == "ok")
        with pytest.raises(ApiError, match=r"HTTP 500: (?s:.*)\[-\]sched-handler-sync failed"):
            Endpoint(starting.port).request("GET", "/readyz")
        assert starting.get("/livez") == "ok"

        controlplane.start_apiserver()
        eventually(lambda: starting.get("/readyz") == "ok")
        assert starting.stop() == 0
    finally:
        starting.kill()


def test_the_configuration_in_use_is_shown(admin: Endpoint) -> None:
    """The page has the fields of the file and the defaults of the others."""
    shown = admin.request("GET", "/configz")["componentconfig"]

    assert shown["podInitialBackoffSeconds"] == 3
    assert shown["podMaxBackoffSeconds"] == 10
    assert shown["leaderElection"]["leaderElect"] is False
    assert [it["schedulerName"] for it in shown["profiles"]] == ["default-scheduler", "second"]


def test_a_node_is_shown_as_the_scheduler_sees_it(
    controlplane: ControlPlane, admin: Endpoint, namespace: str
) -> None:
    """With the pods that it has just put there, and the one that waits is in the queue."""
    controlplane.api.request("POST", "/api/v1/nodes", node("n1", cpu="4"))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    eventually(lambda: status(admin, "/apis/v1/nodes/n1") == HTTPStatus.OK)
    controlplane.api.request("POST", pods, pod("small", "1500m"))
    shown = eventually(
        lambda: (page := admin.request("GET", "/apis/v1/nodes/n1")).get("pods") and page
    )
    controlplane.api.request("POST", pods, pod("big", "3"))

    assert [it["Pod"]["metadata"]["name"] for it in shown["pods"]] == ["small"]
    assert (shown["requested"]["MilliCPU"], shown["remaining"]["MilliCPU"]) == (1500, 2500)
    assert status(admin, "/apis/v1/nodes/n2") == 404
    eventually(lambda: waiting(admin) == [f"{namespace}/big"])
    assert "/apis/v1/queue" in admin.request("GET", "/apis/v1/__services__")["GET"]


def waiting(admin: Endpoint) -> list[str]:
    """Return the pods that the scheduler couldn't place."""
    queue = admin.request("GET", "/apis/v1/queue")
    return [it["pod"] for it in queue["unschedulable"]]


def test_the_verbosity_of_the_log_can_be_changed(admin: Endpoint) -> None:
    """Without a restart; what is no number is refused."""
    answer = admin.request("PUT", "/debug/flags/v", 4)

    assert answer == "successfully set verbosity to 4\n"
    assert status(admin, "/debug/flags/v", "PUT", "much") == 400
    assert status(admin, "/debug/flags/v", "GET") == 406


def test_metrics_have_the_names_of_kube_scheduler(
    controlplane: ControlPlane, admin: Endpoint, namespace: str
) -> None:
    """Metrics of kube-scheduler that apply here have its names and labels."""
    controlplane.api.request("POST", "/api/v1/nodes", node("n1", cpu="1"))
    for name, cpu in {"fits": "500m", "waits": "5"}.items():
        controlplane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod(name, cpu))
    eventually(lambda: waiting(admin) == [f"{namespace}/waits"])
    eventually(lambda: admin.request("GET", "/apis/v1/nodes/n1").get("pods"))

    text = admin.request("GET", "/metrics")
    types = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    series = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in samples(text)}

    for kind, names in METRICS.items():
        assert {name: types.get(name) for name in names} == dict.fromkeys(names, kind)
    assert series['scheduler_pending_pods{queue="unschedulable"}'] == 1
    assert series['scheduler_cache_size{type="nodes"}'] == 1
    profile = 'profile="default-scheduler"'
    assert series[f'scheduler_unschedulable_pods{{plugin="NodeResourcesFit",{profile}}}'] == 1
    for result in ("scheduled", "unschedulable"):
        labels = f'{{{profile},result="{result}"}}'
        assert series[f"scheduler_schedule_attempts_total{labels}"] >= 1
        assert series[f"scheduler_scheduling_attempt_duration_seconds_count{labels}"] >= 1


def samples(text: str) -> list[str]:
    """Return the lines of an exposition that have a value."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]
