"""Watch of one object calls back early, and never fails."""

import threading

import aiohttp
import pytest
from tests.unit.cluster.kubernetes.objects import event
from tests.unit.cluster.kubernetes.scripted_server import PATIENCE_S, ScriptedServer, fail, stream

from koordinator.api.control_plane import Lease

PATH = "/apis/coordination.k8s.io/v1/namespaces/system/leases"
WATCH = f"WATCH {PATH}"
LEASE = {"metadata": {"name": "one", "namespace": "system", "resourceVersion": "7"}}


def test_changes_of_one_object_are_signalled(server: ScriptedServer) -> None:
    """Once when the watch begins, when nothing can be missed any more, and after each event."""
    server.on(WATCH, stream(event("ADDED", LEASE)))
    changed = threading.Semaphore(0)
    with server.cluster() as cluster:
        cluster.watch_object(Lease, "one", "system", changed.release)
        for _ in range(2):
            assert changed.acquire(timeout=PATIENCE_S)

    (query,) = server.queries(WATCH)
    assert query["fieldSelector"] == "metadata.name=one"
    assert "resourceVersion" not in query  # starts with the object as it is


def test_a_watch_that_broke_begins_again(server: ScriptedServer) -> None:
    """The object may have changed meanwhile, so that the new beginning is signalled."""
    server.on(WATCH, fail(500), stream())
    changed = threading.Event()
    with server.cluster() as cluster:
        cluster.watch_object(Lease, "one", "system", changed.set)
        assert changed.wait(PATIENCE_S)

    assert server.count(WATCH) == 2


def test_a_connection_that_this_side_closed_is_a_broken_watch(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of aiohttp that finds its connection closed raises RuntimeError."""
    waits = iter([RuntimeError("Connection closed.")])
    wait = aiohttp.StreamReader._wait

    async def wait_once_closed(reader: aiohttp.StreamReader, name: str) -> None:
        if name == "readany" and (error := next(waits, None)) is not None:
            raise error
        await wait(reader, name)

    monkeypatch.setattr(aiohttp.StreamReader, "_wait", wait_once_closed)
    server.on(WATCH, stream())
    began = threading.Semaphore(0)
    with server.cluster() as cluster:
        cluster.watch_object(Lease, "one", "system", began.release)
        for _ in range(2):
            assert began.acquire(timeout=PATIENCE_S)


def test_a_connection_closed_before_the_status_is_read_is_a_broken_watch(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head of the answer has arrived, and its body has not."""
    closings = iter([RuntimeError("Connection closed.")])
    read = aiohttp.ClientResponse.read

    async def read_once_closed(response: aiohttp.ClientResponse) -> bytes:
        if (error := next(closings, None)) is not None:
            raise error
        return await read(response)

    monkeypatch.setattr(aiohttp.ClientResponse, "read", read_once_closed)
    server.on(WATCH, fail(500), stream())
    began = threading.Event()
    with server.cluster() as cluster:
        cluster.watch_object(Lease, "one", "system", began.set)
        assert began.wait(PATIENCE_S)


def test_a_forbidden_watch_is_not_repeated_soon(server: ScriptedServer) -> None:
    """The caller polls, as with a role of an older chart; closing ends the wait."""
    server.on(WATCH, fail(403, "Forbidden"))
    changed = threading.Event()
    with server.cluster() as cluster:
        cluster.watch_object(Lease, "one", "system", changed.set)
        server.wait_for(WATCH)

    assert not changed.is_set()
    assert server.count(WATCH) == 1
