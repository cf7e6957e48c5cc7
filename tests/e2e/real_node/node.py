"""One real node beside everything else on this machine.

It lives in mount and process namespaces of its own: there, folders of ``state`` lie over /run,
/var/log, /var/lib/kubelet and the like, so that every program keeps its usual paths and nothing is
written elsewhere; a socket such as /run/nri/nri.sock is reached from outside as
``state``/run/nri/nri.sock.  When the first process of the namespace ends, all others do, and the
mounts go with them.  Only one fits on a machine: the cgroup kubepods is its own.
"""

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.controlplane.builds import say
from tests.e2e.real_node import configuration
from tests.e2e.real_node.cri import runtime_status
from tests.e2e.real_node.programs import Programs
from tests.e2e.waiting import eventually

Manifest = dict[str, Any]

NAME = "real-node"
CGROUPS = Path("/sys/fs/cgroup")
_BRIDGE = "koord-e2e0"
_LOCK = Path("/run/lock/koordinator-real-node.lock")
_OVERLAID = {
    "log": "/var/log",
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "cni": "/var/lib/cni",
    "run": "/run",
}
_PATIENCE_S = 60.0
_LOG_LINES = 40

# kubelet and containerd come back a second after they ended, as under systemd, unless held.
_INSIDE = """set -eu
mount --make-rshared /
{mounts}
export PATH={path}:$PATH
keep() {{
  name=$1; shift
  while :; do
    while [ -e {state}/hold-$name ]; do sleep 0.05; done
    "$@" >> {state}/log/$name.log 2>&1 & echo $! > {state}/run/$name.pid; wait $! || true
    rm -f {state}/run/$name.pid; [ -e {state}/hold-$name ] || sleep 1
  done
}}
keep containerd containerd --config {state}/etc/containerd.toml &
until ctr version > /dev/null 2>&1; do sleep 0.1; done
ctr -n k8s.io images import {images} > /dev/null
touch {state}/run/imported
keep kubelet kubelet --config {state}/etc/kubelet.yaml --kubeconfig {kubeconfig} \\
  --hostname-override {name} --node-ip {node_ip} &
wait
"""


class RealNode:
    """kubelet, containerd and runc as the node ``name`` of a control plane.

    ``with RealNode(...)`` starts containerd; ``start_kubelet`` makes the Node, and ``stop_kubelet``
    ends its pods and leaves it to who cleans up.  Needs root and a network of its own.
    """

    name = NAME

    def __init__(self, controlplane: ControlPlane, programs: Programs, state: Path) -> None:
        self.state = state
        self.programs = programs
        self._controlplane = controlplane
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    # Life

    def __enter__(self) -> Self:
        """Start containerd; returns when it has the images."""
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End everything and remove its cgroups and its bridge."""
        self._stop()

    def start_kubelet(self, further: Mapping[str, Any] | None = None) -> None:
        """Start it with these further settings; returns when the node is ready, in 1 or 2 s."""
        for kept in self.state.glob("kubelet/*_manager_state"):
            kept.unlink()  # it refuses one that another policy wrote
        (self.state / "etc/kubelet.yaml").write_text(configuration.kubelet_yaml(further or {}))
        (self.state / "hold-kubelet").unlink(missing_ok=True)
        eventually(self.is_ready, _PATIENCE_S)

    def stop_kubelet(self) -> None:
        """Have it end all pods, then end it."""
        self.delete_pods()
        (self.state / "hold-kubelet").touch()
        self.signal("kubelet", signal.SIGKILL)
        eventually(lambda: not (self.state / "run/kubelet.pid").exists(), _PATIENCE_S)
        # What an agent set there would be the next kubelet's, which keeps what it does not know.
        _remove_cgroups()

    def restart(self) -> None:
        """Forget everything, as a machine that is installed again: for pods that do not end."""
        self._stop()
        shutil.rmtree(self.state)
        self.state.mkdir()
        self._start()

    def kill(self, program: str) -> None:
        """End kubelet or containerd as a crash does; it is started again after a second."""
        self.signal(program, signal.SIGKILL)

    def signal(self, program: str, number: int) -> None:
        """Send a signal to kubelet or containerd, if it runs."""
        with suppress(FileNotFoundError):
            pid = (self.state / f"run/{program}.pid").read_text().strip()
            self.inside(["kill", f"-{number}", pid], check=False)

    def is_ready(self) -> bool:
        """Return whether the kubelet reports it."""
        try:
            node = self._controlplane.api.request("GET", f"/api/v1/nodes/{NAME}")
        except (ApiError, OSError, HTTPException):
            return False
        conditions = node["status"].get("conditions", [])
        return ("Ready", "True") in [(each["type"], each["status"]) for each in conditions]

    # Places

    @property
    def nri_socket(self) -> Path:
        """Where plugins of the container runtime connect."""
        return self.state / "run/nri/nri.sock"

    @property
    def var_run(self) -> Path:
        """The folder that is /run, and so /var/run, of the node."""
        return self.state / "run"

    @property
    def kubelet_folder(self) -> Path:
        """The folder that is /var/lib/kubelet of the node: sockets, device plugins, CPU manager."""
        return self.state / "kubelet"

    def add_cni_plugin(self, name: str, program: str, settings: Mapping[str, Any]) -> None:
        """Have the runtime ask a further plugin, a shell script, for the network of pods."""
        script = self.state / f"etc/cni-bin/{name}"
        script.write_text(program)
        script.chmod(0o755)
        conflist = configuration.cni_conflist(_BRIDGE, {"type": name, **settings})
        (self.state / "etc/cni/00-further.conflist").write_text(conflist)
        eventually(lambda: f'"{name}"' in self._network_settings(), _PATIENCE_S)

    def remove_cni_plugin(self, name: str) -> None:
        """Take it away again; the runtime has to have ended all pods."""
        (self.state / "etc/cni/00-further.conflist").unlink(missing_ok=True)
        eventually(lambda: f'"{name}"' not in self._network_settings(), _PATIENCE_S)

    def _network_settings(self) -> str:
        """Return what containerd has loaded of CNI."""
        return runtime_status(self.state / "run/containerd/containerd.sock").get("cniconfig", "")

    def inside(self, command: Sequence[str | Path], *, check: bool = True) -> str:
        """Run a command among the node's mounts and processes; return what it printed."""
        place = ["nsenter", f"--target={self._init_pid()}", "--mount", "--pid"]
        done = subprocess.run(
            [*place, *map(str, command)], capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def log_tail(self, program: str) -> str:
        """Return the end of what kubelet or containerd logged."""
        log = self.state / f"log/{program}.log"
        if not log.exists():
            return ""
        return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    # Pods

    def run(
        self, *pods: Manifest, wait: str = "Running", timeout_s: float = _PATIENCE_S
    ) -> list[Manifest]:
        """Create pods on this node and wait until each is ``Running`` or ``Succeeded``.

        Return them as they are then.
        """
        self.create(*pods)
        return [self.wait_for(pod, wait, timeout_s) for pod in pods]

    def create(self, *pods: Manifest) -> None:
        """Create pods on this node."""
        for pod in pods:
            namespace = pod["metadata"].setdefault("namespace", "default")
            path = f"/api/v1/namespaces/{namespace}/pods"
            self._controlplane.api.request("POST", path, pod)

    def wait_for(self, pod: Manifest, phase: str, timeout_s: float = _PATIENCE_S) -> Manifest:
        """Wait until a pod has a phase; return the pod.  One that has ended before is an error."""

        def ended_manifest() -> Manifest | None:
            now = self.get(pod)
            status = now["status"]
            if status["phase"] in {phase, "Failed", "Succeeded"}:
                return now
            return None

        now = eventually(ended_manifest, timeout_s)
        assert now is not None
        assert now["status"]["phase"] == phase, json.dumps(now["status"], indent=1)
        return now

    def get(self, pod: Manifest) -> Manifest:
        """Return a pod as it is now."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        response: Manifest = self._controlplane.api.request("GET", path)
        return response

    def printed(self, pod: Manifest, container: str = "main") -> str:
        """Return what a container has printed since its first start."""
        return "\n".join(line.split(" ", 3)[3] for line in self._log_lines(pod, container))

    def first_line_s(self, pod: Manifest, container: str = "main") -> float:
        """Return when a container printed its first line, in seconds since the epoch."""
        lines = eventually(lambda: self._log_lines(pod, container))
        return datetime.fromisoformat(lines[0].split(" ", 1)[0]).timestamp()

    def _log_lines(self, pod: Manifest, container: str) -> list[str]:
        """Return lines of time, stream, tag and text."""
        meta = pod["metadata"]
        folder = self.state / f"log/pods/{meta['namespace']}_{meta['name']}_{meta['uid']}"
        logs = sorted((folder / container).glob("*.log"), key=lambda path: int(path.stem))
        return [line for log in logs for line in log.read_text().splitlines()]

    def exec(self, pod: Manifest, *command: str, container: str = "main") -> str:
        """Run a command in a container that runs; return what it printed."""
        ctr = [str(self.programs.ctr), "--namespace=k8s.io", "tasks", "exec"]
        process = f"--exec-id=test{time.monotonic_ns()}"
        return self.inside([*ctr, process, self.container_id(pod, container), *command])

    def container_id(self, pod: Manifest, container: str = "main") -> str:
        """Return the id of a container that has been started."""
        for status in self.get(pod)["status"].get("containerStatuses", []):
            if status["name"] == container:
                return str(status["containerID"]).rpartition("/")[2]
        raise LookupError(container)

    def delete(self, *pods: Manifest) -> None:
        """Delete pods at once; returns when none of their containers is left."""
        for pod in pods:
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            with suppress(ApiError):  # it was deleted meanwhile
                self._controlplane.api.request("DELETE", path, {"gracePeriodSeconds": 0})
        uids = {f"pod{pod['metadata']['uid']}" for pod in pods}
        eventually(lambda: not uids & {it.name for it in self._pod_folders()}, _PATIENCE_S)

    def delete_pods(self) -> None:
        """Delete all pods of the node; returns when none of their containers is left."""
        field = f"fieldSelector=spec.nodeName%3D{NAME}"
        for pod in self._controlplane.api.request("GET", f"/api/v1/pods?{field}")["items"]:
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            with suppress(ApiError):  # it was deleted meanwhile
                self._controlplane.api.request("DELETE", path, {"gracePeriodSeconds": 0})
        eventually(lambda: not self._pod_folders(), _PATIENCE_S)

    # Inner works

    def _start(self) -> None:
        self._lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for the real node of another process")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        if any((folder / "cgroup.procs").read_text() for folder in _folders()):
            raise RuntimeError(
                f"{CGROUPS} has processes in kubepods: this machine is a node itself"
            )
        _clean_up()
        state = self.state
        for folder in ("etc/cni", "etc/cni-bin", *_OVERLAID):
            (state / folder).mkdir(parents=True)
        (state / "etc/containerd.toml").write_text(
            configuration.containerd_toml(self.programs, state / "etc")
        )
        (state / "etc/cni/10-node.conflist").write_text(configuration.cni_conflist(_BRIDGE))
        (state / "hold-kubelet").touch()
        address = f"{configuration.NODE_IP}/32"
        subprocess.run(["ip", "address", "replace", address, "dev", "lo"], check=True)  # noqa: S607
        script = _INSIDE.format(
            mounts="\n".join(
                f"mkdir -p {place}; mount --bind {state}/{folder} {place}"
                for folder, place in _OVERLAID.items()
            ),
            path=f"{self.programs.kubelet}:{self.programs.containerd}:{self.programs.runc.parent}",
            state=shlex.quote(str(state)),
            images=self.programs.images,
            kubeconfig=self._controlplane.kubeconfig(),
            name=NAME,
            node_ip=configuration.NODE_IP,
        )
        namespaces = ["unshare", "--mount", "--propagation=private", "--pid", "--fork"]
        with (state / "init.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*namespaces, "--kill-child", "--mount-proc", "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self._controlplane.process_group,
            )
        eventually(self._has_started, _PATIENCE_S)

    def _has_started(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError((self.state / "init.log").read_text())
        return (self.state / "run/imported").exists() and self.nri_socket.exists()

    def _stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._init_pid(), signal.SIGKILL)
            self._process.wait()
            self._process = None
            _clean_up()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _init_pid(self) -> int:
        if self._process is None:
            raise ProcessLookupError("the node was not started")
        outer = self._process.pid
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        if not children:
            raise ProcessLookupError("the node has ended")
        return int(children[0])

    def _pod_folders(self) -> list[Path]:
        return [folder for folder in _folders() if folder.name.startswith("pod")]


def pod(name: str, script: str = "sleep 2147483647", **spec: Any) -> Manifest:
    """Return a pod of one container ``main`` that runs a shell script; a grace period of 0."""
    resources = spec.pop("resources", {})
    further = {key: spec.pop(key) for key in ("labels", "annotations") if key in spec}
    container = {
        "name": "main",
        "image": "node.test/busybox:1",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": resources,
        **spec.pop("container", {}),
    }
    return {
        "metadata": {"name": name, **further},
        "spec": {
            "nodeName": NAME,
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [container],
            **spec,
        },
    }


def _kubepods() -> list[Path]:
    if (CGROUPS / "cgroup.controllers").exists():
        trees = [CGROUPS]
    else:
        trees = [folder for folder in CGROUPS.iterdir() if not folder.is_symlink()]
    return [tree / "kubepods" for tree in trees if (tree / "kubepods").is_dir()]


def _folders() -> list[Path]:
    below = [it for tree in _kubepods() for it in tree.rglob("*") if it.is_dir()]
    return [*below, *_kubepods()]


def _clean_up() -> None:
    """Remove what a node leaves, also one that was killed."""
    _remove_cgroups()
    subprocess.run(["ip", "link", "delete", _BRIDGE], capture_output=True, check=False)  # noqa: S607


def _remove_cgroups() -> None:

    def is_deleted() -> bool:
        for folder in sorted(_folders(), reverse=True):
            with suppress(OSError):
                folder.rmdir()
        return not _kubepods()

    eventually(is_deleted, _PATIENCE_S)
