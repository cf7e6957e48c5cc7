"""Watch of pods that the kubelet serves instead of the API server."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from tests.unit.cluster.kubernetes.objects import PODS, pod, pod_list
from tests.unit.cluster.kubernetes.scripted_server import (
    PATIENCE_S,
    ScriptedServer,
    eventually,
    fail,
    hang_up,
    reply,
)

from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.kubelet_pods import PATH, KubeletSource
from koordinator.cluster.port import EventType, Watch, WatchEvent

POD_LIST, NODE = f"GET {PATH}", "GET /api/v1/nodes/n1"
QUICK = {"interval_s": 0.02, "timeout_s": PATIENCE_S}


def node(port: int = 10250, **addresses: str) -> JsonObject:
    """Return a Node as its kubelet registers it."""
    result = addresses or {"InternalIP": "127.0.0.1"}
    return {
        "metadata": {"name": "n1"},
        "status": {
            "addresses": [{"type": kind, "address": text} for kind, text in result.items()],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    }


class Observer:
    """Running pods and problems of the source under test."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.running: frozenset[str] = frozenset()

    def observe(self, path: str, status: str, seconds: float) -> None:
        assert seconds >= 0
        self.requests.append((path, status))


@pytest.fixture
def kubelet() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@contextmanager
def watching(
    server: ScriptedServer,
    kubelet: ScriptedServer,
    observer: Observer,
    stated: JsonObject | None = None,
    **options: Any,
) -> Iterator[tuple[KubernetesCluster, Watch]]:
    """Watch pods of a kubelet that listens in plain HTTP; ``stated`` is its Node."""
    port = urlsplit(kubelet.url).port
    assert port is not None
    server.on(NODE, reply(node() if stated is None else stated))
    source = KubeletSource(
        node_name="n1",
        running=lambda: observer.running,
        observe=observer.observe,
        on_problem=observer.problems.append,
        **{"read_only_port": port, **QUICK, **options},
    )
    cluster = server.cluster(kubelet=source)
    try:
        yield cluster, cluster.watch([Pod])
    finally:
        cluster.close()


def next_events(cluster: KubernetesCluster, watch: Watch, count: int = 1) -> list[WatchEvent]:
    """Return what comes next, but for bookmarks."""
    events: list[WatchEvent] = []
    while len(events) < count:
        assert cluster.wait(PATIENCE_S), f"nothing came after {names(events)}"
        events += [event for event in watch.poll() if event.type is not EventType.BOOKMARK]
    return events


def names(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(event.type.value, event.object.metadata.name) for event in events]


def test_pods_come_change_and_go(server: ScriptedServer, kubelet: ScriptedServer) -> None:
    """Changes arrive as events; the API server gets a request for the node and none for pods."""
    kubelet.on(
        POD_LIST,
        reply(pod_list(pod("a"), pod("b"))),
        reply(pod_list(pod("a", "2"), pod("c"))),
        reply(pod_list(pod("a", "2"), pod("c", uid="another"))),
    )
    observer = Observer()
    with watching(server, kubelet, observer) as (cluster, watch):
        assert names(next_events(cluster, watch, 7)) == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("MODIFIED", "a"),
            ("ADDED", "c"),
            ("DELETED", "b"),
            ("DELETED", "c"),
            ("ADDED", "c"),
        ]
    assert observer.problems == []
    assert set(observer.requests) == {(PATH, "200")}
    assert not [it for it in server.received if it.path == PODS]


@pytest.mark.parametrize("version", ["", "7"])
def test_pods_change_without_another_version(
    server: ScriptedServer, kubelet: ScriptedServer, version: str
) -> None:
    """The kubelet gives static pods none, and others keep theirs when only their status changes."""
    made = pod("p", version)
    started = {**made, "status": {"phase": "Running"}}
    kubelet.on(POD_LIST, reply(pod_list(made)), reply(pod_list(started)))
    with watching(server, kubelet, Observer()) as (cluster, watch):
        events = names(next_events(cluster, watch, 2))
    assert events == [("ADDED", "p"), ("MODIFIED", "p")]


@pytest.mark.parametrize("empty", [pod_list(), {"kind": "PodList", "items": None}, {}])
def test_a_pod_that_runs_is_not_forgotten(
    server: ScriptedServer, kubelet: ScriptedServer, empty: JsonObject
) -> None:
    """A kubelet that just started lists no pods; only pods without processes are deleted."""
    kubelet.on(POD_LIST, reply(pod_list(pod("a"), pod("b"))), reply(empty))
    observer = Observer()
    observer.running = frozenset({"a"})
    with watching(server, kubelet, observer) as (cluster, watch):
        assert names(next_events(cluster, watch, 3))[2:] == [("DELETED", "b")]
        observer.running = frozenset()
        assert names(next_events(cluster, watch)) == [("DELETED", "a")]


def test_a_node_without_pods_is_known_as_such(
    server: ScriptedServer, kubelet: ScriptedServer
) -> None:
    """The start is over with an empty list, too."""
    kubelet.on(POD_LIST, reply({"kind": "PodList", "items": None}))
    with watching(server, kubelet, Observer()) as (cluster, watch):
        assert cluster.wait(PATIENCE_S)
        assert [event.type for event in watch.poll()] == [EventType.BOOKMARK]


def test_new_pods_are_requested_immediately(
    server: ScriptedServer, kubelet: ScriptedServer
) -> None:
    """The request does not wait for the end of the polling interval."""
    kubelet.on(POD_LIST, reply(pod_list(pod("a"))), reply(pod_list(pod("a"), pod("b"))))
    observer = Observer()
    with watching(server, kubelet, observer, interval_s=3600.0) as (cluster, watch):
        next_events(cluster, watch)
        observer.running = frozenset({"b"})
        assert names(next_events(cluster, watch)) == [("ADDED", "b")]


async def hang(_: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.sleep(PATIENCE_S)
    return web.Response()


async def drip(request: web.Request) -> web.StreamResponse:
    """Answer a byte now and then."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("answer", "status", "problem"),
    [
        (hang, "<error>", "does not answer within 0.2 s"),
        (drip, "<error>", "does not answer within 0.2 s"),
        (fail(401), "401", "answered 401"),
        (fail(403), "403", "the user must be allowed to get nodes/proxy"),
        (fail(302, location="http://127.0.0.1:1/pods/"), "302", "answered 302"),
        (reply("no JSON"), "200", "the answer is no list"),
        (reply('{"items": 5}'), "200", "the answer is no list"),
        (reply("[" * 5000), "200", "the answer is no list"),
    ],
)
def test_failing_kubelet_is_reported_and_retried(
    server: ScriptedServer, kubelet: ScriptedServer, answer: Any, status: str, problem: str
) -> None:
    """Pods keep their last known state."""
    kubelet.on(POD_LIST, reply(pod_list(pod("a"))))
    observer = Observer()
    timeout_s = 0.2 if "within" in problem else PATIENCE_S
    with watching(server, kubelet, observer, timeout_s=timeout_s) as (cluster, watch):
        assert names(next_events(cluster, watch)) == [("ADDED", "a")]
        kubelet.on(POD_LIST, answer)
        assert eventually(lambda: any(problem in it for it in observer.problems)), observer.problems
        kubelet.on(POD_LIST, reply(pod_list(pod("a", "2"))))
        assert names(next_events(cluster, watch)) == [("MODIFIED", "a")]
        assert eventually(lambda: observer.problems[-1:] == [""]), observer.problems
    assert (PATH, status) in observer.requests


def test_recovered_kubelet_is_polled_without_the_api_server(
    server: ScriptedServer, kubelet: ScriptedServer
) -> None:
    """The address of the kubelet is known from the first read of the node."""
    kubelet.on(POD_LIST, reply(pod_list(pod("a"))))
    with watching(server, kubelet, Observer(), timeout_s=0.2) as (cluster, watch):
        next_events(cluster, watch)
        server.on(NODE, hang_up)
        kubelet.on(POD_LIST, fail(500), reply(pod_list(pod("b"))))
        assert names(next_events(cluster, watch)) == [("ADDED", "b"), ("DELETED", "a")]


def test_undecodable_pod_does_not_affect_the_others(
    server: ScriptedServer, kubelet: ScriptedServer
) -> None:
    """As from the API server."""
    odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": 5}
    kubelet.on(POD_LIST, reply(pod_list(odd, pod("a"))))
    with watching(server, kubelet, Observer()) as (cluster, watch):
        assert names(next_events(cluster, watch)) == [("ADDED", "a")]


@pytest.mark.parametrize(
    ("stated", "options", "problem"),
    [
        (node(Hostname="n1"), {}, "no address of type InternalIP; it has Hostname"),
        (node(0), {"read_only_port": 0}, "does not tell the kubelet's port"),
        ({"metadata": {}}, {}, "no address"),
    ],
)
def test_node_without_kubelet_endpoint_is_reported(
    server: ScriptedServer, kubelet: ScriptedServer, stated: Any, options: Any, problem: str
) -> None:
    """The problem is reported."""
    observer = Observer()
    with watching(server, kubelet, observer, stated, **options):
        assert eventually(lambda: any(problem in it for it in observer.problems)), observer.problems


def test_credentials_are_not_sent_to_an_unverified_kubelet(
    server: ScriptedServer, kubelet: ScriptedServer, tmp_path: Path
) -> None:
    """A server that speaks plain HTTP at the kubelet's port gets no request at all."""
    observer = Observer()
    port = urlsplit(kubelet.url).port
    assert port is not None
    options = {"read_only_port": 0, "authorities": (tmp_path / "no",)}
    with watching(server, kubelet, observer, node(port), **options):
        server.wait_for(NODE, 3)
        assert eventually(lambda: any("does not answer" in it for it in observer.problems)), (
            observer.problems
        )
    assert kubelet.received == []
