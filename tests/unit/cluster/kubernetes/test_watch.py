"""A refreshed watch has everything that happened before, which lists of versions prove."""

import asyncio
import json
import threading

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.cluster.kubernetes.objects import PODS, event, pod, pod_list
from tests.unit.cluster.kubernetes.scripted_server import (
    PATIENCE_S,
    Answer,
    ScriptedServer,
    fail,
    reply,
    stream,
)

from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.mailbox import Lines
from koordinator.cluster.kubernetes.pages import ListPage, ObjectVersion, VersionList
from koordinator.cluster.kubernetes.watch import View
from koordinator.cluster.port import EventType, Watch, WatchEvent

LIST, WATCH = f"GET {PODS}", f"WATCH {PODS}"
BEGUN = event("ADDED", pod("begun", "2"))  # shows that the client reads the stream
QUIET = stream(BEGUN)
WORLD = dict[str, tuple[int, str]]  # name: version, UID

CHANGES = st.lists(st.tuples(st.booleans(), st.sampled_from("ab")), min_size=4, max_size=12)


def worlds_of(changes: list[tuple[bool, str]]) -> tuple[list[WORLD], list[bytes]]:
    """Return the states of a history, the first one empty, and the events between them."""
    worlds: list[WORLD] = [{}]
    events = []
    for is_deletion, name in changes:
        world, version = dict(worlds[-1]), len(worlds)
        if is_deletion and name not in world:
            continue
        known = world.get(name)
        uid = known[1] if known else f"{name}-{version}"
        world[name] = (version, uid)
        kind = "DELETED" if is_deletion else "MODIFIED" if known else "ADDED"
        events.append(event(kind, pod(name, str(version), uid=uid)))
        if is_deletion:
            del world[name]
        worlds.append(world)
    return worlds, events


@settings(max_examples=examples(200))
@given(changes=CHANGES, data=st.data())
def test_a_refresh_ends_exactly_with_what_happened_before(
    changes: list[tuple[bool, str]], data: st.DataObject
) -> None:
    """Whenever it begins, and however late the stream and the list of versions are.

    It ends neither while something is missing or stale, nor later than its last event.
    """
    worlds, events = worlds_of(changes)
    last = len(events)
    begun = data.draw(st.integers(0, last), "events at the request")
    listed = data.draw(st.integers(begun, last), "events in the list")
    compared = data.draw(st.integers(begun, last), "events when the list arrives")
    view = View(Pod)
    list(view.apply(ListPage(json.dumps(pod_list()).encode(), is_first=True)))
    versions = VersionList(
        tuple(
            ObjectVersion(name, "default", uid, str(version))
            for name, (version, uid) in worlds[listed].items()
        ),
        str(listed),
        refresh=1,
    )
    for count in range(last + 1):
        if count == begun:
            view.begin_refresh()
        if count == compared:
            list(view.apply(versions))
        is_same = worlds[count] == worlds[listed]
        if count < compared:
            assert view.refresh == 0
        elif count >= listed:
            assert view.refresh == 1
        elif view.refresh:
            assert is_same
            return
        else:
            assert not is_same
        if count < last:
            list(view.apply(Lines([events[count]])))


def until_bookmark(cluster: KubernetesCluster, watch: Watch) -> list[tuple[str, str]]:
    """Return type and name of the events before the next bookmark."""
    events: list[tuple[str, str]] = []
    while True:
        cluster.wait(PATIENCE_S)
        for each in watch.poll():
            if each.type is EventType.BOOKMARK:
                return events
            events.append((each.type.value, each.object.metadata.name))


def follow(cluster: KubernetesCluster) -> Watch:
    """Return a watch of pods whose stream has begun."""
    watch = cluster.watch([Pod], {Pod: "status.phase!=Failed"})
    names: list[str] = []
    while "begun" not in names and "b" not in names:
        cluster.wait(PATIENCE_S)
        names += [each.object.metadata.name for each in watch.poll()]
    return watch


def streams_when(allowed: threading.Event, *lines: bytes) -> Answer:
    """Answer with a stream that is silent after its first event until ``allowed`` is set."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(BEGUN + b"\n")
        await asyncio.to_thread(allowed.wait, PATIENCE_S)
        for line in lines:
            await response.write(line + b"\n")
        await asyncio.sleep(PATIENCE_S)
        return response

    return answer


def listed(*pods: JsonObject, version: str = "9") -> Answer:
    """Answer with a list."""
    return reply(pod_list(*pods, version=version))


def test_a_stream_without_missed_events_is_continued(server: ScriptedServer) -> None:
    """The metadata of the objects is requested, once, and no stream is opened."""
    server.on(LIST, listed(pod("a")), listed(pod("a"), pod("begun", "2")))
    server.on(WATCH, QUIET)
    with server.cluster() as cluster:
        watch = follow(cluster)
        watch.refresh()
        assert until_bookmark(cluster, watch) == []

        assert server.count(WATCH) == 1
        first, second = (each for each in server.received if str(each) == LIST)
        assert "PartialObjectMetadataList" not in first.headers["Accept"]
        assert "PartialObjectMetadataList" in second.headers["Accept"]
        assert second.query["fieldSelector"] == "status.phase!=Failed"


def test_a_refresh_waits_for_the_stream(server: ScriptedServer) -> None:
    """Changes that the stream has not delivered yet come before the bookmark."""
    allowed = threading.Event()
    changes = (event("DELETED", pod("a", "8")), event("ADDED", pod("b", "9")))
    after = (pod("b", "9"), pod("begun", "2"))
    server.on(LIST, listed(pod("a"), version="1"), listed(*after))
    server.on(WATCH, streams_when(allowed, *changes))
    with server.cluster() as cluster:
        watch = follow(cluster)
        watch.refresh()
        server.wait_for(LIST, 2)
        cluster.wait(0.1)
        assert watch.poll() == []
        allowed.set()

        assert until_bookmark(cluster, watch) == [("DELETED", "a"), ("ADDED", "b")]
        assert server.count(LIST) == 2


@pytest.mark.slow
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_stream_that_is_silent_is_replaced_by_a_list(
    server: ScriptedServer, *, is_refused: bool
) -> None:
    """A server that can't list versions sends a complete list."""
    after = (pod("b", "9"), pod("begun", "2"))
    versions = fail(400, "BadRequest") if is_refused else listed(*after)
    server.on(LIST, listed(pod("a"), version="1"), versions, listed(*after))
    server.on(WATCH, QUIET)
    with server.cluster() as cluster:
        watch = follow(cluster)
        watch.refresh()
        events: list[WatchEvent] = []
        while not events:
            cluster.wait(0.1)  # as a loop does, whose waits are short
            events += watch.poll()
        types_and_names = [(each.type.value, each.object.metadata.name) for each in events]

        assert types_and_names[:2] == [("ADDED", "b"), ("DELETED", "a")]
        assert server.count(LIST) == 3


def test_a_list_of_versions_that_is_no_text_is_replaced_by_a_list(server: ScriptedServer) -> None:
    """Like a server that can't list versions; no object can have such a name."""

    async def damaged(_: web.Request) -> web.StreamResponse:
        text = b'{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"\xff"}}]}'
        return web.Response(body=text, content_type="application/json")

    after = (pod("b", "9"), pod("begun", "2"))
    server.on(LIST, listed(pod("a"), version="1"), damaged, listed(*after))
    server.on(WATCH, QUIET)
    with server.cluster() as cluster:
        watch = follow(cluster)
        watch.refresh()

        assert until_bookmark(cluster, watch) == [("ADDED", "b"), ("DELETED", "a")]


@pytest.mark.slow
def test_the_stream_is_opened_again_after_a_refresh(server: ScriptedServer) -> None:
    """The old connection may be dead though no event was missed; events come exactly once."""
    server.on(LIST, listed(pod("a"), version="1"), listed(pod("a"), pod("b", "6")))
    server.on(
        WATCH, stream(event("ADDED", pod("b", "6"))), stream(event("MODIFIED", pod("b", "7")))
    )
    with server.cluster() as cluster:
        watch = follow(cluster)
        watch.refresh()
        assert until_bookmark(cluster, watch) == []
        events: list[tuple[str, str]] = []
        while not events:
            cluster.wait(PATIENCE_S)
            events = [(e.type.value, e.object.metadata.resource_version) for e in watch.poll()]

    assert events == [("MODIFIED", "7")]
    assert [query["resourceVersion"] for query in server.queries(WATCH)] == ["1", "6"]
