"""The agent as a process of its own, and a tree of plain files that it takes for a machine.

What cgroups do is tested in tests/e2e/host; here it matters what is read, written and reported.
"""

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.waiting import eventually
from tests.nodes import FRESH, LAYOUT, V1
from tests.unit.deploy.installed import CHART, NAMESPACE

from koordinator.domain.cgroups.files import CgroupFile, cgroup_path
from koordinator.domain.cgroups.layout import CgroupLayout

#: What the chart gives the agent, by kind.
_RIGHTS = {
    ("ServiceAccount", "koordlet"),
    ("ClusterRole", "koordlet"),
    ("ClusterRoleBinding", "koordlet"),
    ("ValidatingAdmissionPolicy", "koordlet-own-node"),
    ("ValidatingAdmissionPolicyBinding", "koordlet-own-node"),
    ("ValidatingAdmissionPolicy", "koordlet-own-events"),
    ("ValidatingAdmissionPolicyBinding", "koordlet-own-events"),
}
KOORD = Path(sys.executable).with_name("koord")
CPUS = 8


def install_rights(controlplane: ControlPlane, helm: Callable[..., str]) -> Path:
    """Install the account of the chart and what limits it; return a kubeconfig of a pod of it."""
    rendered = helm("template", "koordinator", str(CHART), "--namespace", NAMESPACE)
    objects = [
        document
        for document in yaml.safe_load_all(rendered)
        if document and (document["kind"], document["metadata"]["name"]) in _RIGHTS
    ]
    assert len(objects) == len(_RIGHTS)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    text = yaml.safe_dump_all([namespace, *objects])
    controlplane.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=text)
    return controlplane.service_account_kubeconfig(NAMESPACE, "koordlet", node="n1")


class MachineOfFiles:
    """Cgroups (v1, named as by cgroupfs), /proc and /sys below one folder."""

    layout: CgroupLayout = LAYOUT

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for tier in ("", LAYOUT.kubepods, LAYOUT.burstable, LAYOUT.besteffort):
            self.add(tier)
        self._write("proc/stat", "cpu  100 0 0 0 0 0 0\n")
        self._write(
            "proc/meminfo",
            "MemTotal: 8388608 kB\nMemFree: 4194304 kB\nMemAvailable: 4194304 kB\n"
            "Active(file): 0 kB\nInactive(file): 0 kB\nSReclaimable: 0 kB\n",
        )
        self._write("sys/devices/system/cpu/online", f"0-{CPUS - 1}\n")

    def add(self, folder: str) -> None:
        """Make a cgroup."""
        for file, text in {**FRESH, CgroupFile.CPUSET: f"0-{CPUS - 1}"}.items():
            below = cgroup_path(file, folder, V1)
            if below is not None:
                self._write(f"cgroup/{below}", f"{text}\n")

    def read(self, file: CgroupFile, folder: str) -> str:
        """Return what a file of a cgroup holds."""
        return (self.folder / f"cgroup/{cgroup_path(file, folder, V1)}").read_text().strip()

    def _write(self, path: str, text: str) -> None:
        whole = self.folder / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(text)


class AgentProcess:
    """``koord koordlet`` for the node ``n1``."""

    def __init__(
        self,
        controlplane: ControlPlane,
        kubeconfig: Path,
        machine: MachineOfFiles,
        flags: Sequence[str] = (),
    ) -> None:
        self.port, self.secure_port = free_port(), free_port()
        self.audit = machine.folder / "audit"
        self._controlplane = controlplane
        self._log = controlplane.state_dir / "koordlet.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            str(KOORD),
            "koordlet",
            "--node-name=n1",
            f"--kubeconfig={kubeconfig}",
            f"--addr=127.0.0.1:{self.port}",
            f"--secure-port={self.secure_port}",
            "--bind-address=127.0.0.1",
            f"--cgroup-root-dir={machine.folder}/cgroup",
            f"--proc-root-dir={machine.folder}/proc",
            f"--sys-root-dir={machine.folder}/sys",
            f"--sys-fs-root-dir={machine.folder}/sys/fs",
            f"--var-lib-kubelet-dir={machine.folder}/kubelet",
            f"--audit-log-dir={self.audit}",
            f"--prediction-checkpoint-filepath={machine.folder}/checkpoints",
            "--feature-gates=AuditEvents=true,AuditEventsHTTPHandler=true",
            *flags,
        ]

    def start(self, *, wait: bool = True) -> None:
        """Start, and ``wait`` until the node has been measured."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                process_group=self._controlplane.process_group,
            )
        if wait:
            eventually(lambda: self.get("/readyz") == "ok", 60)

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def stop(self) -> int:
        """Ask it to stop; return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(30)
        self._process = None
        return code

    def get(self, path: str) -> str:
        """Return a page; empty while it can't be had."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as page:
                text: str = page.read().decode()
                return text
        except OSError:
            return ""
