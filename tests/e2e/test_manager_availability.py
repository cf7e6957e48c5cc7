"""The manager answers reviews while it is ready, despite attacks on its port or its lease."""

import json
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.session.manifests import node
from tests.e2e.waiting import eventually

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/koordinator-manager"
SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
MERGE = "application/merge-patch+json"
IDLE_S = 7  # longer than uvicorn's own 5 s, at which reviews were lost


@pytest.fixture
def stopped(controlplane: ControlPlane) -> Iterator[ManagerProcess]:
    """Make a manager that elects itself and is not started yet."""
    controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    made = ManagerProcess(controlplane, name="available", elects=True)
    yield made
    made.kill()


@pytest.fixture
def manager(stopped: ManagerProcess) -> ManagerProcess:
    """Start it."""
    stopped.start()
    return stopped


def connect(manager: ManagerProcess) -> HTTPSConnection:
    """Return a connection to the webhooks."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection("127.0.0.1", manager.webhook_port, timeout=10, context=tls)


def review(connection: HTTPSConnection) -> tuple[int, bool]:
    """Send a review of a pod; return the status, and whether the pod is allowed."""
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": []}}
    admission = {"uid": "u", "operation": "CREATE", "namespace": "default", "object": pod}
    body = json.dumps({"kind": "AdmissionReview", "request": admission})
    connection.request("POST", "/mutate-pod", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    return response.status, response.status == 200 and json.loads(text)["response"]["allowed"]


def reviewed(manager: ManagerProcess) -> tuple[int, bool]:
    """Send one review over a connection of its own."""
    connection = connect(manager)
    try:
        return review(connection)
    finally:
        connection.close()


def test_ready_means_that_reviews_are_answered(stopped: ManagerProcess) -> None:
    """The first ones, and many at once, after every start."""
    for _ in range(3):
        stopped.start()
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: reviewed(stopped), range(48)))
        assert set(answers) == {(200, True)}
        stopped.kill()


def test_an_idle_connection_is_there_when_it_is_needed(manager: ManagerProcess) -> None:
    """As the API server keeps it: a POST that meets its end would not be sent again."""
    connection = connect(manager)
    assert review(connection) == (200, True)
    kept = connection.sock
    time.sleep(IDLE_S)

    assert review(connection) == (200, True)
    assert connection.sock is kept
    connection.close()


def test_reviews_under_way_are_answered_while_it_stops(manager: ManagerProcess) -> None:
    """A client with repeated requests gets answers until the connection is closed, and no reset."""
    connection = connect(manager)
    assert review(connection) == (200, True)
    manager.signal(15)
    closed = False
    while not closed:
        status = review(connection)
        assert status == (200, True)
        closed = connection.sock is None  # http.client obeys Connection: close
    assert manager.exit_code() == 0


def test_replica_without_lease_answers_and_leads_again(
    controlplane: ControlPlane, manager: ManagerProcess
) -> None:
    """Reviews need no leader; what happened meanwhile is made good afterwards."""
    api = controlplane.api
    api.request("POST", "/api/v1/nodes", node("n1", "8"))
    eventually(lambda: api.request("GET", f"{SLOS}/n1"))
    pid = manager.pid
    taken = {
        "holderIdentity": "somebody-else",
        "leaseDurationSeconds": 5,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),  # noqa: TID251 -- the real time
    }
    api.request("PATCH", LEASE, {"spec": taken}, content_type=MERGE)
    eventually(lambda: "lost the lease; rejoining" in manager.log.read_text())
    api.request("DELETE", f"{SLOS}/n1")
    assert [reviewed(manager) for _ in range(20)] == [(200, True)] * 20
    assert manager.get("/readyz") == manager.get("/livez") == "ok"

    eventually(lambda: api.request("GET", LEASE)["spec"]["holderIdentity"] != "somebody-else", 60)
    eventually(lambda: api.request("GET", f"{SLOS}/n1"))
    assert reviewed(manager) == (200, True)
    assert manager.is_running
    assert manager.pid == pid


def test_slow_clients_do_not_block_others(manager: ManagerProcess) -> None:
    """Half handshakes, half heads, heads without end, slow bodies, from one address: all end."""
    before = resident_mib(manager.pid)
    begun: Sequence[bytes] = (
        b"POST /mutate-pod HTTP/1.1\r\nHost: x\r\nX-a: ",
        b"POST /mutate-pod HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + b"x" * 60_000,
        b"",
    )
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as opened:
        attackers: list[Any] = []
        for index in range(700):
            raw = socket.create_connection(
                ("127.0.0.1", manager.webhook_port), 10, source_address=("127.0.0.9", 0)
            )
            opened.enter_context(raw)
            with suppress(OSError):
                if index % 4:
                    raw = opened.enter_context(tls.wrap_socket(raw))
                    raw.sendall(begun[index % 4 - 1])
            attackers.append(raw)
        times = []
        for _ in range(50):
            began_s = time.monotonic()
            assert reviewed(manager) == (200, True)
            times.append(time.monotonic() - began_s)
        assert manager.get("/livez") == "ok"
        assert sorted(times)[45] < 1
        assert resident_mib(manager.pid) < before + 300

        endless = attackers[-3] if isinstance(attackers[-3], ssl.SSLSocket) else attackers[-1]
        sent = 0
        with suppress(OSError):
            endless.settimeout(10)
            while sent < 64 << 20:
                sent += endless.send(b"a" * 65536)
        assert sent < 32 << 20
    assert eventually(lambda: reviewed(manager) == (200, True))


def resident_mib(pid: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    (line,) = (it for it in status if it.startswith("VmRSS"))
    return int(line.split()[1]) >> 10
