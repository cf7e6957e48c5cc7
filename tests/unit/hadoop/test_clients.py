"""ResourceManagers and NodeManagers behind sockets of this machine: what is asked and understood.

These are the answers of Hadoop 3.3.6; tests/e2e/yarn compares them.
"""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.connection import ActiveResourceManager, NegotiatedResourceManager
from koordinator.hadoop.port import (
    NotActiveError,
    UnknownYarnNodeError,
    UnsupportedError,
    YarnError,
    YarnLimit,
    YarnNode,
    YarnRefusedError,
)
from koordinator.hadoop.rest import NodeManager, RestResourceManager, WebService
from koordinator.hadoop.rpc import (
    RpcResourceManager,
    bytes_field,
    container_id_message,
    delimited,
    fields,
    number_field,
    read_delimited,
)

Answer = tuple[int, Any, dict[str, str]]
LIMIT = YarnLimit("n1:8041", YarnResource(4, 2048), -1)


@contextmanager
def web(answers: dict[str, Answer | Any]) -> Iterator[tuple[WebService, list[tuple[str, Any]]]]:
    """Serve JSON by path; what was asked is noted."""
    requests: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size)) if size else None
            requests.append((f"{self.command} {self.path}", body))
            result = answers.get(self.path.partition("?")[0], (404, {}, {}))
            status, tree, headers = result if isinstance(result, tuple) else (200, result, {})
            text = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815 -- http.server's name

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    service = WebService(("127.0.0.1", server.server_port), timeout_s=60, user="yarn")
    try:
        yield service, requests
    finally:
        service.close()
        server.shutdown()
        thread.join()
        server.server_close()


def test_nodes_are_read_by_rest_with_their_usage() -> None:
    """With what containers have; a cluster without NodeManagers has null."""
    node = {
        "id": "n1:8041",
        "state": "RUNNING",
        "usedMemoryMB": 512,
        "usedVirtualCores": 2,
        "availMemoryMB": -10,
        "numContainers": 1,
        "totalResource": {"memory": 500, "vCores": 1, "resourceInformations": {}},
    }
    path = "/ws/v1/cluster/nodes"
    with web({path: {"nodes": {"node": [node]}}}) as (service, requests):
        nodes = RestResourceManager(service).nodes()
        assert nodes == [
            YarnNode("n1:8041", "RUNNING", YarnResource(1, 500), YarnResource(2, 512), 1)
        ]
        states = "states=RUNNING,UNHEALTHY,DECOMMISSIONING&user.name=yarn"
        assert requests == [(f"GET {path}?{states}", None)]
    with web({path: {"nodes": None}}) as (service, _):
        assert RestResourceManager(service).nodes() == []


def test_a_limit_by_rest_has_no_root_element() -> None:
    """With one it would mean nothing at all, and be answered with 200."""
    path = "/ws/v1/cluster/nodes/n1:8041/resource"
    answer = {"resourceInfo": {"memory": 2048, "vCores": 4}}
    with web({path: answer}) as (service, requests):
        RestResourceManager(service).set_limit(LIMIT)
    ((_, body),) = requests
    assert body == {"resource": {"memory": 2048, "vCores": 4}, "overCommitTimeout": -1}


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ((404, {}, {}), UnknownYarnNodeError, "404"),
        (
            (403, {"RemoteException": {"message": "User a\nhas no rights"}}, {}),
            YarnRefusedError,
            "403 User a has no rights",
        ),
        ((500, b"oops", {}), YarnError, "500 oops"),
        ((307, b"", {"Location": "http://other"}), NotActiveError, "another ResourceManager"),
        ((200, b"This is standby RM", {"Refresh": "3; url=http://x"}), NotActiveError, "another"),
        (
            (401, b"", {"WWW-Authenticate": "Negotiate"}),
            YarnRefusedError,
            "not authorized .Kerberos, which is not supported",
        ),
        ((200, b"<html>", {}), YarnError, "invalid response"),
        ((200, {}, {}), YarnError, "no resourceInfo"),
    ],
)
def test_answers_that_are_no_success(answer: Answer, kind: type[YarnError], message: str) -> None:
    """A refusal is one only if nothing can have been changed."""
    with (
        web({"/ws/v1/cluster/nodes/n1:8041/resource": answer}) as (service, _),
        pytest.raises(kind, match=message) as caught,
    ):
        RestResourceManager(service).set_limit(LIMIT)
    assert isinstance(caught.value, YarnRefusedError) is issubclass(kind, YarnRefusedError)


def test_an_unreachable_resource_manager_is_an_error() -> None:
    """The address is named."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    service = WebService(("127.0.0.1", port), timeout_s=1)
    with pytest.raises(YarnError, match=rf"127.0.0.1:{port}/ws/v1/cluster/nodes.*refused"):
        RestResourceManager(service).nodes()


def info(version: str, state: str = "ACTIVE") -> dict[str, Answer | Any]:
    """Return the answer of /info."""
    result = {"clusterInfo": {"haState": state, "resourceManagerVersion": version}}
    return {"/ws/v1/cluster/info": result, "/ws/v1/cluster/nodes": {"nodes": None}}


def test_requests_go_to_the_active_resource_manager() -> None:
    """After a failure the active ResourceManager is looked up again."""
    standby, active = info("3.3.6", "STANDBY"), info("3.3.6")
    with web(standby) as (first, first_requests), web(active) as (second, second_requests):
        resource_manager = ActiveResourceManager(
            [RestResourceManager(first), RestResourceManager(second)]
        )
        assert resource_manager.nodes() == []
        assert [path for path, _ in first_requests] == ["GET /ws/v1/cluster/info?user.name=yarn"]

        standby |= active
        active["/ws/v1/cluster/nodes"] = (307, b"", {"Location": "/"})
        with pytest.raises(NotActiveError):
            resource_manager.nodes()
        active |= info("3.3.6", "STANDBY")
        active["/ws/v1/cluster/nodes"] = (307, b"", {"Location": "/"})
        assert resource_manager.nodes() == []
        assert len(second_requests) == 3

        standby |= info("3.3.6", "STANDBY")
        standby["/ws/v1/cluster/nodes"] = (500, b"", {})
        with pytest.raises(YarnError, match="500"):
            resource_manager.nodes()
        with pytest.raises(YarnError, match="no ResourceManager is active: stands by; stands by"):
            resource_manager.nodes()


@pytest.mark.parametrize(
    "container_id", ["", "container_1_2_3", "../../apps", "container_1_0001_01_000002; true", "a b"]
)
def test_an_invalid_container_id_is_never_sent(container_id: str) -> None:
    """An id comes from outside and would be a part of a path."""
    message = "must be the id of a container"
    with web({}) as (service, requests), pytest.raises(YarnRefusedError, match=message):
        RestResourceManager(service).signal_container(container_id)
    assert requests == []


def test_containers_of_a_node_manager() -> None:
    """Containers that are ending are left out."""
    listed = [
        {
            "id": "container_1_0001_01_000002",
            "appid": "application_1_0001",
            "state": "RUNNING",
            "user": "ann",
            "totalMemoryNeededMB": 512,
            "totalVCoresNeeded": 2,
            "nodeId": "n1:8041",
            "containerLogFiles": [],
        },
        {"id": "container_1_0001_01_000003", "state": "KILLING"},
    ]
    path = "/ws/v1/node/containers"
    with web({path: {"containers": {"container": listed}}}) as (service, _):
        (container,) = NodeManager(service).containers()
    assert container.container_id == "container_1_0001_01_000002"
    assert container.resource == YarnResource(2, 512)
    with web({path: {"containers": None}}) as (service, _):
        assert NodeManager(service).containers() == []


# -- RPC -----------------------------------------------------------------------------------------


@contextmanager
def ipc(
    answer: Callable[[bytes, bytes], bytes] | bytes,
) -> Iterator[tuple[RpcResourceManager, list[Sequence[bytes]]]]:
    """Serve Hadoop IPC: the answer to a method and its request, or just these bytes."""
    calls: list[Sequence[bytes]] = []

    def serve(server: socket.socket) -> None:
        while True:
            try:
                stream, _ = server.accept()
            except OSError:
                return
            with stream, stream.makefile("rb") as reader:
                if reader.read(7) != b"hrpc\x09\x00\x00":
                    continue
                (size,) = struct.unpack(">i", reader.read(4))
                _, at = read_delimited(frame := reader.read(size), 0)
                context, _ = read_delimited(frame, at)
                (size,) = struct.unpack(">i", reader.read(4))
                _, at = read_delimited(frame := reader.read(size), 0)
                named, at = read_delimited(frame, at)
                request, _ = read_delimited(frame, at)
                method = dict(fields(named))[1]
                assert isinstance(method, bytes)
                calls.append((method, request, context))
                body = answer if isinstance(answer, bytes) else answer(method, request)
                stream.sendall(struct.pack(">i", len(body)) + body)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        address = ("127.0.0.1", server.getsockname()[1])
        try:
            yield RpcResourceManager(address, address, user="yarn", timeout_s=60), calls
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def success(message: bytes) -> bytes:
    """Return an answer."""
    return delimited(number_field(1, 0) + number_field(2, 0)) + delimited(message)


def refusal(kind: str, text: str) -> bytes:
    """Return a refusal."""
    return delimited(number_field(2, 1) + bytes_field(4, kind) + bytes_field(5, text))


def test_nodes_are_read_by_rpc() -> None:
    """Field by field of NodeReportProto."""
    node_id = bytes_field(1, "n1") + number_field(2, 8041)
    used = number_field(1, 512) + number_field(2, 1)
    total = number_field(1, 2048) + number_field(2, 4)
    report = (
        bytes_field(1, node_id)
        + bytes_field(4, used)
        + bytes_field(5, total)
        + number_field(6, 1)
        + number_field(7, 2)
    )
    with ipc(lambda *_: success(bytes_field(1, report))) as (manager, calls):
        assert manager.nodes() == [
            YarnNode("n1:8041", "RUNNING", YarnResource(4, 2048), YarnResource(1, 512), 1)
        ]
    ((method, _, context),) = calls
    assert method == b"getClusterNodes"
    assert bytes_field(2, bytes_field(1, "yarn")) in context, "as effectiveUser"


def test_a_limit_by_rpc() -> None:
    """A negative timeout takes ten bytes; the answer is empty."""
    with ipc(lambda *_: success(b"")) as (manager, calls):
        manager.set_limit(LIMIT)
    ((method, request, _),) = calls
    node_id = bytes_field(1, "n1") + number_field(2, 8041)
    resource = number_field(1, 2048) + number_field(2, 4)
    option = bytes_field(1, resource) + number_field(2, -1)
    assert method == b"updateNodeResource"
    assert request == bytes_field(1, bytes_field(1, node_id) + bytes_field(2, option))


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (
            refusal("a.YarnException", "Update failed: unrecognized node n1"),
            UnknownYarnNodeError,
            "unrecognized",
        ),
        (refusal("a.AccessControlException", "no\n at x"), YarnRefusedError, "Exception: no$"),
        (
            refusal("a.AccessControlException", "SIMPLE authentication is not enabled."),
            YarnRefusedError,
            "Kerberos, which is not supported",
        ),
        (refusal("o.StandbyException", "standby"), NotActiveError, "standby"),
        (refusal("o.RpcNoSuchProtocolException", "x"), UnsupportedError, "x"),
        (b"\xff" * 30, YarnError, "invalid message"),
        (b"\x7f", YarnError, "truncated"),
    ],
)
def test_answers_of_rpc_that_are_no_success(
    answer: bytes, kind: type[YarnError], message: str
) -> None:
    """The class of the exception decides the kind of the refusal."""
    with ipc(answer) as (manager, _), pytest.raises(kind, match=message):
        manager.set_limit(LIMIT)


@pytest.mark.parametrize(
    ("version", "by"), [("3.3.0", "rest"), ("3.2.4", "rpc"), ("3.10.0", "rest")]
)
def test_the_way_follows_from_the_version(version: str, by: str) -> None:
    """REST can change nodes from 3.3 on."""
    with web(info(version)) as (service, requests), ipc(lambda *_: success(b"")) as (rpc, called):
        manager = NegotiatedResourceManager(RestResourceManager(service), rpc)
        assert list(manager.nodes()) == []
        assert len(called) == (by == "rpc")
        assert len(requests) == 1 + (by == "rest")


def test_container_id_contains_the_epoch_of_the_resource_manager() -> None:
    """The epoch of the ResourceManager stands in the higher bits of the number."""
    plain = container_id_message("container_1700000000000_0003_01_000002")
    app_id = number_field(1, 3) + number_field(2, 1700000000000)
    attempt = bytes_field(1, app_id) + number_field(2, 1)
    assert plain == bytes_field(1, app_id) + bytes_field(2, attempt) + number_field(3, 2)
    later = container_id_message("container_e17_1700000000000_0003_01_000002")
    assert later.endswith(number_field(3, 17 << 40 | 2))
    for text in ("", "container_1_2_3", "container_a_1_1_1", "pod_1_1_1_1"):
        with pytest.raises(YarnRefusedError, match="must be the id of a container"):
            container_id_message(text)
