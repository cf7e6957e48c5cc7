"""Behaviour of a client while the API server can't be reached, and when it is back."""

import asyncio
import logging
import threading
from contextlib import suppress

import numpy as np
import pytest
from tests.unit.cluster.kubernetes.objects import PODS, event, pod, pod_list
from tests.unit.cluster.kubernetes.scripted_server import (
    NOW_S,
    PATIENCE_S,
    ScriptedServer,
    eventually,
    fail,
    reply,
    stream,
)

from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes import reflector, transport
from koordinator.cluster.kubernetes.background import Backoff, TokenBucket
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import ApiServer, Connection, Identity
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.cluster.port import Watch
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError

LIST, WATCH, GET = f"GET {PODS}", f"WATCH {PODS}", "GET /api/v1/namespaces/default/pods/a"
READYZ = "GET /readyz"
NEVER_S = 100 * PATIENCE_S


@pytest.fixture(autouse=True)
def _quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_PROBE_S", 0.01)


@pytest.fixture
def is_away(caplog: pytest.LogCaptureFixture) -> threading.Event:
    """Return an event that is set when the client has noticed the outage."""
    noticed = threading.Event()

    def look(record: logging.LogRecord) -> bool:
        if "cannot be reached" in record.getMessage():
            noticed.set()
        return True

    caplog.handler.addFilter(look)
    return noticed


def wait_until(cluster: KubernetesCluster, watch: Watch, name: str) -> None:
    while all(it.object.metadata.name != name for it in watch.poll()):
        assert cluster.wait(PATIENCE_S)


def test_watch_resumes_without_a_list_when_the_server_is_back(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, is_away: threading.Event
) -> None:
    """The first answer to a probe wakes the watch before its next scheduled attempt."""
    delays = iter([0.001, NEVER_S])  # the first one after the end of the stream
    monkeypatch.setattr(Backoff, "next_s", lambda _: next(delays))
    server.on(LIST, reply(pod_list(pod("a"), version="5")))
    server.on(WATCH, stream(event("ADDED", pod("b", "6"))), stream(event("ADDED", pod("c", "7"))))
    server.on(READYZ, fail(500, message="starting"), reply("ok"))
    with server.cluster() as cluster:
        watch = cluster.watch([Pod])
        wait_until(cluster, watch, "b")
        server.go_away()
        assert is_away.wait(PATIENCE_S)
        server.come_back()
        wait_until(cluster, watch, "c")

    assert server.count(LIST) == 1
    assert server.count(READYZ) == 2
    assert [it["resourceVersion"] for it in server.queries(WATCH)] == ["5", "6"]


def test_failed_connections_do_not_make_a_watch_list_again(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, is_away: threading.Event
) -> None:
    """A server that can't be reached has not forgotten the place of the watch."""
    monkeypatch.setattr(reflector, "_FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(reflector, "_LAST_DELAY_S", 0.001)
    monkeypatch.setattr(transport, "_PROBE_S", NEVER_S)
    server.on(LIST, reply(pod_list(pod("a"), version="5")))
    server.on(WATCH, stream(event("ADDED", pod("b", "6"))), stream(event("ADDED", pod("c", "7"))))
    attempts = 0
    opened = transport.Transport._open

    def counted(self: transport.Transport, *arguments: object) -> object:
        nonlocal attempts
        attempts += 1
        return opened(self, *arguments)  # type: ignore[arg-type]

    with server.cluster() as cluster:
        watch = cluster.watch([Pod])
        wait_until(cluster, watch, "b")
        monkeypatch.setattr(transport.Transport, "_open", counted)
        server.go_away()
        assert eventually(lambda: attempts > 2 * reflector._STALE_AFTER)
        server.come_back()
        wait_until(cluster, watch, "c")

    assert server.count(LIST) == 1
    assert is_away.is_set()


def test_a_request_that_waits_is_sent_when_the_server_is_back(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, is_away: threading.Event
) -> None:
    """One probe wakes all requests of a client; a probe that is forbidden is an answer, too."""
    monkeypatch.setattr(transport, "_FIRST_DELAY_S", PATIENCE_S)
    server.on(GET, reply(pod("a")))
    server.on(READYZ, fail(403, "Forbidden"))
    with server.cluster(timeout_s=NEVER_S) as cluster:
        server.go_away()
        responses: list[Pod] = []
        asking = [
            threading.Thread(target=lambda: responses.append(cluster.get(Pod, "a", "default")))
            for _ in range(3)
        ]
        for each in asking:
            each.start()
        assert is_away.wait(PATIENCE_S)
        server.come_back()
        for each in asking:
            each.join(PATIENCE_S / 2)
        assert len(responses) == 3


def test_a_pause_that_is_cancelled_just_as_the_server_is_back_is_cancelled(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower that lists again would have two tasks otherwise: a view would get older events."""
    caplog.set_level(logging.INFO)
    connection = Connection(ApiServer(server.url), Identity(), source="the test")
    server.on(READYZ, reply("ok"))

    async def cancelled_pause() -> bool:
        client = transport.Transport(
            Credentials(connection, VirtualClock(NOW_S), {}),
            limiter=TokenBucket(None, 1),
            may_write=lambda: True,
            timeout_s=PATIENCE_S,
            observe=None,
            user_agent="test",
            chance=np.random.default_rng(1),
        )
        with suppress(ClusterError):
            await client.attempt(transport.Request("GET", "/api"), PATIENCE_S)
        waiting = asyncio.create_task(client.pause(PATIENCE_S))

        def cancel(record: logging.LogRecord) -> bool:
            if "answers again" in record.getMessage():
                waiting.cancel()
            return True

        caplog.handler.addFilter(cancel)
        await asyncio.to_thread(server.come_back)
        await asyncio.wait([waiting])
        await client.close()
        return waiting.cancelled()

    server.go_away()
    assert asyncio.run(cancelled_pause())
