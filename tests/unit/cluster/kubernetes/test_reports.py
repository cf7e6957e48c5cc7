"""Reports are written in the background, in order, and never in the way of a binding."""

import asyncio
import datetime as dt
import json
import logging
import threading
import time

import pytest
from aiohttp import web
from tests.unit.cluster.kubernetes.objects import PODS, pod, pod_list
from tests.unit.cluster.kubernetes.scripted_server import (
    NOW_S,
    PATIENCE_S,
    ScriptedServer,
    eventually,
    fail,
    hang_up,
    reply,
    stream,
)

from koordinator.api.core import MicroTime, ObjectReference
from koordinator.api.event import Event, EventSeries
from koordinator.api.meta import Condition, JsonObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.cluster.kubernetes import reports
from koordinator.cluster.port import Binding, ObjectPatch, PodReport
from koordinator.foundation.clock import to_datetime

STATUS = "PATCH /api/v1/namespaces/default/pods/a/status"
BIND = "POST /api/v1/namespaces/default/pods/a/binding"
EVENTS = "POST /apis/events.k8s.io/v1/namespaces/default/events"
OK = reply({})
NOW = to_datetime(NOW_S).isoformat().replace("+00:00", "Z")


class Gate:
    """An answer that waits until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Wait, then answer."""
        await asyncio.to_thread(self._open.wait, PATIENCE_S)
        return await OK(request)

    def open(self) -> None:
        self._open.set()


def unschedulable(message: str, status: str = "False") -> Condition:
    return Condition(type="PodScheduled", status=status, reason="Unschedulable", message=message)


def condition(message: str, name: str = "a") -> PodReport:
    return PodReport("default", name, condition=unschedulable(message))


def note(name: str, text: str = "t") -> Event:
    return Event(
        metadata=ObjectMeta(name=name, namespace="default"),
        regarding=ObjectReference(kind="Pod", namespace="default", name="a"),
        reporting_controller="us",
        event_time=MicroTime(2024, 1, 31, tzinfo=dt.UTC),
        note=text,
    )


def patches(server: ScriptedServer, request: str = STATUS) -> list[JsonObject]:
    return [json.loads(r.body) for r in server.received if str(r) == request]


def test_a_condition_is_merged_into_the_status(server: ScriptedServer) -> None:
    """Conditions merge by type, unset fields become empty, and the uid is a precondition."""
    server.on(STATUS, OK)
    with server.cluster() as cluster:
        report = PodReport("default", "a", "1", unschedulable("no"), nominated_node="")
        cluster.report([report])
        server.wait_for(STATUS)

    (sent,) = [r for r in server.received if str(r) == STATUS]
    assert sent.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert json.loads(sent.body) == {
        "metadata": {"uid": "1"},
        "status": {
            "nominatedNodeName": None,
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "no",
                    "lastProbeTime": None,
                    "lastTransitionTime": NOW,
                    "observedGeneration": None,
                }
            ],
        },
    }


@pytest.mark.parametrize(("status", "expected"), [("False", "2020-01-01T00:00:00Z"), ("True", NOW)])
def test_only_a_change_is_a_transition(server: ScriptedServer, status: str, expected: str) -> None:
    """The status that the watch delivered last decides."""
    known = pod("a")
    since = "2020-01-01T00:00:00Z"
    known["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "False", "lastTransitionTime": since}]
    }
    server.on(f"GET {PODS}", reply(pod_list(known)))
    server.on(f"WATCH {PODS}", stream())
    server.on(STATUS, OK)
    with server.cluster() as cluster:
        watch = cluster.watch([Pod])
        while not watch.poll():
            assert cluster.wait(PATIENCE_S)
        cluster.report([PodReport("default", "a", condition=unschedulable("no", status))])
        server.wait_for(STATUS)

    (patch,) = patches(server)
    assert patch["status"]["conditions"][0]["lastTransitionTime"] == expected


def test_a_deletion_waits_for_the_answers(server: ScriptedServer) -> None:
    """Of what is on its way about the pod, and of what still waits."""
    gate = Gate()
    delete = "DELETE /api/v1/namespaces/default/pods/a"
    server.on(STATUS, gate, OK)
    server.on(delete, OK)
    with server.cluster() as cluster:
        cluster.report([condition("first")])
        server.wait_for(STATUS)
        cluster.report([condition("second")])
        threading.Timer(0.05, gate.open).start()
        cluster.delete(Pod, "a", "default")

    assert [str(it) for it in server.received] == [STATUS, STATUS, delete]


def test_a_failed_report_does_not_delay_a_deletion(server: ScriptedServer) -> None:
    """The report is tried once, and the deletion follows."""
    delete = "DELETE /api/v1/namespaces/default/pods/a"
    server.on(STATUS, fail(500))
    server.on(delete, OK)
    with server.cluster() as cluster:
        cluster.report([condition("first")])
        cluster.delete(Pod, "a", "default")

    assert delete in [str(it) for it in server.received]


def test_pending_reports_are_merged_into_newer_ones(server: ScriptedServer) -> None:
    """One write per pod at a time: the next one has everything that came meanwhile."""
    gate = Gate()
    server.on(STATUS, gate, OK)
    with server.cluster() as cluster:
        cluster.report([condition("first")])
        server.wait_for(STATUS)
        cluster.report([condition("second"), PodReport("default", "a", nominated_node="n")])
        cluster.report([condition("third")])
        gate.open()
        server.wait_for(STATUS, 2)

    first, rest = patches(server)
    assert first["status"]["conditions"][0]["message"] == "first"
    assert rest["status"]["conditions"][0]["message"] == "third"
    assert rest["status"]["nominatedNodeName"] == "n"


def test_binding_drops_pending_reports_and_awaits_those_in_flight(server: ScriptedServer) -> None:
    """An old condition never overwrites the condition of the binding."""
    gate = Gate()
    server.on(STATUS, gate)
    server.on(BIND, reply({}, 201))
    with server.cluster() as cluster:
        cluster.report([condition("flies")])
        server.wait_for(STATUS)
        cluster.report([condition("waits")])
        binds = cluster.bind([Binding("default", "a", "n")])
        assert not cluster.wait(0.05)
        gate.open()
        assert binds.results() == [None]
    assert [str(received) for received in server.received] == [STATUS, BIND]


def test_a_failed_report_is_not_repeated_after_the_binding(server: ScriptedServer) -> None:
    """The report is about the time before the binding."""
    gate = Gate()

    async def late_failure(request: web.Request) -> web.StreamResponse:
        await gate(request)
        return await fail(500)(request)

    server.on(STATUS, late_failure, OK)
    server.on(BIND, reply({}, 201))
    server.on(EVENTS, OK)
    with server.cluster() as cluster:
        cluster.report([condition("flies")])
        server.wait_for(STATUS)
        binds = cluster.bind([Binding("default", "a", "n")])
        gate.open()
        assert binds.results() == [None]
        cluster.report([note("later")])
        server.wait_for(EVENTS)
    assert server.count(STATUS) == 1


@pytest.mark.slow
@pytest.mark.parametrize("failure", [hang_up, fail(500)])
def test_a_failed_report_is_tried_again(server: ScriptedServer, failure: object) -> None:
    """A failed report is dropped if a newer report includes its content."""
    server.on(STATUS, failure, OK)  # type: ignore[arg-type]  # an Answer
    with server.cluster() as cluster:
        cluster.report([condition("one")])
        server.wait_for(STATUS, 2)
    assert patches(server)[0] == patches(server)[1]


def test_rejected_reports_are_dropped(server: ScriptedServer) -> None:
    """The pod was deleted or replaced by another one."""
    server.on(STATUS, fail(409, "Conflict"))
    server.on(EVENTS, OK)
    with server.cluster() as cluster:
        cluster.report([condition("x", "gone"), condition("x"), note("after")])
        server.wait_for(EVENTS)
        server.wait_for(STATUS)
    assert server.count(STATUS) == 1


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the levels at which dropped reports were logged."""
    return [it.levelname for it in caplog.records if it.message == "report dropped"]


def test_missing_permission_is_logged_once(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The log explains why events are missing."""
    caplog.set_level(logging.DEBUG)
    server.on(EVENTS, fail(403, "Forbidden"))
    with server.cluster() as cluster:
        cluster.report([note("one"), note("two")])
        assert eventually(lambda: len(dropped(caplog)) == 2), caplog.text
    assert sorted(dropped(caplog)) == ["DEBUG", "WARNING"]


def test_an_event_that_exists_is_changed(server: ScriptedServer) -> None:
    """In the core API, which allows that; what it has no more is taken away."""
    patch = "PATCH /api/v1/namespaces/default/events/x"
    server.on(EVENTS, fail(409, "AlreadyExists"))
    server.on(patch, OK)
    with server.cluster() as cluster:
        cluster.report([note("x", "text")])
        server.wait_for(patch)
    assert patches(server, patch) == [
        {
            "series": None,
            "message": "text",
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
            "reportingComponent": "us",
            "eventTime": "2024-01-31T00:00:00.000000Z",
        }
    ]


def test_while_bindings_wait_for_their_turn_reports_trickle(server: ScriptedServer) -> None:
    """Reports are sent one at a time and at a small rate, afterwards side by side."""
    count = 200
    gate = Gate()
    server.on(BIND, gate)
    server.on(EVENTS, OK)
    server.on(BIND.replace("/a/", "/b/"), gate)
    with server.cluster(binds_in_flight=1) as cluster:
        binds = cluster.bind([Binding("default", "a", "n"), Binding("default", "b", "n")])
        server.wait_for(BIND)
        began_at = time.monotonic()
        cluster.report([note(f"e{i}") for i in range(count)])
        server.wait_for(EVENTS, 10)
        assert not cluster.wait(0.2)
        while_busy = server.count(EVENTS)
        took_s = time.monotonic() - began_at
        gate.open()
        binds.results()
        server.wait_for(EVENTS, count)
    assert while_busy <= 20 + 20 * took_s + 1, "a burst, and 20 per second"


def test_only_so_many_wait(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest events are forgotten first, then the oldest conditions."""
    monkeypatch.setattr(reports, "LIMIT", 3)
    gate = Gate()
    server.on(EVENTS, gate)
    for name in "abcde":
        server.on(STATUS.replace("/a/", f"/{name}/"), OK)
    server.on(BIND, gate)
    with server.cluster() as cluster:
        cluster.bind([Binding("default", "x", "n"), Binding("default", "a", "n")])
        server.wait_for(BIND)
        cluster.report([note(f"e{i}") for i in range(5)])
        cluster.report([condition("x", name) for name in "bcde"])
        gate.open()
        for name in "cde":
            server.wait_for(STATUS.replace("/a/", f"/{name}/"))
    written = [r.path.split("/")[-2] for r in server.received if r.path.endswith("/status")]
    assert sorted(written) == ["c", "d", "e"]


def test_a_series_is_written_whole(server: ScriptedServer) -> None:
    """An event that happens again and again has a count."""
    patch = "PATCH /api/v1/namespaces/default/events/x"
    server.on(EVENTS, fail(409, "AlreadyExists"))
    server.on(patch, OK)
    when = MicroTime(2024, 1, 31, tzinfo=dt.UTC)
    repeated = Event(
        metadata=ObjectMeta(name="x", namespace="default"),
        series=EventSeries(count=3, last_observed_time=when),
    )
    with server.cluster() as cluster:
        cluster.report([repeated])
        server.wait_for(patch)
    (sent,) = patches(server, patch)
    assert sent["series"] == {"count": 3, "lastObservedTime": "2024-01-31T00:00:00.000000Z"}


GROUP = "PATCH /apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups/g"


def phase(**status: int | str) -> ObjectPatch:
    return ObjectPatch(PodGroup, "default", "g", {"status": status}, uid="1")


def test_patches_that_wait_become_one(server: ScriptedServer) -> None:
    """While one of an object is on its way, newer ones wait and are sent together."""
    gate = Gate()
    server.on(GROUP, gate, OK)
    with server.cluster() as cluster:
        cluster.report([phase(phase="Pending")])
        server.wait_for(GROUP)
        cluster.report([phase(phase="Scheduling", scheduled=1), phase(scheduled=2)])
        gate.open()
        server.wait_for(GROUP, 2)

    guard = {"metadata": {"uid": "1"}}
    assert patches(server, GROUP) == [
        guard | {"status": {"phase": "Pending"}},
        guard | {"status": {"phase": "Scheduling", "scheduled": 2}},
    ]


def test_failed_patch_is_resent_with_newer_changes(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that fails gets it later; what was reported since counts more."""
    monkeypatch.setattr(reports, "_FIRST_DELAY_S", 0.02)
    gate = Gate()

    async def fail_later(request: web.Request) -> web.StreamResponse:
        await gate(request)
        return await fail(503)(request)

    server.on(GROUP, fail_later, OK)
    with server.cluster() as cluster:
        cluster.report([phase(phase="Pending", scheduled=1)])
        server.wait_for(GROUP)
        cluster.report([phase(phase="Scheduling")])
        gate.open()
        server.wait_for(GROUP, 2)

    assert patches(server, GROUP)[1]["status"] == {"phase": "Scheduling", "scheduled": 1}


def test_a_patch_that_is_refused_is_dropped(server: ScriptedServer) -> None:
    """The object was deleted or replaced: the patch is not retried."""
    server.on(GROUP, fail(409, "Conflict"), OK)
    with server.cluster() as cluster:
        cluster.report([phase(phase="Pending")])
        server.wait_for(GROUP)
        cluster.report([phase(phase="Scheduling")])
        server.wait_for(GROUP, 2)

    assert [p["status"] for p in patches(server, GROUP)] == [
        {"phase": "Pending"},
        {"phase": "Scheduling"},
    ]
