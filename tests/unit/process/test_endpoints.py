"""A component answers about itself as Kubernetes components do."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry, Counter
from tests.unit.process.clients import ask

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.foundation.errors import InputError, NotFoundError
from koordinator.process.endpoints import (
    LONGEST_BODY_BYTES,
    Endpoints,
    RequestParameters,
    application,
    configz,
    thread_stacks,
)
from koordinator.process.health import PING, Check
from koordinator.process.http_server import HttpServer


@dataclass
class Component:
    """Something to serve."""

    port: int = 0
    leads: bool = True
    synced: bool = True
    flags: list[str] = field(default_factory=list)

    def node(self, parameters: RequestParameters) -> object:
        name = parameters["name"]
        if name == "busy":
            raise TimeoutError("no answer within 10 s")
        if name != "n1":
            raise NotFoundError(f"cannot find node {name}")
        return {"name": name, "detail": parameters.get("detail", "")}

    def set_flag(self, text: str) -> str:
        if not text.isdigit():
            raise InputError(f"must be a number, got {text!r}")
        self.flags.append(text)
        return f"set to {text}"


def registry() -> CollectorRegistry:
    attempts = CollectorRegistry()
    Counter("scheduler_attempts", "Attempts.", ("result",), registry=attempts).labels("ok").inc(3)
    return attempts


@pytest.fixture(scope="module")
def served() -> Iterator[Component]:
    component = Component()
    synced = Check("informer-sync", lambda: "" if component.synced else "nodes not synced")
    endpoints = Endpoints(
        health={"healthz": (), "livez": (PING,), "readyz": (PING, synced)},
        metrics={"/metrics": registry()},
        pages={"/configz": configz(KubeSchedulerConfiguration), "/debug/threads": thread_stacks},
        services={"/nodes/{name}": component.node},
        is_leader=lambda: component.leads,
        flags={"s": component.set_flag},
    )
    server = HttpServer(application(endpoints), "localhost", 0)
    server.start()
    component.port = server.port
    yield component
    server.stop()


@pytest.fixture
def component(served: Component) -> Component:
    served.leads = served.synced = True
    return served


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/healthz", "ok"),
        ("/livez/ping", "ok"),
        ("/readyz?verbose", "[+]ping ok\n[+]informer-sync ok\nreadyz check passed\n"),
        (
            "/readyz?verbose&exclude=informer-sync&exclude=ping",
            "[+]ping excluded: ok\n[+]informer-sync excluded: ok\nreadyz check passed\n",
        ),
    ],
)
def test_healthy_component_reports_ok(component: Component, path: str, text: str) -> None:
    """The answers are plain text."""
    reply = ask(component.port, path)

    assert (reply.status, reply.text) == (200, text)
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"


def test_a_failed_check_is_an_error(component: Component) -> None:
    """Of its endpoint and of its own path, and of no other endpoint."""
    component.synced = False
    assert ask(component.port, "/readyz").status == 500
    single = ask(component.port, "/readyz/informer-sync")
    assert (single.status, single.text) == (500, "internal server error: nodes not synced\n")
    assert ask(component.port, "/readyz?exclude=informer-sync").status == 200
    assert ask(component.port, "/livez").status == 200


def test_metrics_are_exposed_as_prometheus_text(component: Component) -> None:
    """Without the creation times, which no Kubernetes component has."""
    reply = ask(component.port, "/metrics")

    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'scheduler_attempts_total{result="ok"} 3.0\n' in reply.text
    assert "_created" not in reply.text


def test_metrics_are_exposed_as_openmetrics_on_request(component: Component) -> None:
    """Prometheus requests the format with Accept."""
    accept = {"accept": "application/openmetrics-text;version=1.0.0"}
    reply = ask(component.port, "/metrics", headers=accept)

    assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert reply.text.endswith("# EOF\n")


def test_health_results_are_metrics(component: Component) -> None:
    """The results are on the path /metrics/slis."""
    ask(component.port, "/livez")

    assert 'name="ping",type="livez"} 1.0' in ask(component.port, "/metrics/slis").text


def test_version_is_shown(component: Component) -> None:
    """In the words of Kubernetes."""
    shown = ask(component.port, "/version").json

    assert shown["gitVersion"].startswith(f"v{shown['major']}.{shown['minor']}.")


def test_stacks_of_all_threads_are_shown(component: Component) -> None:
    """To see where a component hangs."""
    text = ask(component.port, "/debug/threads").text

    assert "MainThread\n" in text
    assert "serving\n" in text
    assert "thread_stacks" in text


def test_services_answer_as_json(component: Component) -> None:
    """A service gets parameters of the path and the query."""
    reply = ask(component.port, "/apis/v1/nodes/n1?detail=true")

    assert reply.json == {"name": "n1", "detail": "true"}
    assert reply.headers["content-type"] == "application/json"
    assert ask(component.port, "/apis/v1/__services__").json == {"GET": ["/apis/v1/nodes/:name"]}


def test_services_are_the_leaders(component: Component) -> None:
    """A standby knows nothing that is worth telling."""
    component.leads = False
    reply = ask(component.port, "/apis/v1/nodes/n1")

    assert (reply.status, reply.json) == (503, {"message": "the instance is not leader"})


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/apis/v1/nodes/n2", 404, '{"message":"cannot find node n2"}'),
        ("/apis/v1/nodes/busy", 503, "no answer within 10 s\n"),
        ("/nowhere", 404, "Not Found"),
    ],
)
def test_unanswerable_request_gets_an_error_status(
    component: Component, path: str, status: int, text: str
) -> None:
    """The status distinguishes errors of the client and of the server."""
    reply = ask(component.port, path)

    assert (reply.status, reply.text) == (status, text)


@pytest.mark.parametrize(
    ("method", "body", "status", "text"),
    [
        ("PUT", "5", 200, "set to 5\n"),
        ("PUT", "many", 400, "must be a number, got 'many'\n"),
        ("GET", None, 406, "unsupported http method\n"),
        ("PUT", "5" * (LONGEST_BODY_BYTES + 1), 413, "Content Too Large"),
    ],
)
def test_put_sets_a_flag_of_a_running_component(
    component: Component, method: str, body: str | None, status: int, text: str
) -> None:
    """PUT sets a flag of a running component; nothing else does."""
    reply = ask(component.port, "/debug/flags/s", method=method, body=body)

    assert (reply.status, reply.text) == (status, text)


def test_answers_are_not_kept_by_caches(component: Component) -> None:
    """Browsers do not guess a type other than the stated one."""
    headers = ask(component.port, "/configz").headers

    assert headers["cache-control"] == "no-cache, private"
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers
