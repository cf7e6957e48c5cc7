"""containerd, kubelet and the node agent in the virtual machine, as a node of a control plane.

The control plane runs outside, where it is not emulated.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.real_node import Programs, configuration
from tests.e2e.real_node.node import NAME, Manifest
from tests.e2e.waiting import eventually
from tests.vm.machine import HOST, START_TIMEOUT_S, VirtualMachine

CGROUPS = "/sys/fs/cgroup"
PATIENCE_S = 600.0  # an emulated CPU is ten to twenty times slower
_STATE = "/tmp/node"  # noqa: S108 -- the virtual machine's own disk
_BRIDGE = "vm0"
_AGENT_PORT = 9316
_GATES = ("AuditEvents", "BEMemoryEvict", "BlkIOReconcile", "CgroupReconcile", "PSICollector")


class NodeInside:
    """The node; ``start`` returns when the kubelet reports it ready."""

    def __init__(
        self, controlplane: ControlPlane, machine: VirtualMachine, programs: Programs
    ) -> None:
        self.machine = machine
        self._controlplane = controlplane
        self._programs = programs

    def start(self) -> None:
        """Start containerd, import the images, and start the kubelet."""
        machine, programs = self.machine, self._programs
        etc = Path(_STATE) / "etc"
        toml = configuration.containerd_toml(programs, etc)
        for name in ("registration", "request"):  # an emulated agent needs its time
            for limit_s in (2, 5):
                toml = toml.replace(f"{name}_timeout = '{limit_s}s'", f"{name}_timeout = '60s'")
        machine.write(f"{etc}/containerd.toml", toml)
        machine.write(f"{etc}/cni/10-node.conflist", configuration.cni_conflist(_BRIDGE))
        machine.write(f"{etc}/kubelet.yaml", configuration.kubelet_yaml({"failCgroupV1": True}))
        machine.write(f"{etc}/kubeconfig", self._kubeconfig())
        machine.run(f"ip address add {configuration.NODE_IP}/32 dev lo")
        for folder in ("containerd", "kubelet", "cni"):
            machine.run(
                f"mkdir -p {_STATE}/{folder} /var/lib/{folder}; "
                f"mount --bind {_STATE}/{folder} /var/lib/{folder}"
            )
        path = f"PATH={programs.kubelet}:{programs.containerd}:{programs.runc.parent}:$PATH"
        machine.start(
            f"env {path} containerd --config {etc}/containerd.toml", f"{_STATE}/containerd.log"
        )
        ctr = shlex.quote(str(programs.ctr))
        eventually(lambda: machine.run(f"{ctr} version"), START_TIMEOUT_S)
        machine.run(f"{ctr} -n k8s.io images import {programs.images}")
        machine.start(
            f"env {path} kubelet --config {etc}/kubelet.yaml --kubeconfig {etc}/kubeconfig "
            f"--hostname-override {NAME} --node-ip {configuration.NODE_IP}",
            f"{_STATE}/kubelet.log",
        )
        self._wait(self._is_ready, "kubelet", "containerd")

    def start_agent(self) -> None:
        """Start ``koord koordlet``; returns when it is ready and the runtime calls it."""
        koord = Path(sys.executable).with_name("koord")
        command = [
            str(koord),
            "koordlet",
            f"--node-name={NAME}",
            f"--kubeconfig={_STATE}/etc/kubeconfig",
            f"--addr=127.0.0.1:{_AGENT_PORT}",
            f"--audit-log-dir={_STATE}/audit",
            f"--prediction-checkpoint-filepath={_STATE}/checkpoints",
            f"--feature-gates={','.join(f'{gate}=true' for gate in _GATES)}",
        ]
        self.machine.start(shlex.join(command), f"{_STATE}/koordlet.log")
        connected = f'koordlet_nri_connected{{node="{NAME}"}}'
        self._wait(lambda: self.metric(connected) == 1, "koordlet")

    def metrics(self) -> list[str]:
        """Return the lines of the agent's metrics."""
        return self.machine.run(f"wget -qO- 127.0.0.1:{_AGENT_PORT}/metrics").splitlines()

    def audit(self) -> list[dict[str, Any]]:
        """Return what the agent has written, and what the kernel rejected."""
        lines = self.machine.run(f"cat {_STATE}/audit/*").splitlines()
        return [json.loads(line) for line in lines]

    def metric(self, series: str) -> float:
        """Return the value of a series of the agent; 0 if there is none."""
        for line in self.metrics():
            if line.startswith(series + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def log(self, program: str, lines: int = 40) -> str:
        """Return the end of the log of containerd, kubelet or koordlet."""
        return self.machine.run(f"tail -n {lines} {_STATE}/{program}.log")

    def run(self, pod: Manifest) -> Manifest:
        """Create a pod and wait until it runs; return it."""
        namespace = pod["metadata"].setdefault("namespace", "default")
        self._controlplane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

        def running() -> Manifest | None:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
            now: Manifest = self._controlplane.api.request("GET", path)
            phase = now["status"]["phase"]
            assert phase in {"Pending", "Running"}, json.dumps(now["status"], indent=1)
            return now if phase == "Running" else None

        made = eventually(running, PATIENCE_S)
        assert made is not None
        return made

    def delete(self, pod: Manifest) -> None:
        """Delete a pod at once; returns when its cgroup has been removed."""
        folder = self.folder(pod)
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        self._controlplane.api.request("DELETE", path, {"gracePeriodSeconds": 0})
        eventually(
            lambda: (
                self.machine.run(f"test -e {folder} && echo exists || echo removed") == "removed\n"
            ),
            PATIENCE_S,
        )

    def folder(self, pod: Manifest) -> str:
        """Return the folder of a pod's cgroup."""
        tier = {"BestEffort": "besteffort/", "Burstable": "burstable/"}
        below = tier.get(pod["status"]["qosClass"], "")
        return f"{CGROUPS}/kubepods/{below}pod{pod['metadata']['uid']}"

    def inside(self, pod: Manifest, file: str) -> str:
        """Read a cgroup file of a pod's container from within the container."""
        return self.execute(pod, f"cat {CGROUPS}/{file}").strip()

    def execute(self, pod: Manifest, script: str) -> str:
        """Run a shell script in a pod's container; return its output."""
        (status,) = pod["status"]["containerStatuses"]
        container = status["containerID"].rpartition("/")[2]
        ctr = f"{self._programs.ctr} -n k8s.io tasks exec --exec-id x{os.urandom(4).hex()}"
        return self.machine.run(f"{ctr} {container} sh -c {shlex.quote(script)}")

    def of_pod(self, pod: Manifest, file: str) -> str:
        """Read a file of a pod's cgroup."""
        return self.machine.read(f"{self.folder(pod)}/{file}")

    def _wait(self, probe: Callable[[], bool], *programs: str) -> None:
        """Wait until programs have started; raise AssertionError with their logs otherwise."""
        try:
            eventually(probe, START_TIMEOUT_S)
        except Exception as error:
            logs = "\n".join(f"end of {it}'s log:\n{self.log(it)}" for it in programs)
            raise AssertionError(logs) from error

    def _kubeconfig(self) -> str:
        content: Any = json.loads(self._controlplane.kubeconfig().read_text())
        cluster = content["clusters"][0]["cluster"]
        cluster["server"] = f"https://{HOST}:{cluster['server'].rpartition(':')[2]}"
        cluster["tls-server-name"] = "127.0.0.1"
        return json.dumps(content)

    def _is_ready(self) -> bool:
        try:
            node = self._controlplane.api.request("GET", f"/api/v1/nodes/{NAME}")
        except ApiError:
            return False
        conditions = node["status"].get("conditions", [])
        return ("Ready", "True") in [(each["type"], each["status"]) for each in conditions]
