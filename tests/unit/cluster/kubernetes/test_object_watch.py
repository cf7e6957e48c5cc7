"""Watch of one object calls back early, and never fails."""

import threading

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


def test_a_forbidden_watch_is_not_repeated_soon(server: ScriptedServer) -> None:
    """The caller polls, as with a role of an older chart; closing ends the wait."""
    server.on(WATCH, fail(403, "Forbidden"))
    changed = threading.Event()
    with server.cluster() as cluster:
        cluster.watch_object(Lease, "one", "system", changed.set)
        server.wait_for(WATCH)

    assert not changed.is_set()
    assert server.count(WATCH) == 1
