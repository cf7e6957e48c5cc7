"""A session is recorded and replayed; its audit trail is queried and read."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KOORD
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.conftest import CONFIGURATION
from tests.e2e.session.manifests import node, pod
from tests.e2e.session.test_dry_run import koord
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually


@pytest.fixture(scope="module")
def audit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def secure_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def scheduler(
    controlplane: ControlPlane, audit_folder: Path, secure_port: int
) -> Iterator[SchedulerProcess]:
    """Run one scheduler with an audit trail for authorized readers."""
    certificate, key = controlplane.authority.issue_server("koord-scheduler", ["127.0.0.1"])
    flags = (
        f"--audit-dir={audit_folder}",
        f"--secure-port={secure_port}",
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
    )
    with SchedulerProcess(controlplane, CONFIGURATION, flags=flags) as running:
        yield running


class Recording:
    """``koord record`` while ``with`` lasts."""

    def __init__(self, controlplane: ControlPlane, folder: Path, *flags: str) -> None:
        self.path = folder / "session.gz"
        self._log = folder / "record.log"
        kubeconfig = f"--kubeconfig={controlplane.kubeconfig()}"
        self._command = [str(KOORD), "record", str(self.path), kubeconfig, *flags]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stderr=log)
        eventually(lambda: "recording to" in self._log.read_text(), 30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(30) == 0

    def replayed(self) -> Any:
        """Return the output of ``koord replay``."""
        return json.loads(koord("replay", str(self.path), "--output=json").stdout)


def session(user: User) -> dict[str, str]:
    """Create, preempt and delete pods; return the nodes of the bound ones."""
    user.apply(node("small", "2"), node("large", "4"))
    user.apply(pod("first", "3"))
    nodes = {"first": user.node_of("first")}
    user.apply(pod("second", "1500m"))
    nodes["second"] = user.node_of("second")
    user.apply(pod("waiting", "3500m"))
    user.refusal_of("waiting")
    user.kubectl("delete", "pod", "first", "--wait=true")
    nodes["waiting"] = user.node_of("waiting")
    user.kubectl("cordon", "small")
    user.apply(pod("never", "400m"), pod("late", "300m"))
    nodes["never"] = user.node_of("never")
    user.refusal_of("late")
    return nodes


def test_a_replayed_session_gives_the_same_bindings(
    user: User, controlplane: ControlPlane, tmp_path: Path
) -> None:
    """Waiting pods wait again, and bound pods are bound to the same nodes."""
    with Recording(controlplane, tmp_path) as recording:
        nodes = session(user)
    outcomes = recording.replayed()

    mine = {f"{user.namespace}/{name}": node for name, node in nodes.items()}
    assert {
        name: pod_outcome["node"]
        for name, pod_outcome in outcomes["pods"].items()
        if "node" in pod_outcome
    } == mine
    assert f"{user.namespace}/late" in outcomes["pods"]
    assert outcomes["differences"] == []
    assert outcomes["before"]["placed"] == len(nodes)


def test_anonymous_recording_has_no_names(
    user: User, controlplane: ControlPlane, tmp_path: Path
) -> None:
    """The recording without names gives the same decisions."""
    with Recording(controlplane, tmp_path, "--anonymous") as recording:
        nodes = session(user)
    outcomes = recording.replayed()

    assert outcomes["differences"] == []
    assert outcomes["after"]["placed"] == len(nodes)
    assert user.namespace not in json.dumps(outcomes)


def test_a_recording_ends_by_itself(user: User, controlplane: ControlPlane, tmp_path: Path) -> None:
    """With --for; what is in it can be run again."""
    user.apply(node("small", "1"), pod("fits", "1"))
    user.node_of("fits")
    path = tmp_path / "short.gz"
    kubeconfig = f"--kubeconfig={controlplane.kubeconfig()}"

    done = koord("record", str(path), kubeconfig, "--for=2s", "--config=koordinator")

    assert done.returncode == 0
    assert json.loads(koord("replay", str(path), "--output=json").stdout)["differences"] == []


def test_the_audit_trail_requires_its_permission(
    user: User,
    controlplane: ControlPlane,
    scheduler: SchedulerProcess,  # noqa: ARG001 -- it serves
    secure_port: int,
) -> None:
    """By kubeconfig or token; Kubernetes allows authenticated users to read below /apis."""
    user.apply(node("small", "1"), pod("fits", "1"))
    user.node_of("fits")
    server = f"--server=https://127.0.0.1:{secure_port}"
    authority = f"--certificate-authority={controlplane.authority.ca_path}"
    command = ("audit", server, f"--pod={user.namespace}/*", "--list", "--output=json")

    def outcomes(*flags: str) -> list[str]:
        done = koord(*command, *flags)
        return [it["outcome"] for it in json.loads(done.stdout)["entries"]]

    assert outcomes(f"--kubeconfig={controlplane.kubeconfig()}") == ["bound"]

    user.kubectl("create", "serviceaccount", "auditor")
    token = controlplane.service_account_token(user.namespace, "auditor")
    assert outcomes(authority, f"--token={token}") == ["bound"]
    assert "403" in koord(*command, authority).stderr
    assert "401" in koord(*command, authority, "--token=made-up").stderr


def test_audit_trail_has_the_deciding_plugins(
    user: User, scheduler: SchedulerProcess, audit_folder: Path
) -> None:
    """The endpoint and the files agree."""
    user.apply(node("small", "1"), pod("fits", "1"), pod("large", "2"))
    user.node_of("fits")
    user.refusal_of("large")

    server = f"--server=http://127.0.0.1:{scheduler.port}"
    mine = f"--pod={user.namespace}/*"
    listing = koord("audit", server, mine, "--list", "--output=json")
    entries = json.loads(listing.stdout)["entries"]
    (bound,) = (it for it in entries if it["outcome"] == "bound")
    assert bound["pods"][0][:2] == [f"{user.namespace}/fits", "small"]
    refused = [it for it in entries if it["outcome"] == "unschedulable"]
    assert {it["plugin"] for it in refused} == {"NodeResourcesFit"}
    kept = koord("audit", str(audit_folder), mine, "--list", "--output=json")
    assert json.loads(kept.stdout)["entries"][: len(entries)] == entries

    summary = json.loads(koord("audit", server, mine, "--output=json").stdout)
    assert [it["job"] for it in summary["rejected"]] == [f"{user.namespace}/large"]
