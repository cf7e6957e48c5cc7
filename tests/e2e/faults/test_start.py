"""A scheduler that is started before its cluster is there, or with the wrong papers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.controlplane import ControlPlane, kubeconfig
from tests.e2e.controlplane.certificates import Authority
from tests.e2e.fleet import create, node, pod
from tests.e2e.interposer import Interposer
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness

Start = Callable[[Path], SchedulerProcess]


@pytest.fixture
def start(controlplane: ControlPlane) -> Iterator[Start]:
    """``start(kubeconfig)`` starts a scheduler that may not be able to work yet."""
    started: list[SchedulerProcess] = []

    def begin(path: Path) -> SchedulerProcess:
        name = f"koord-scheduler-{path.stem}"
        started.append(SchedulerProcess(controlplane, name=name, kubeconfig=path))
        started[-1].start(wait=False)
        return started[-1]

    yield begin
    for made in started:
        made.kill()
        assert "Traceback" not in made.log.read_text()


@pytest.fixture
def one_pod(controlplane: ControlPlane, namespace: str) -> str:
    """Create a pod that has a place and return its name."""
    create(controlplane.api, "/api/v1/nodes", [node("n1")])
    create(controlplane.api, f"/api/v1/namespaces/{namespace}/pods", [pod("a")])
    return "a"


def waits(scheduler: SchedulerProcess) -> bool:
    """Return whether it runs, and is live but not ready."""
    assert scheduler.is_running
    return scheduler.get("/healthz") == "ok" and scheduler.get("/readyz") == ""


def warned(scheduler: SchedulerProcess, text: str) -> bool:
    """Return whether a warning has the text."""
    lines = scheduler.log.read_text().splitlines()
    return any(line.startswith("W") and text in line for line in lines)


def test_scheduler_waits_for_the_api_server(
    controlplane: ControlPlane, start: Start, one_pod: str, witness: Witness
) -> None:
    """Until then it is live, not ready, and logs the address."""
    interposer = Interposer(controlplane.api)
    scheduler = start(interposer.kubeconfig(controlplane))
    eventually(lambda: warned(scheduler, f"127.0.0.1:{interposer.endpoint.port}"))
    eventually(lambda: waits(scheduler))

    with interposer:
        assert witness.node_of(one_pod) == "n1"
        assert scheduler.get("/readyz") == "ok"


def test_invalid_token_is_logged_until_it_is_replaced(
    controlplane: ControlPlane, start: Start, one_pod: str, witness: Witness, tmp_path: Path
) -> None:
    """The message names the file to look at; a token that is put right is read again."""
    token = tmp_path / "token"
    token.write_text("wrong")
    path = controlplane.write_kubeconfig("unknown-user", {"tokenFile": str(token)})
    scheduler = start(path)
    eventually(lambda: warned(scheduler, "Unauthorized") and warned(scheduler, str(path)))
    eventually(lambda: waits(scheduler))

    token.write_text(controlplane.api.token)

    assert witness.node_of(one_pod, 120) == "n1"


def test_missing_permissions_are_logged_until_they_are_granted(
    controlplane: ControlPlane, start: Start, one_pod: str, witness: Witness
) -> None:
    """The message has the user and the missing right."""
    scheduler = start(controlplane.kubeconfig("bob", ["schedulers"]))
    eventually(lambda: warned(scheduler, 'User \\"bob\\" cannot list resource \\"nodes\\"'))
    eventually(lambda: waits(scheduler))

    role, group = "--clusterrole=cluster-admin", "--group=schedulers"
    controlplane.kubectl("create", "clusterrolebinding", "schedulers", role, group)

    assert witness.node_of(one_pod, 120) == "n1"


def test_untrusted_certificate_is_logged(
    controlplane: ControlPlane, start: Start, tmp_path: Path
) -> None:
    """The scheduler logs a warning, and waits for a server that it can trust."""
    stranger = Authority(tmp_path / "pki")
    path = kubeconfig.write(
        controlplane.state_dir / "stranger.kubeconfig",
        controlplane.api.url,
        stranger.ca_path,
        {"token": controlplane.api.token},
    )
    scheduler = start(path)

    eventually(lambda: warned(scheduler, "certificate"))
    eventually(lambda: waits(scheduler))


@pytest.mark.parametrize("text", ["", "clusters: 7", "current-context: nowhere"])
def test_empty_kubeconfig_ends_the_process(start: Start, tmp_path: Path, text: str) -> None:
    """The message names the file, and it is the user's mistake: exit code 2."""
    path = tmp_path / "empty.kubeconfig"
    path.write_text(text)
    scheduler = start(path)

    assert scheduler.exit_code() == 2
    assert str(path) in scheduler.log.read_text().replace("\n", "")


def test_a_kubeconfig_that_is_not_there_ends_the_start(start: Start, tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "missing.kubeconfig"
    scheduler = start(path)

    assert scheduler.exit_code() == 2
    assert str(path) in scheduler.log.read_text().replace("\n", "")
