"""Retries, errors and deadlines of requests."""

import asyncio
import gc
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import pytest
from aiohttp import web
from tests.unit.cluster.kubernetes.scripted_server import (
    PATIENCE_S,
    Answer,
    ScriptedServer,
    client,
    fail,
    hang_up,
    reply,
    write_kubeconfig,
)

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import find_connection
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.cluster.port import PodReport
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import (
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
)

NODE = Node(metadata=ObjectMeta(name="n"))
STORED = reply({"metadata": {"name": "n", "uid": "1", "resourceVersion": "5"}})
NODE_PATH = "/api/v1/nodes/n"
GET, POST, PUT = "GET /api/v1/nodes/n", "POST /api/v1/nodes", "PUT /api/v1/nodes/n"
EVICT = "POST /api/v1/namespaces/default/pods/a/eviction"
BUSY = HTTPStatus.TOO_MANY_REQUESTS
UNREACHABLE = "http://127.0.0.1:9"  # the port discard: nothing listens


@pytest.mark.parametrize("answer", [fail(BUSY, Retry_After="0"), fail(503, Retry_After="0")])
def test_request_is_retried_on_a_busy_server(server: ScriptedServer, answer: Answer) -> None:
    """The server names the delay and did no work yet, so even a create is retried."""
    server.on(POST, answer, STORED)
    with server.cluster() as cluster:
        assert cluster.create(NODE).metadata.uid == "1"
    assert server.count(POST) == 2


def test_a_server_that_stays_busy_is_given_up(server: ScriptedServer) -> None:
    """The call fails immediately when the delay exceeds its deadline."""
    server.on(POST, fail(BUSY, Retry_After="60"))
    with server.cluster() as cluster, pytest.raises(TooManyRequestsError):
        cluster.create(NODE)
    assert server.count(POST) == 1


def test_exhausted_disruption_budget_is_not_retried(server: ScriptedServer) -> None:
    """An eviction that has to wait is the caller's affair, even if the server names a time."""
    causes = [{"reason": "DisruptionBudget", "message": "needs 3 healthy pods"}]
    body = {"message": "Cannot evict", "details": {"causes": causes}}
    server.on(EVICT, reply(body, BUSY, Retry_After="0"))
    with server.cluster() as cluster, pytest.raises(TooManyRequestsError, match="Cannot evict"):
        cluster.evict("default", "a")
    assert server.count(EVICT) == 1


@pytest.mark.parametrize("answer", [hang_up, fail(500), fail(503)])
def test_reading_is_repeated(server: ScriptedServer, answer: Answer) -> None:
    """A read is repeated after any error, since reads have no effect."""
    server.on(GET, answer, STORED)
    with server.cluster() as cluster:
        assert cluster.get(Node, "n").metadata.uid == "1"


@pytest.mark.parametrize("answer", [hang_up, fail(500), fail(504)])
def test_a_write_that_may_have_happened_is_not_repeated(
    server: ScriptedServer, answer: Answer
) -> None:
    """The outcome is unknown: the caller decides."""
    server.on(POST, answer, STORED)
    with server.cluster() as cluster, pytest.raises(ClusterError):
        cluster.create(NODE)
    assert server.count(POST) == 1


def test_a_server_that_is_away_is_tried_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Unsent requests are retried until the deadline of the call, with one log line."""
    with (
        client(UNREACHABLE, timeout_s=0.15) as cluster,
        pytest.raises(ClusterError, match=r"POST /api"),
    ):
        cluster.create(NODE)
    ours = [r.message for r in caplog.records if r.name.startswith("koordinator")]
    assert ours == ["API server cannot be reached: trying again"]


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", InvalidError),
        (401, "Unauthorized", ClusterError),
        (403, "Forbidden", InvalidError),
        (404, "NotFound", NotFoundError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", TooManyRequestsError),
        (500, "InternalError", ClusterError),
    ],
)
def test_refusals_have_types(
    server: ScriptedServer, code: int, reason: str, error: type[ClusterError]
) -> None:
    """The type selects the reaction; the text has the server's message and the request."""
    server.on(POST, fail(code, reason, "because"))
    with (
        server.cluster() as cluster,
        pytest.raises(error, match=rf"because \(POST /api/v1/nodes: {code}\)") as caught,
    ):
        cluster.create(NODE)
    assert type(caught.value) is error or code == HTTPStatus.FORBIDDEN


def test_an_answer_that_is_no_status_is_shown(server: ScriptedServer) -> None:
    """Proxies answer in their own words."""
    server.on(POST, reply({"oops": 1}, 502))
    with server.cluster() as cluster, pytest.raises(ClusterError, match="Bad Gateway"):
        cluster.create(NODE)


def test_unknown_credentials_are_named(server: ScriptedServer) -> None:
    """The message names the kubeconfig."""
    server.on(POST, fail(401, "Unauthorized", "Unauthorized"))
    with server.cluster() as cluster, pytest.raises(ClusterError, match="of the test"):
        cluster.create(NODE)


def test_a_refused_token_is_read_again(server: ScriptedServer, tmp_path: Path) -> None:
    """A token that was replaced in its file is used before a minute is over."""
    (tmp_path / "token").write_text("old")
    config = write_kubeconfig(tmp_path / "config", server.url, "tokenFile: token")
    clock = VirtualClock()
    credentials = Credentials(find_connection(str(config), environ={}), clock, {})
    (tmp_path / "token").write_text("new")
    clock.advance_to(10)
    server.on(POST, fail(401), STORED)

    with KubernetesCluster(credentials, clock) as cluster:
        cluster.create(NODE)

    sent = [received.headers["Authorization"] for received in server.received]
    assert sent == ["Bearer old", "Bearer new"]


def test_writes_without_permission_are_not_sent(server: ScriptedServer) -> None:
    """Permission is asked before every write; reading needs none."""
    server.on(GET, STORED)
    with server.cluster(may_write=lambda: False) as cluster:
        cluster.get(Node, "n")
        for write in (
            lambda: cluster.create(NODE),
            lambda: cluster.patch(Node, "n", "", {"spec": {}}),
            lambda: cluster.delete(Node, "n"),
            lambda: cluster.evict("default", "a"),
        ):
            with pytest.raises(ClusterError, match="no longer the leader"):
                write()
    assert {received.verb for received in server.received} == {"GET"}


def test_permission_is_checked_again_before_a_retry(server: ScriptedServer) -> None:
    """A replica that lost the lead while it waited does not write."""
    server.on(POST, fail(BUSY, Retry_After="0"), STORED)
    leads = iter([True, False])
    with (
        server.cluster(may_write=lambda: next(leads)) as cluster,
        pytest.raises(ClusterError, match="no longer the leader"),
    ):
        cluster.create(NODE)
    assert server.count(POST) == 1


def test_a_write_is_broken_off_when_another_may_lead(server: ScriptedServer) -> None:
    """The connection is reset, so that nothing of it is sent later; reading goes on."""
    arrived, leads = threading.Event(), threading.Event()
    leads.set()

    async def never(_: web.Request) -> web.StreamResponse:
        arrived.set()
        leads.clear()
        await asyncio.sleep(PATIENCE_S)
        return web.Response()

    server.on(POST, never)
    server.on(GET, STORED)
    with server.cluster(may_write=leads.is_set, lateness_s=5.0) as cluster:
        with pytest.raises(ClusterError, match="no answer from the API server"):
            cluster.create(NODE)
        assert arrived.is_set()
        assert cluster.get(Node, "n").metadata.uid == "1"
        with pytest.raises(ClusterError, match="no longer the leader"):
            cluster.create(NODE)


@pytest.mark.parametrize("is_reused", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda cluster: cluster.create(NODE), id="POST"),
        pytest.param(lambda cluster: cluster.patch(Node, "n", "", {"spec": {}}), id="PATCH"),
        pytest.param(lambda cluster: cluster.delete(Node, "n"), id="DELETE"),
    ],
)
def test_permission_is_checked_again_on_the_connection(
    server: ScriptedServer, write: Callable[[KubernetesCluster], object], is_reused: bool
) -> None:
    """A write that waited for its connection is not sent when another may lead by then."""
    for request in (GET, POST, f"PATCH {NODE_PATH}", f"DELETE {NODE_PATH}"):
        server.on(request, STORED)
    leads = iter([True])
    with server.cluster(may_write=lambda: next(leads, False), lateness_s=5.0) as cluster:
        if is_reused:
            cluster.get(Node, "n")
        with pytest.raises(ClusterError):
            write(cluster)
        cluster.get(Node, "n")
    assert {received.verb for received in server.received} == {"GET"}


def test_connections_are_closed_when_the_lead_is_lost_just_before_the_end(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections that are being reset are closed by the end of the client, too."""
    server.on(POST, STORED)
    leads = iter([True])
    cluster = server.cluster(may_write=lambda: next(leads, False), lateness_s=5.0)
    with pytest.raises(ClusterError):
        cluster.create(NODE)
    cluster.close()
    gc.collect()
    assert not caplog.records


@pytest.mark.parametrize(("lateness_s", "time"), [(None, "30s"), (5.0, "5000ms")])
def test_the_server_gives_up_a_write_before_another_may_lead(
    server: ScriptedServer, lateness_s: float | None, time: str
) -> None:
    """The timeout parameter of the request ends before the lease does."""
    server.on(POST, STORED)
    with server.cluster(lateness_s=lateness_s) as cluster:
        cluster.create(NODE)
    assert [each.query["timeout"] for each in server.received] == [time]


def test_requests_are_observed(server: ScriptedServer) -> None:
    """Verb, status or error, host and duration, for metrics."""
    seen: list[tuple[str, str, str, float]] = []
    server.on(GET, fail(404))
    server.on(POST, hang_up)
    with server.cluster(observe=lambda *request: seen.append(request)) as cluster:
        calls: tuple[Callable[[], object], ...] = (
            lambda: cluster.get(Node, "n"),
            lambda: cluster.create(NODE),
        )
        for call in calls:
            with pytest.raises(ClusterError):
                call()

    host = server.url.removeprefix("http://")
    assert [request[:3] for request in seen] == [("GET", "404", host), ("POST", "<error>", host)]
    assert all(0 <= duration_s < 10 for *_, duration_s in seen)


def test_write_carries_its_timeout(server: ScriptedServer) -> None:
    """The server abandons requests whose caller has timed out."""
    server.on(POST, STORED)
    with server.cluster(timeout_s=4.5) as cluster:
        cluster.create(NODE)
    assert server.queries(POST) == [{"timeout": "5s"}]


def test_an_update_that_meets_another_one_is_made_again(server: ScriptedServer) -> None:
    """Without a version the last writer wins, on top of what the other one wrote."""
    newer = reply({"metadata": {"name": "n", "resourceVersion": "6"}, "spec": {"foreign": 1}})
    server.on(GET, STORED, newer)
    server.on(PUT, fail(409, "Conflict"), newer)
    with server.cluster() as cluster:
        cluster.update(Node(metadata=ObjectMeta(name="n", labels={"a": "b"})))

    bodies = [received.body for received in server.received if received.verb == "PUT"]
    assert [b'"foreign":1' in body for body in bodies] == [False, True]
    assert [b'"resourceVersion":"6"' in body for body in bodies] == [False, True]


def test_a_proxy_is_used(server: ScriptedServer) -> None:
    """The proxy gets the request for a server that is not reachable directly."""
    server.on(GET, STORED)
    with client("http://api.invalid", proxy_url=server.url) as cluster:
        assert cluster.get(Node, "n").metadata.uid == "1"
    assert server.received[0].headers["Host"] == "api.invalid"


def test_names_stay_in_their_place(server: ScriptedServer) -> None:
    """A name never becomes a part of the path."""
    with server.cluster() as cluster:
        for name in ("a/../b", "..", "x?y"):
            with pytest.raises(NotFoundError):
                cluster.get(Node, name)
    assert [received.path for received in server.received] == [
        "/api/v1/nodes/a/../b",
        "/api/v1/nodes/..",
        "/api/v1/nodes/x?y",
    ]


def test_closed_cluster_rejects_calls(server: ScriptedServer) -> None:
    """Closing twice is no mistake, going on is."""
    cluster = server.cluster()
    cluster.close()
    cluster.close()
    with pytest.raises(ClusterError, match="closed"):
        cluster.get(Node, "n")
    cluster.report([PodReport("default", "a", nominated_node="n")])  # never fails
