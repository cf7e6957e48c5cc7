"""Requests sent ahead of their answers, to every server of every component."""

import json
import socket
from pathlib import Path

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koordlet.agent_process import MachineOfFiles
from tests.hostile.pipelining import encrypted, send_all, send_unread
from tests.hostile.programs import Server

GIGABYTE = 1 << 30
READ = 8 << 20  # a gigabyte of it is sent to the dashboard of a file
MOST_MIB = 50
SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
"""
DESCHEDULER = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
leaderElection: {leaderElect: false}
healthzBindAddress: 127.0.0.1:0
metricsBindAddress: 127.0.0.1:0
"""
#: Which servers each component has besides the one of its probes.
TLS_PORTS = {
    "scheduler": ("--secure-port",),
    "manager": ("--secure-port", "--webhook-port", "--visibility-port"),
    "descheduler": ("--secure-port",),
    "koordlet": ("--secure-port",),
    "vgpu-monitor": ("--secure-port",),
    "dashboard": ("--secure-port",),
}


def flags(name: str, folder: Path) -> tuple[str, ...]:
    """Return the flags of a component without the flags in ``TLS_PORTS``."""
    machine = MachineOfFiles(folder / "machine").folder
    config = folder / "config.yaml"
    config.write_text(SCHEDULER if name == "scheduler" else DESCHEDULER)
    return {
        "scheduler": (f"--config={config}", "--address=127.0.0.1", "--port={port}"),
        "manager": (
            "--enable-leader-election=false",
            "--enabled-extensions=job",
            "--enableVisibilityServer=true",
            "--metrics-addr=0",
            "--health-probe-addr=127.0.0.1:{port}",
        ),
        "descheduler": (f"--config={config}",),
        "koordlet": (
            "--node-name=n1",
            "--addr=127.0.0.1:{port}",
            f"--cgroup-root-dir={machine}/cgroup",
            f"--proc-root-dir={machine}/proc",
            f"--sys-root-dir={machine}/sys",
            f"--sys-fs-root-dir={machine}/sys/fs",
            f"--var-lib-kubelet-dir={machine}/kubelet",
            f"--prediction-checkpoint-filepath={machine}/checkpoints",
        ),
        "vgpu-monitor": (
            "--node-name=n1",
            f"--hook-path={folder}",
            "--metrics-bind-address=127.0.0.1:{port}",
        ),
        "dashboard": ("--listen=127.0.0.1:{port}", "--no-browser"),
    }[name]


@pytest.mark.parametrize("name", TLS_PORTS)
def test_requests_sent_ahead_take_no_memory(
    name: str, controlplane: ControlPlane, tmp_path: Path
) -> None:
    """One client reads no answers, another sends as fast as it gets them, to each server."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}
    controlplane.kubectl("apply", "--filename=-", stdin=json.dumps(space))  # of certificates
    secure = {flag: free_port() for flag in TLS_PORTS[name]}
    server = Server(
        name,
        f"--kubeconfig={controlplane.kubeconfig()}",
        *flags(name, tmp_path),
        *(f"{flag}={port}" for flag, port in secure.items()),
        probe="/" if name == "dashboard" else "/livez",
    )
    if name == "descheduler":
        config = tmp_path / "config.yaml"
        config.write_text(DESCHEDULER.replace(":0", f":{server.port}"))
    with server:
        for port in secure.values():
            server.wait_for(port)
        for port in (server.port, *secure.values()):
            before = server.rss_mib()
            for send, amount in ((send_unread, GIGABYTE), (send_all, READ)):
                with socket.create_connection(("127.0.0.1", port), 10) as plain:
                    connection = plain if port == server.port else encrypted(plain)
                    sent = send(connection, amount)
                    assert server.rss_mib() - before < MOST_MIB, (name, port, send.__name__)
                    connection.close()
                assert (sent >= amount) is (send is send_all)
                assert server.answers("/" if name == "dashboard" else "/livez")
