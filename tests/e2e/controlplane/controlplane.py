"""A throw-away Kubernetes control plane: etcd, kube-apiserver and, on request, more of it.

There are no nodes: ``tests.e2e.kubelet`` plays them.  Everything listens on free loopback ports and
is killed when the Python process ends, however it ends.
"""

import base64
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.e2e.controlplane import binaries, command_lines, kubeconfig
from tests.e2e.controlplane.audit import AuditLog
from tests.e2e.controlplane.certificates import Authority
from tests.e2e.controlplane.endpoint import Endpoint, free_port
from tests.e2e.controlplane.errors import ControlPlaneError
from tests.e2e.controlplane.processes import ProcessGroup, Program

#: Admission that waits for what a controller does, so that without controllers nothing gets in
#: (ServiceAccount), nothing gets out (StorageObjectInUseProtection), no node becomes usable.
NEEDS_CONTROLLERS = ("ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition")

#: Controllers that ``start_controller_manager`` runs by default.
CONTROLLERS = (
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-binder-controller",
    "replicaset-controller",
    "serviceaccount-controller",
)

_ADMIN = "admin"
_CLIENT_TIMEOUT_S = 300


class ControlPlane:
    """One cluster.  ``with ControlPlane() as cluster`` starts it and stops it.

    Its files live in ``state_dir``, which then keeps the logs, or in a temporary folder.
    ``admission_off`` names admission plugins to leave out; give () to have all that Kubernetes has
    by default, and start the controllers that they need.  ``apiserver_flags`` are further flags of
    the API server.  ``api`` is the API server, as the admin.
    ``programs`` has, by name, what was started.  If ``audited``, ``audit`` lists who bound which
    pod.
    """

    def __init__(
        self,
        state_dir: Path | None = None,
        *,
        admission_off: Sequence[str] = NEEDS_CONTROLLERS,
        audited: bool = False,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        self._owns_state_dir = state_dir is None
        self.state_dir = state_dir or Path(tempfile.mkdtemp(prefix="koordinator-controlplane-"))
        self.state_dir.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(self.state_dir / "pki")
        tls = ssl.create_default_context(cafile=str(self.authority.ca_path))
        self.api = Endpoint(free_port(), tls, token=secrets.token_hex(16))
        self.programs: dict[str, Program] = {}
        self.audit = AuditLog(self.state_dir)
        self._etcd = Endpoint(free_port())
        self._admission_off = admission_off
        self._audited = audited
        self._apiserver_flags = apiserver_flags
        self._group: ProcessGroup | None = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Bring up etcd and kube-apiserver; returns when the API is ready, in about 4 s.

        Raises ControlPlaneError, with the end of the log, if one of them doesn't come up.
        """
        tokens_path = self.state_dir / "tokens.csv"
        tokens_path.write_text(f"{self.api.token},{_ADMIN},{_ADMIN},system:masters\n")
        etcd = command_lines.etcd(self._etcd, self.state_dir / "etcd")
        apiserver = command_lines.apiserver(
            self.api, self._etcd, self.authority, tokens_path, self._admission_off
        )
        if self._audited:
            apiserver += self.audit.flags()
        apiserver += self._apiserver_flags
        self._group = ProcessGroup()
        try:
            self._add("etcd", etcd)
            self.start_etcd()
            self._add("kube-apiserver", apiserver)
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill everything and delete what it stored.  Stopping twice is allowed."""
        if self._group is not None:
            self._group.kill()
            self._group = None
        for program in self.programs.values():
            program.stop(signal.SIGKILL)
        shutil.rmtree(self.state_dir / "etcd", ignore_errors=True)
        if self._owns_state_dir:
            shutil.rmtree(self.state_dir, ignore_errors=True)

    @property
    def process_group(self) -> int:
        """The id of the process group that ends with this cluster, for who runs beside it."""
        if self._group is None:
            raise ControlPlaneError("the cluster was not started")
        return self._group.id

    # Outages

    def start_apiserver(self) -> None:
        """Start it on its old port and wait until it is ready."""
        program = self.programs["kube-apiserver"]
        program.start()
        _wait_until_ready(program, self.api, "/readyz")
        # Made by a loop that readyz doesn't wait for.
        _wait_until_ready(program, self.api, "/api/v1/namespaces/default")

    def stop_apiserver(self) -> None:
        """Kill it in the middle of whatever it does."""
        self.programs["kube-apiserver"].stop(signal.SIGKILL)

    def restart_apiserver(self) -> None:
        """Kill it and start it again, in about 3 s: connections break."""
        self.stop_apiserver()
        self.start_apiserver()

    def start_etcd(self) -> None:
        """Start it with what it stored and wait until it is healthy."""
        program = self.programs["etcd"]
        program.start()
        _wait_until_ready(program, self._etcd, "/health")

    def stop_etcd(self) -> None:
        """Stop it; the API server stays up and fails."""
        self.programs["etcd"].stop()

    def heal(self) -> None:
        """Start what was stopped or has died, and stop what was started besides."""
        for name in set(self.programs) - {"etcd", "kube-apiserver"}:
            self.stop_program(name)
        if not self.programs["etcd"].is_running():
            self.start_etcd()
        if not self.programs["kube-apiserver"].is_running():
            self.start_apiserver()
        self.api.wait_until_ready("/readyz", self.programs["kube-apiserver"].read_cpu_s)

    def compact_history(self) -> None:
        """Compact the history: older watches and pages of lists get the answer 410.

        Compacts etcd and restarts the API server, whose watch cache would remember.
        """
        any_key = base64.b64encode(b"\0").decode()
        answer = self._etcd.request("POST", "/v3/kv/range", {"key": any_key, "count_only": True})
        compaction = {"revision": answer["header"]["revision"], "physical": True}
        self._etcd.request("POST", "/v3/kv/compaction", compaction)
        self.restart_apiserver()

    # Further programs

    def start_controller_manager(
        self, controllers: Sequence[str] = CONTROLLERS, flags: Sequence[str] = ()
    ) -> None:
        """Run these controllers of kube-controller-manager; returns when it is healthy."""
        arguments = command_lines.controller_manager(self.authority, self.kubeconfig(), controllers)
        self._start_client_program("kube-controller-manager", [*arguments, *flags])

    def start_scheduler(self, configuration: Mapping[str, Any], flags: Sequence[str] = ()) -> None:
        """Run the stock kube-scheduler; returns when it is healthy.

        ``configuration`` is a KubeSchedulerConfiguration, to which its kubeconfig is added.
        """
        connection = {**configuration.get("clientConnection", {})}
        connection["kubeconfig"] = str(self.kubeconfig())
        config_path = self.state_dir / "kube-scheduler.json"
        config_path.write_text(json.dumps({**configuration, "clientConnection": connection}))
        self._start_client_program("kube-scheduler", [f"--config={config_path}", *flags])

    def stop_program(self, name: str) -> None:
        """Stop kube-controller-manager or kube-scheduler."""
        self.programs.pop(name).stop()

    # Users

    def kubeconfig(self, user: str = _ADMIN, groups: Sequence[str] = ()) -> Path:
        """Return the path of a kubeconfig: the admin's, with a token, or one of any other user.

        Other users have a client certificate with these groups; RBAC gives them nothing at first.
        """
        if user == _ADMIN:
            return self.write_kubeconfig(_ADMIN, {"token": self.api.token})
        certificate, key = self.authority.issue_client(user, groups)
        credentials = {
            "client-certificate-data": kubeconfig.encoded(certificate),
            "client-key-data": kubeconfig.encoded(key),
        }
        return self.write_kubeconfig(certificate.stem, credentials)

    def service_account_token(
        self, namespace: str, name: str, expiration_s: int = 3600, pod: str = ""
    ) -> str:
        """Return a token of an existing ServiceAccount; 600 s is the shortest that there is.

        It is bound to a ``pod`` of that account, if one is given, and names that pod's node.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        spec: dict[str, Any] = {"expirationSeconds": expiration_s}
        if pod:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod}
        token: str = self.api.request("POST", path, {"spec": spec})["status"]["token"]
        return token

    def service_account_kubeconfig(self, namespace: str, name: str, node: str = "") -> Path:
        """Return the path of a kubeconfig with a token of an existing ServiceAccount.

        With a ``node`` the token is that of a pod of the account there, which is made.
        """
        pod = f"{name}-{node}" if node else ""
        if pod:
            spec = {
                "nodeName": node,
                "serviceAccountName": name,
                "containers": [{"name": "c", "image": "none"}],
            }
            manifest = {"metadata": {"name": pod}, "spec": spec}
            self.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)
        token = self.service_account_token(namespace, name, pod=pod)
        file = f"serviceaccount-{namespace}-{pod or name}"
        return self.write_kubeconfig(file, {"token": token})

    def write_kubeconfig(self, name: str, credentials: Mapping[str, Any]) -> Path:
        """Write ``<name>.kubeconfig``, with ``credentials`` as its ``user``; return the path."""
        path = self.state_dir / f"{name}.kubeconfig"
        return kubeconfig.write(path, self.api.url, self.authority.ca_path, credentials)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """Run kubectl, by default as the admin, and return its output.

        Raises ControlPlaneError with its output if it fails.
        """
        return self._run_client("kubectl", arguments, stdin, kubeconfig)

    def helm(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """Run helm as ``kubectl`` does kubectl; the first time it is built."""
        return self._run_client("helm", arguments, stdin, kubeconfig)

    def _run_client(
        self, name: str, arguments: Sequence[str], stdin: str | None, kubeconfig: Path | None
    ) -> str:
        done = subprocess.run(
            [binaries.find(name), f"--kubeconfig={kubeconfig or self.kubeconfig()}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=os.environ | self._client_settings(),
            timeout=_CLIENT_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise ControlPlaneError(f"{name} {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _client_settings(self) -> dict[str, str]:
        """Return variables that keep the clients from reading and writing in the user's home."""
        home = str(self.state_dir / "clients")
        folders = ("KUBECACHEDIR", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        return {**dict.fromkeys(folders, home), "KUBERC": "off"}

    def _start_client_program(self, name: str, arguments: Sequence[str]) -> None:
        if name in self.programs:
            raise ControlPlaneError(f"{name} is running; stop_program first")
        endpoint = Endpoint(free_port(), self.api.tls)
        certificate, key = self.authority.issue_server(name, ["127.0.0.1"])
        program = self._add(
            name,
            [
                str(binaries.find(name)),
                "--bind-address=127.0.0.1",
                f"--secure-port={endpoint.port}",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                f"--authentication-kubeconfig={self.kubeconfig()}",
                f"--authorization-kubeconfig={self.kubeconfig()}",
                "--leader-elect=false",
                *arguments,
            ],
        )
        program.start()
        _wait_until_ready(program, endpoint, "/healthz")

    def _add(self, name: str, command: Sequence[str]) -> Program:
        if self._group is None:
            raise ControlPlaneError("the control plane is not running")
        program = Program(name, command, self.state_dir / f"{name}.log", self._group)
        self.programs[name] = program
        return program


def _wait_until_ready(program: Program, endpoint: Endpoint, path: str) -> None:
    try:
        endpoint.wait_until_ready(path, program.read_cpu_s)
    except ControlPlaneError as error:
        log = f"End of {program.log_path}:\n{program.log_tail()}"
        raise ControlPlaneError(f"{program.name}: {error}\n{log}") from error
