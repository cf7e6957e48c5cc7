"""Watches survive what servers and networks do to them."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from aiohttp import web
from tests.unit.cluster.kubernetes.objects import PODS, bookmark, event, gone_error, pod, pod_list
from tests.unit.cluster.kubernetes.scripted_server import (
    PATIENCE_S,
    Answer,
    ScriptedServer,
    eventually,
    fail,
    hang_up,
    not_found,
    reply,
    stream,
)

from koordinator.api.device import Device
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.port import EventType, Watch, WatchEvent
from koordinator.foundation.errors import InvalidError

LIST, WATCH = f"GET {PODS}", f"WATCH {PODS}"
NODES = "/api/v1/nodes"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
QUIET = stream()


def take(cluster: KubernetesCluster, watch: Watch, count: int) -> list[WatchEvent]:
    """Return so many events, the bookmark not counted."""
    events: list[WatchEvent] = []
    while len(events) < count:
        assert cluster.wait(PATIENCE_S)
        events += [e for e in watch.poll() if e.type is not EventType.BOOKMARK]
    return events


def seen(events: Sequence[WatchEvent]) -> list[tuple[str, str, str]]:
    """Return type, name and version."""
    metas = [(e.type.value, e.object.metadata) for e in events]
    return [(kind, meta.name, meta.resource_version) for kind, meta in metas]


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    """Return what we logged; the scripted server has its own opinions."""
    ours = [r for r in caplog.records if r.name.startswith("koordinator")]
    return [r.__dict__ for r in ours]


def test_an_ended_stream_resumes_at_its_resource_version(server: ScriptedServer) -> None:
    """Bookmarks count as progress."""
    server.on(LIST, reply(pod_list(pod("a"), version="5")))
    server.on(
        WATCH,
        stream(event("ADDED", pod("b", "6")), then_wait=False),
        stream(bookmark("9"), then_wait=False),
        stream(event("MODIFIED", pod("b", "10"))),
    )
    with server.cluster() as cluster:
        events = take(cluster, cluster.watch([Pod]), 3)

    assert seen(events) == [("ADDED", "a", "1"), ("ADDED", "b", "6"), ("MODIFIED", "b", "10")]
    assert events[2].previous is events[1].object
    assert [query["resourceVersion"] for query in server.queries(WATCH)] == ["5", "6", "9"]
    assert all(300 <= int(query["timeoutSeconds"]) <= 600 for query in server.queries(WATCH))
    assert {query["allowWatchBookmarks"] for query in server.queries(WATCH)} == {"true"}
    assert server.count(LIST) == 1


@pytest.mark.parametrize("answer", [fail(410, "Expired"), stream(gone_error(), then_wait=False)])
def test_expired_version_is_recovered_by_a_list(server: ScriptedServer, answer: Answer) -> None:
    """Lost changes are delivered as a difference; unchanged objects are not."""
    before = [pod("changed"), pod("deleted"), pod("same"), pod("replaced")]
    after = [pod("added"), pod("changed", "8"), pod("same"), pod("replaced", "9", uid="new")]
    server.on(LIST, reply(pod_list(*before)), reply(pod_list(*after, version="9")))
    server.on(WATCH, answer, QUIET)
    with server.cluster() as cluster:
        watch = cluster.watch([Pod])
        events = take(cluster, watch, 4 + 5)[4:]

    assert seen(events) == [
        ("ADDED", "added", "1"),
        ("MODIFIED", "changed", "8"),
        ("DELETED", "replaced", "1"),
        ("ADDED", "replaced", "9"),
        ("DELETED", "deleted", "1"),
    ]


def test_an_error_in_the_stream_loses_nothing(server: ScriptedServer) -> None:
    """Events before the error count, even if they arrive in one chunk with it."""
    error = event("ERROR", {"kind": "Status", "code": 410, "message": "old"})
    server.on(LIST, reply(pod_list(version="1")), reply(pod_list(pod("a", "2"), version="3")))
    server.on(WATCH, stream(event("ADDED", pod("a", "2")), error, then_wait=False), QUIET)
    with server.cluster() as cluster:
        watch = cluster.watch([Pod])
        server.wait_for(WATCH, 2)
        assert seen(take(cluster, watch, 1)) == [("ADDED", "a", "2")]
        assert watch.poll() == []


@pytest.mark.slow
def test_lists_do_not_depend_on_the_watch_cache(server: ScriptedServer) -> None:
    """A server whose watch cache is behind rejects versions; lists of the newest need none."""
    behind = fail(504, "Timeout", "Too large resource version: 9, current: 1")
    server.on(LIST, behind, reply(pod_list(version="5")), reply(pod_list(pod("a"), version="3")))
    server.on(WATCH, behind, behind, behind, QUIET)
    with server.cluster() as cluster:
        watch = cluster.watch([Pod])
        assert seen(take(cluster, watch, 1)) == [("ADDED", "a", "1")]
        server.wait_for(WATCH, 4)

    assert not any("resourceVersion" in query for query in server.queries(LIST))
    assert [query["resourceVersion"] for query in server.queries(WATCH)] == ["5", "5", "5", "3"]


@pytest.mark.slow
def test_a_silent_stream_is_cut(server: ScriptedServer) -> None:
    """A dead connection may show no error, so another one is opened."""
    server.on(LIST, reply(pod_list(version="5")))
    server.on(WATCH, stream(), stream(event("ADDED", pod("a", "6"))))
    with server.cluster(silence_s=0.5) as cluster:
        watch = cluster.watch([Pod])
        server.wait_for(WATCH, 1)
        assert seen(take(cluster, watch, 1)) == [("ADDED", "a", "6")]


@pytest.mark.slow
def test_an_idle_cluster_reports_no_events(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Streams that end because nothing happens are opened again, without a warning."""
    caplog.set_level("INFO")
    server.on(LIST, reply(pod_list(version="5")))
    server.on(WATCH, stream(), stream(event("ADDED", pod("a", "6"))))
    with server.cluster(silence_s=1.1) as cluster:
        watch = cluster.watch([Pod])
        server.wait_for(WATCH, 1)
        assert seen(take(cluster, watch, 1)) == [("ADDED", "a", "6")]
    assert logged(caplog) == []


@pytest.mark.slow
def test_a_server_that_fails_is_tried_again(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """An outage is logged when it begins and when it is over."""
    caplog.set_level("INFO")
    server.on(LIST, reply(pod_list(pod("a"), version="5")))
    server.on(WATCH, hang_up, hang_up, stream(event("ADDED", pod("b", "6"))))
    with server.cluster() as cluster:
        assert len(take(cluster, cluster.watch([Pod]), 2)) == 2

    messages = [record["message"] for record in logged(caplog)]
    assert messages == ["watch interrupted: trying again", "watch resumed"]


def test_undecodable_objects_are_left_out(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """An earlier version that was delivered stays until the object is deleted."""
    server.on(LIST, reply(pod_list(pod("known"), pod("never", nodeName=1))))
    server.on(
        WATCH,
        stream(
            event("MODIFIED", pod("known", "2", nodeName=1)),
            event("MODIFIED", pod("never", "3", nodeName=1)),
            event("DELETED", pod("never", "4", nodeName=1)),
            event("DELETED", pod("known", "5", nodeName=1)),
            event("ADDED", pod("last", "6")),
        ),
    )
    with server.cluster() as cluster:
        events = take(cluster, cluster.watch([Pod]), 3)

    assert seen(events) == [
        ("ADDED", "known", "1"),
        ("DELETED", "known", "1"),
        ("ADDED", "last", "6"),
    ]
    assert {record["object"] for record in logged(caplog)} == {
        "default/known",
        "default/never",
    }


def test_garbage_in_the_stream_is_survived(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The kind is listed again, since the last version is unknown."""
    server.on(LIST, reply(pod_list()), reply(pod_list(pod("a"), pod("b"), version="3")))
    server.on(WATCH, stream(event("ADDED", pod("a")), b"<html>", then_wait=False), QUIET)
    with server.cluster() as cluster:
        events = take(cluster, cluster.watch([Pod]), 2)

    assert seen(events) == [("ADDED", "a", "1"), ("ADDED", "b", "1")]
    assert "not valid JSON" in logged(caplog)[0]["error"]


def test_listed_object_that_became_undecodable_stays(server: ScriptedServer) -> None:
    """The object exists, so its amounts must not become free."""
    server.on(
        LIST,
        reply(pod_list(pod("a"))),
        reply(pod_list(pod("a", "2", nodeName=1), pod("b"), version="3")),
    )
    server.on(WATCH, fail(410), QUIET)
    with server.cluster() as cluster:
        events = take(cluster, cluster.watch([Pod]), 2)
    assert seen(events) == [("ADDED", "a", "1"), ("ADDED", "b", "1")]


def test_the_start_waits_for_the_kinds_named_first(server: ScriptedServer) -> None:
    """The order of responses has no influence; changes wait until the start is complete."""
    nodes_may_come = threading.Event()
    slow_nodes = reply(
        {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "n"}}]}
    )

    async def nodes(request: web.Request) -> web.StreamResponse:
        await asyncio.to_thread(nodes_may_come.wait, PATIENCE_S)
        return await slow_nodes(request)

    server.on(f"GET {NODES}", nodes)
    server.on(f"WATCH {NODES}", QUIET)
    server.on(LIST, reply(pod_list(pod("a"))))
    server.on(WATCH, stream(event("MODIFIED", pod("a", "2"))))
    with server.cluster() as cluster:
        watch = cluster.watch([Node, Pod])
        server.wait_for(WATCH)
        assert watch.poll() == []
        assert not cluster.wait(0), "what cannot be delivered yet is no news"
        nodes_may_come.set()
        events: list[WatchEvent] = []
        while len(events) < 4 and cluster.wait(PATIENCE_S):
            events += watch.poll()

    kinds = [(event.type.value, type(event.object)) for event in events]
    assert kinds == [
        ("ADDED", Node),
        ("ADDED", Pod),
        ("BOOKMARK", KubeObject),
        ("MODIFIED", Pod),
    ]


def test_a_kind_that_is_not_installed_is_empty_until_it_is(server: ScriptedServer) -> None:
    """Other kinds aren't delayed, and its removal deletes all objects."""
    device = {"metadata": {"name": "n1", "resourceVersion": "1", "uid": "1"}, "spec": {}}
    installed = reply({"metadata": {"resourceVersion": "2"}, "items": [device]})
    server.on(f"GET {DEVICES}", not_found, not_found, installed, not_found)
    server.on(f"WATCH {DEVICES}", QUIET)
    with server.cluster() as cluster:
        watch = cluster.watch([Device])
        bookmarks = 0
        kinds: list[str] = []
        for _ in range(4):
            while bookmarks == kinds.count("BOOKMARK"):
                assert cluster.wait(PATIENCE_S)
                kinds += [event.type.value for event in watch.poll()]
            bookmarks = kinds.count("BOOKMARK")
            watch.refresh()

    assert kinds == ["BOOKMARK", "BOOKMARK", "ADDED", "BOOKMARK", "DELETED", "BOOKMARK"]


def test_a_refused_selector_is_an_error(server: ScriptedServer) -> None:
    """Nothing would ever come."""
    server.on(LIST, fail(400, "BadRequest", "field label not supported: a"))
    with server.cluster() as cluster:
        watch = cluster.watch([Pod], {Pod: "a=b"})
        assert cluster.wait(PATIENCE_S)
        with pytest.raises(InvalidError, match="field label not supported"):
            watch.poll()


@pytest.mark.slow
def test_forbidden_watch_is_retried(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The permission may be granted later; the log names it."""
    server.on(LIST, fail(403, "Forbidden", "pods is forbidden"), reply(pod_list(pod("a"))))
    server.on(WATCH, QUIET)
    with server.cluster() as cluster:
        assert len(take(cluster, cluster.watch([Pod], {Pod: "a=b"}), 1)) == 1
    assert "pods is forbidden" in logged(caplog)[0]["error"]


@pytest.mark.slow
def test_stream_pauses_without_polling(server: ScriptedServer) -> None:
    """Memory stays bounded: at most some megabytes wait, the rest stays in the server."""
    written = 0
    big = event("MODIFIED", pod("a", "2", hostname="x" * 1_000_000))

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(60):
            await response.write(big + b"\n")
            written += 1
        return response

    server.on(LIST, reply(pod_list()))
    server.on(WATCH, flood)
    with server.cluster() as cluster:
        watch = cluster.watch([Pod])
        assert cluster.wait(PATIENCE_S)
        assert eventually(lambda: written >= 8)
        seen = -1
        while seen < written:  # no event marks the end of writing
            seen = written
            threading.Event().wait(0.3)
        assert written <= 40
        while written < 60:
            assert cluster.wait(PATIENCE_S)
            watch.poll()


def test_a_closed_watch_leaves_the_server_alone(server: ScriptedServer) -> None:
    """The cluster client works after one of its watches was closed."""
    server.on(LIST, reply(pod_list()))
    server.on(WATCH, QUIET)
    with server.cluster() as cluster:
        watch = cluster.watch([Pod])
        server.wait_for(WATCH)
        watch.close()
        watch.close()
        assert watch.poll() == []
        assert not cluster.wait(0)
        assert cluster.list(Pod).items == []
