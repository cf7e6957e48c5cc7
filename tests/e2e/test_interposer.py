"""The interposer passes everything on but what a test wants to go wrong."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, RemoteDisconnected

import pytest
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.fleet import create, node
from tests.e2e.interposer import WATCH, Interposer, Manifest
from tests.e2e.waiting import eventually

NODES = "/api/v1/nodes"


@pytest.fixture
def interposer(controlplane: ControlPlane) -> Iterator[Interposer]:
    with Interposer(controlplane.api) as running:
        yield running


@pytest.fixture
def through(interposer: Interposer) -> Endpoint:
    """Return the API server as it is behind the interposer."""
    return interposer.endpoint


def names(listed: Manifest) -> list[str]:
    return [it["metadata"]["name"] for it in listed["items"]]


def test_answers_and_errors_are_passed_on(through: Endpoint, interposer: Interposer) -> None:
    """The interposer forwards and records successful and failed calls."""
    through.request("POST", NODES, node("n1"))

    assert names(through.request("GET", NODES)) == ["n1"]
    with pytest.raises(ApiError, match=r"HTTP 409.*already exists"):
        through.request("POST", NODES, node("n1"))
    assert [it.status for it in interposer.calls_of("POST", NODES)] == [201, 409]
    assert interposer.calls_of("POST", NODES)[1].manifest["metadata"]["name"] == "n1"


def test_a_blocked_request_is_forwarded_when_the_rule_ends(
    through: Endpoint, interposer: Interposer, controlplane: ControlPlane
) -> None:
    """The request is blocked as long as the rule exists."""
    with ThreadPoolExecutor() as workers:
        with interposer.hold("POST", NODES) as blocked:
            created = workers.submit(through.request, "POST", NODES, node("n1"))
            blocked.wait_for_call()
            assert names(controlplane.api.request("GET", NODES)) == []
        assert created.result()["metadata"]["name"] == "n1"


def test_a_blocked_request_whose_client_gave_up_is_not_forwarded(
    through: Endpoint, interposer: Interposer, controlplane: ControlPlane
) -> None:
    """As by a real proxy."""
    with interposer.hold("POST", NODES):
        with pytest.raises(TimeoutError):
            through.request("POST", NODES, node("n1"), timeout_s=0.2)
        through.request("GET", NODES)
    through.request("POST", NODES, node("n2"))

    assert names(controlplane.api.request("GET", NODES)) == ["n2"]


def test_answers_are_made_up_so_many_times(through: Endpoint, interposer: Interposer) -> None:
    """After that number of answers, requests are forwarded to the API server."""
    interposer.answer("GET", NODES, 503, {"message": "busy"}, times=2)

    for _ in range(2):
        with pytest.raises(ApiError, match=r"HTTP 503.*busy"):
            through.request("GET", NODES)
    assert through.request("GET", NODES)["items"] == []


@pytest.mark.parametrize("is_done", [True, False])
def test_connections_break_before_or_after_the_work(
    through: Endpoint, interposer: Interposer, controlplane: ControlPlane, is_done: bool
) -> None:
    """The client can't distinguish the two."""
    (interposer.lose_answer if is_done else interposer.drop)("POST", NODES)

    with pytest.raises((RemoteDisconnected, ConnectionResetError)):
        through.request("POST", NODES, node("n1"))

    assert names(controlplane.api.request("GET", NODES)) == (["n1"] if is_done else [])


def test_streams_can_be_changed_stalled_and_cut(
    through: Endpoint, interposer: Interposer, controlplane: ControlPlane
) -> None:
    """Line by line, as they come."""

    def rename(manifest: Manifest) -> Manifest:
        return manifest | {"metadata": manifest["metadata"] | {"name": "other"}}

    def read() -> None:
        connection.request("GET", f"{NODES}?watch=true")
        with suppress(HTTPException, OSError):
            lines = connection.getresponse()
            seen.extend(json.loads(line)["object"]["metadata"]["name"] for line in lines)

    seen: list[str] = []
    connection = HTTPConnection("127.0.0.1", through.port, timeout=30)
    reader = threading.Thread(target=read)
    mend = interposer.change(NODES, rename)
    reader.start()
    create(controlplane.api, NODES, [node("n1")])
    eventually(lambda: seen == ["other"])
    mend()
    create(controlplane.api, NODES, [node("n2")])
    eventually(lambda: seen == ["other", "n2"])
    let_through = interposer.stall_streams(NODES)
    create(controlplane.api, NODES, [node("n3")])
    assert names(through.request("GET", NODES)) == ["n1", "n2", "n3"]
    assert seen == ["other", "n2"]
    let_through()
    eventually(lambda: seen == ["other", "n2", "n3"])

    assert interposer.cut_streams(WATCH) == 1
    reader.join(30)
    connection.close()
    assert interposer.cut_streams(WATCH) == 0
