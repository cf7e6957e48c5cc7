"""The agent of YARN on a node, asked over its socket as koordlet asks it."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.memory_host import MemoryHost

from koordinator.domain.cgroups.files import CgroupVersion
from koordinator.foundation.errors import HostError
from koordinator.hadoop.amounts import BatchAmounts, YarnResource
from koordinator.hadoop.port import YarnContainer, YarnError
from koordinator.host.linux.sockets import SocketCopilot
from koordinator.yarn.copilot import ContainerCgroups, CopilotSocket, YarnCopilot

FOLDER = "kubepods/besteffort/hadoop-yarn"
MASTER = "container_1700000000000_0001_01_000001"
OLD = "container_1700000000000_0001_01_000002"
NEW = "container_1700000000000_0001_01_000003"


class PlayedNodeManagerService:
    """A NodeManager with a master and two tasks, whose cgroups are on a host of files."""

    def __init__(self, host: MemoryHost) -> None:
        self.running = {
            MASTER: YarnResource(1, 256),
            OLD: YarnResource(2, 1024),
            NEW: YarnResource(1, 512),
        }
        self.host = host
        self.problem = ""
        self.signalled: list[str] = []

    def containers(self) -> list[YarnContainer]:
        if self.problem:
            raise YarnError(self.problem)
        return [YarnContainer(i, "app", "RUNNING", r, "ann") for i, r in self.running.items()]

    def signal_container(self, container_id: str) -> None:
        self.signalled.append(container_id)
        del self.running[container_id]


class CopilotClient:
    """A copilot on a socket."""

    def __init__(self, folder: Path, *, has_manager: bool = False) -> None:
        self.host = MemoryHost()
        self.node = PlayedNodeManagerService(self.host)
        cgroups = ContainerCgroups("/cgroup", FOLDER, CgroupVersion.V1)
        self.copilot = YarnCopilot(
            self.node, self.host, cgroups, self.node if has_manager else None
        )
        self.path = folder / "run" / "copilot.sock"
        self.socket = CopilotSocket(self.path, self.copilot, lambda: b"metrics")

    def has_processes(self, container_id: str, *pids: int) -> None:
        text = "".join(f"{pid}\n" for pid in pids)
        self.host.put(f"/cgroup/cpu/{FOLDER}/{container_id}/cgroup.procs", text)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.path))
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text if path == "/metrics" else json.loads(text)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[CopilotClient]:
    """Run a copilot."""
    made = CopilotClient(tmp_path)
    made.socket.start()
    yield made
    made.socket.stop()
    assert not made.path.exists()


def test_containers_in_the_spelling_of_the_original(served: CopilotClient) -> None:
    """Every field is there; CPU and memory are Kubernetes', requests and limits the same."""
    assert served.ask("GET", "/health") == (200, "ok")
    assert served.ask("GET", "/information") == (200, {"name": "yarn", "version": "v1"})
    status, containers = served.ask("GET", "/v1/containers")
    amounts = {"cpu": "2", "memory": "1073741824"}
    expected = {
        "annotations": {},
        "cgroupDir": f"{FOLDER}/{OLD}",
        "createTimestamp": "0001-01-01T00:00:00Z",
        "hostNetwork": True,
        "labels": {},
        "name": OLD,
        "namespace": "yarn",
        "priority": 1,
        "resources": {"limits": amounts, "requests": amounts},
        "uid": OLD,
    }
    assert status == 200
    assert [each["name"] for each in containers] == [MASTER, OLD, NEW]
    assert containers[1] == expected
    assert served.ask("GET", f"/v1/container?containerID={OLD}") == (200, expected)
    assert served.ask("GET", "/metrics") == (200, b"metrics")
    assert served.path.stat().st_mode & 0o777 == 0o600


def test_a_container_is_ended_with_all_its_processes(served: CopilotClient) -> None:
    """Processes of other containers keep running."""
    served.has_processes(OLD, 7, 8)
    served.has_processes(NEW, 9)

    status, ended = served.ask("POST", "/v1/killContainer", {"containerID": OLD})
    assert status == 200
    assert [each["name"] for each in ended["items"]] == [OLD]
    assert sorted(set(served.host.killed)) == [7, 8]


def test_containers_are_ended_until_enough_is_released(served: CopilotClient) -> None:
    """The newest first; koordlet reads how much it was."""
    served.has_processes(OLD, 7)
    served.has_processes(NEW, 9)
    client = SocketCopilot(str(served.path))
    need = {"kubernetes.io/batch-memory": float(100 << 20)}
    assert client.release(need, node_cpu_ratio=-1, node_memory_ratio=0.9) == {
        "kubernetes.io/batch-cpu": 1000.0,
        "kubernetes.io/batch-memory": float(512 << 20),
    }
    assert set(served.host.killed) == {9}

    need = {"kubernetes.io/batch-cpu": 3000.0, "kubernetes.io/batch-memory": 0.0}
    released = client.release(need, node_cpu_ratio=-1, node_memory_ratio=-1)
    assert released["kubernetes.io/batch-cpu"] == 2000.0, "the other has ended already"
    assert set(served.host.killed) == {7, 9}
    assert served.copilot.ended == {"processes": 2}
    status, answer = served.ask("POST", "/v1/killContainersByResource", {"resources": {}})
    assert (status, answer["kubernetes.io/batch-cpu"]) == (200, "0")


def test_one_that_cannot_be_ended_leaves_its_place_to_the_next(served: CopilotClient) -> None:
    """The first container has no processes in its cgroup, and no ResourceManager is configured."""
    served.has_processes(OLD, 7)
    client = SocketCopilot(str(served.path))
    need = {"kubernetes.io/batch-memory": 1.0}
    released = client.release(need, node_cpu_ratio=-1, node_memory_ratio=-1)
    assert released["kubernetes.io/batch-memory"] == float(1024 << 20)
    assert set(served.host.killed) == {7}

    served.has_processes(OLD)
    with pytest.raises(HostError, match="no ResourceManager is configured"):
        client.release(need, node_cpu_ratio=-1, node_memory_ratio=-1)


def test_without_cgroups_the_resource_manager_ends_containers(tmp_path: Path) -> None:
    """As where the NodeManager has another executor."""
    made = CopilotClient(tmp_path, has_manager=True)
    made.copilot.kill(NEW)
    assert made.node.signalled == [NEW]
    assert made.copilot.ended == {"ResourceManager": 1}


class _Killed(BaseException):
    """Kill -9, simulated by a test."""


def test_a_killed_copilot_has_logged_the_container(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the signal and the report of it: otherwise the cause and the actor would be lost."""
    made = CopilotClient(tmp_path)
    made.has_processes(NEW, 9)

    def kill(pid: int, _: str) -> bool:
        made.host.killed.append(pid)
        raise _Killed

    monkeypatch.setattr(made.host, "kill", kill)
    with pytest.raises(_Killed):
        made.copilot.kill_by_resource(BatchAmounts(1, 0), "memory 91% used")

    assert made.host.killed == [9]
    (record,) = (vars(each) for each in caplog.records)
    assert (record["container"], record["why"]) == (NEW, "memory 91% used")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/killContainer", {"containerID": "container_1_1_1_1"}, 500),
        ("GET", "/v1/container?containerID=../..", None, 400),
        ("POST", "/v1/killContainer", [], 400),
        ("POST", "/v1/killContainersByResource", {"resources": {"cpu": "much"}}, 400),
        ("GET", "/v1/killContainer", None, 404),
        ("POST", "/v2", {}, 404),
    ],
)
def test_invalid_requests_are_rejected(
    served: CopilotClient, method: str, path: str, body: Any, status: int
) -> None:
    """Nothing is ended."""
    served.has_processes(OLD, 7)
    assert served.ask(method, path, body)[0] == status
    assert served.host.killed == []


def test_an_unreachable_node_manager_is_an_error(served: CopilotClient) -> None:
    """The copilot and the caller get the error, and nothing counts as released."""
    served.node.problem = "connection refused"
    assert served.ask("GET", "/v1/containers") == (400, "connection refused")
    with pytest.raises(HostError, match=r"500 .*connection refused"):
        SocketCopilot(str(served.path)).release({}, node_cpu_ratio=-1, node_memory_ratio=-1)


def test_a_missing_socket_is_an_error(tmp_path: Path) -> None:
    """The socket is named; one that was left behind is replaced by the next copilot."""
    path = tmp_path / "copilot.sock"
    with pytest.raises(HostError, match=r"copilot.sock: "):
        SocketCopilot(str(path)).release({}, node_cpu_ratio=-1, node_memory_ratio=-1)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    made = CopilotClient(tmp_path)
    again = CopilotSocket(path, made.copilot, lambda: b"")
    again.start()
    again.stop()
