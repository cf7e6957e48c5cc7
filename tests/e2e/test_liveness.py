"""Livez follows the loop: one that hangs for good turns it red, in each of the three processes."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KoordProcess
from tests.e2e.koordlet.agent_process import MachineOfFiles
from tests.e2e.session.manifests import node
from tests.e2e.waiting import eventually

DEADLINE_S = 2
HANGING = Path(__file__).with_name("hanging.py")


@pytest.fixture(params=["scheduler", "manager", "koordlet"])
def process(
    request: pytest.FixtureRequest, controlplane: ControlPlane, fifo: Path, tmp_path: Path
) -> Iterator[KoordProcess]:
    """Run a process whose loop reads the FIFO as soon as there is one."""
    name: str = request.param
    port = free_port()
    config = tmp_path / "scheduler.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "leaderElection: {leaderElect: false}\n"
    )
    machine = MachineOfFiles(tmp_path / "machine").folder
    flags = {
        "scheduler": (f"--config={config}", f"--port={port}", "--address=127.0.0.1"),
        "manager": (
            f"--health-probe-addr=127.0.0.1:{port}",
            "--metrics-addr=0",
            "--webhook-port=0",
            "--enable-leader-election=false",
        ),
        "koordlet": (
            "--node-name=n1",
            f"--addr=127.0.0.1:{port}",
            f"--cgroup-root-dir={machine}/cgroup",
            f"--proc-root-dir={machine}/proc",
            f"--sys-root-dir={machine}/sys",
            f"--sys-fs-root-dir={machine}/sys/fs",
            f"--var-lib-kubelet-dir={machine}/kubelet",
            f"--prediction-checkpoint-filepath={machine}/checkpoints",
        ),
    }[name]
    own = ("--secure-port=0",) if name == "scheduler" else ()
    command = [
        sys.executable,
        str(HANGING),
        str(fifo),
        name,
        f"--kubeconfig={controlplane.kubeconfig()}",
        f"--liveness-deadline={DEADLINE_S}s",
        *own,
        *flags,
    ]
    controlplane.api.request("POST", "/api/v1/nodes", node("n1", "8"))
    with KoordProcess(controlplane, f"hanging-{name}", command, port) as running:
        yield running


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Return the path of a FIFO that isn't there yet."""
    return tmp_path / "fifo"


def livez(process: KoordProcess) -> tuple[int, str]:
    """Return status and text of /livez."""
    try:
        with urlopen(f"http://127.0.0.1:{process.port}/livez", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_loop_that_hangs_is_not_alive(process: KoordProcess, fifo: Path) -> None:
    """Livez reports the duration and the log the place of the hang; then it recovers."""
    assert livez(process) == (200, "ok")

    os.mkfifo(fifo)
    answer = eventually(lambda: response if (response := livez(process))[0] == 500 else None)
    assert answer is not None
    status, text = answer
    assert "[+]ping ok" in text
    assert "[-]loop failed: no heartbeat for" in text
    assert "the loop waits; at most 2 s is allowed" in text
    assert "step_or_hang" in process.log.read_text()

    with fifo.open("wb"):  # unblocks its reader
        fifo.unlink()
    assert eventually(lambda: livez(process)[0] == 200)
    assert status == 500
