"""A binding ends in the truth, whatever happens to its answer."""

import json
from http import HTTPStatus

import pytest
from aiohttp import web
from tests.unit.cluster.kubernetes.objects import pod
from tests.unit.cluster.kubernetes.scripted_server import (
    PATIENCE_S,
    Answer,
    ScriptedServer,
    client,
    fail,
    hang_up,
    not_found,
    reply,
    stream,
)

from koordinator.cluster.kubernetes.binding import KubernetesBinds
from koordinator.cluster.port import Binding
from koordinator.foundation.errors import ClusterError, ConflictError, NotFoundError

BIND, GET = (
    "POST /api/v1/namespaces/default/pods/a/binding",
    "GET /api/v1/namespaces/default/pods/a",
)
DONE = reply({"kind": "Status", "status": "Success"}, HTTPStatus.CREATED)
CONFLICT = fail(HTTPStatus.CONFLICT, "Conflict", "pod a is already assigned")
BROKEN_OFF = fail(HTTPStatus.CONFLICT, "Conflict", "rpc error: error reading from server: EOF")
BINDING = Binding("default", "a", "n1", uid="a", annotations={"k": "v"})
LABELLED = Binding("default", "a", "n1", uid="a", annotations={"k": "v"}, labels={"l": "m"})
VERSION, LABEL = "GET /version", "PATCH /api/v1/namespaces/default/pods/a"


def bound(node: str = "n1", **annotations: str) -> Answer:
    """Answer with the pod on a node, empty for none."""
    result = pod("a", nodeName=node)
    result["metadata"]["annotations"] = annotations or {"k": "v", "other": "x"}
    return reply(result)


def outcome(
    server: ScriptedServer, binding: Binding = BINDING, **options: float
) -> ClusterError | None:
    with server.cluster(**options) as cluster:
        (result,) = cluster.bind([binding]).results()
    return result


def release(version: str) -> Answer:
    return reply({"gitVersion": version})


async def no_json(_: web.Request) -> web.Response:
    """Answer with a page, as a proxy does."""
    return web.Response(text="<html>")


def test_everything_travels_in_one_request(server: ScriptedServer) -> None:
    """With the uid as precondition, and seconds after which the server shall not do it any more."""
    server.on(VERSION, release("v1.35.0"))
    server.on(BIND, DONE)
    assert outcome(server, LABELLED) is None

    _, sent = server.received
    assert json.loads(sent.body) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "namespace": "default",
            "name": "a",
            "uid": "a",
            "annotations": {"k": "v"},
            "labels": {"l": "m"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    assert sent.query == {"timeout": "5s"}


@pytest.mark.parametrize(
    "version",
    [
        release("v1.34.4"),
        release("v1.33.13"),
        not_found,
        release("main"),
        reply({}),
        reply({"gitVersion": 1}),
        no_json,
    ],
    ids=["1.34", "1.33", "not found", "no release", "no version", "no text", "no JSON"],
)
def test_labels_come_first_where_the_server_drops_those_of_bindings(
    server: ScriptedServer, version: Answer
) -> None:
    """The server is asked once for its version; without labels it is not asked at all."""
    server.on(VERSION, version)
    server.on(LABEL, reply(pod("a")))
    server.on(BIND, DONE)
    with server.cluster() as cluster:
        for binding in (BINDING, LABELLED, LABELLED):
            assert cluster.bind([binding]).results() == [None]

    assert [str(each) for each in server.received] == [BIND, VERSION, LABEL, BIND, LABEL, BIND]
    sent = server.received[2]
    assert json.loads(sent.body) == {"metadata": {"uid": "a", "labels": {"l": "m"}}}
    assert sent.headers["Content-Type"] == "application/merge-patch+json"
    assert sent.query == {"timeout": "5s"}


def test_a_pod_whose_labels_are_refused_is_not_bound(server: ScriptedServer) -> None:
    server.on(VERSION, release("v1.34.4"))
    server.on(LABEL, fail(HTTPStatus.CONFLICT, "Conflict", "the UID in the precondition differs"))
    assert isinstance(outcome(server, LABELLED), ConflictError)
    assert server.count(BIND) == 0


@pytest.mark.parametrize("lost", [hang_up, fail(500), fail(504), BROKEN_OFF])
def test_a_lost_answer_may_have_been_success(server: ScriptedServer, lost: Answer) -> None:
    """The pod is on the node with what we wrote: that was us."""
    server.on(BIND, lost)
    server.on(GET, bound())
    assert outcome(server) is None
    assert server.count(BIND) == 1


@pytest.mark.slow
def test_a_lost_answer_may_have_been_nothing(server: ScriptedServer) -> None:
    """The pod has no node yet: bind it again, and again ask if even that is unclear."""
    server.on(BIND, hang_up, CONFLICT)
    server.on(GET, bound(""), bound())
    assert outcome(server) is None
    assert server.count(BIND) == 2


@pytest.mark.slow
def test_bind_is_retried_after_an_error_of_etcd(server: ScriptedServer) -> None:
    """The API server reports a conflict, but the pod is still unbound: the bind is retried."""
    server.on(BIND, BROKEN_OFF, DONE)
    server.on(GET, bound(""))
    assert outcome(server) is None
    assert server.count(BIND) == 2


@pytest.mark.parametrize("pod_now", [bound("n2"), bound("n1", k="somebody else's")])
def test_bind_conflicts_with_another_binding_of_the_pod(
    server: ScriptedServer, pod_now: Answer
) -> None:
    """The pod is on another node, or on the same one with other devices."""
    server.on(BIND, hang_up)
    server.on(GET, pod_now)
    assert isinstance(outcome(server), ConflictError)


def test_bind_of_a_deleted_pod_fails(server: ScriptedServer) -> None:
    """The bind fails as well if a new pod has the name of the deleted one."""
    server.on(BIND, hang_up)
    assert isinstance(outcome(server), NotFoundError)
    server.on(GET, reply(pod("a", uid="another")))
    assert isinstance(outcome(server), ConflictError)


def test_a_refusal_is_final(server: ScriptedServer) -> None:
    """Nothing is asked if the answer is clear."""
    server.on(BIND, CONFLICT)
    assert isinstance(outcome(server), ConflictError)
    assert len(server.received) == 1


def test_bind_is_retried_on_a_busy_server(server: ScriptedServer) -> None:
    """A busy server has done nothing yet, so the pod need not be read."""
    server.on(BIND, fail(429, Retry_After="0"), DONE)
    assert outcome(server) is None
    assert server.count(GET) == 0


def test_a_server_that_is_away_ends_it_in_time() -> None:
    """The caller gets an error, unreserves the node and retries later."""
    with client("http://127.0.0.1:9", timeout_s=0.1) as cluster:
        (result,) = cluster.bind([BINDING]).results()
    assert type(result).__name__ == "UnreachableError"


def test_bindings_stop_when_leadership_is_lost(server: ScriptedServer) -> None:
    """Binds that are still in the queue are not sent."""
    server.on(BIND, DONE)
    leads = iter([True, True])
    with server.cluster(may_write=lambda: next(leads, False), binds_in_flight=1) as cluster:
        results = cluster.bind([BINDING] * 5).results()
    assert [result is None for result in results] == [True, True, False, False, False]
    assert "no longer the leader" in str(results[-1])
    assert len(server.received) == 2


def test_number_of_binds_in_flight_is_bounded(server: ScriptedServer) -> None:
    """Bindings are sent in the order of the calls."""
    flying, most = 0, 0

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        response = await DONE(request)
        flying -= 1
        return response

    names = [f"p{i}" for i in range(50)]
    for name in names:
        server.on(f"POST /api/v1/namespaces/default/pods/{name}/binding", slow)
    with server.cluster(binds_in_flight=3) as cluster:
        cluster.bind([Binding("default", name, "n") for name in names]).results()

    assert most <= 3
    arrived = [received.path.split("/")[-2] for received in server.received]
    assert all(names.index(name) - i < 3 for i, name in enumerate(arrived))  # none overtakes more


def test_results_come_as_they_end(server: ScriptedServer) -> None:
    """By their place in the batch; waiting ends when there is one."""
    server.on(BIND, stream())
    server.on(BIND.replace("/a/", "/b/"), DONE)
    with server.cluster() as cluster:
        binds = cluster.bind([BINDING, Binding("default", "b", "n")])
        assert cluster.wait(PATIENCE_S)
        assert binds.finished() == [(1, None)]
        assert binds.finished() == []
        assert not cluster.wait(0)


def test_an_empty_batch_is_done(server: ScriptedServer) -> None:
    """An empty batch sends no request."""
    with server.cluster() as cluster:
        assert cluster.bind([]).results() == []


def test_closing_ends_binds_in_flight(server: ScriptedServer) -> None:
    """Pending results end with an error, so that no caller blocks."""
    server.on(BIND, stream())
    with server.cluster(binds_in_flight=1) as cluster:
        binds: KubernetesBinds = cluster.bind([BINDING] * 3)
        server.wait_for(BIND)
    assert ["closed" in str(error) for error in binds.results()] == [True] * 3


def test_bind_of_a_missing_pod_fails(server: ScriptedServer) -> None:
    """The error is the same as for other verbs."""
    server.on(BIND, not_found)
    assert isinstance(outcome(server), NotFoundError)
