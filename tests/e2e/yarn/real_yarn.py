"""A real ResourceManager and NodeManager of Hadoop, each its own JVM, and what they say.

The class path comes by Maven, once per machine.  CGroups need Hadoop's native container-executor,
which no jar has: containers are plain processes, each in a session of its own.
"""

import fcntl
import getpass
import hashlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.network import on_machine
from tests.e2e.waiting import eventually

from koordinator.hadoop.rpc import HA_SERVICE, RpcCaller, bytes_field, call_rpc, number_field

VERSION = "3.3.6"  # of Hadoop
_HERE = Path(__file__).parent / "hadoop"
_PACKAGES = ("java.lang", "java.util", "java.net", "java.io", "java.util.concurrent", "sun.nio.ch")
_SERVER = "org.apache.hadoop.yarn.server"
_RM = "yarn.resourcemanager"
_ADDRESSES = ("scheduler.address", "resource-tracker.address", "address", "admin.address")
_BY_USER = 0  # HARequestSource
KEYSTORE_PASSWORD = "not a secret"  # noqa: S105 -- of a key that lives for a test


class Amounts(NamedTuple):
    """vcores and MiB."""

    vcores: int
    memory_mb: int


#: What the NodeManager registers with.
REGISTERED = Amounts(1, 1024)


def missing(version: str = VERSION) -> str:
    """Return why no YARN of a version of Hadoop can be started here; empty if it can."""
    absent = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if absent:
        return f"a real YARN needs {', '.join(absent)}"
    try:
        class_path(version)
    except subprocess.CalledProcessError as error:
        output = (error.stdout or "").strip().splitlines()
        return f"Hadoop cannot be had by Maven: {output[-1] if output else error}"
    return ""


def class_path(version: str = VERSION) -> Path:
    """Return a folder with Hadoop's jars and the test application; fetched if it is missing."""
    digest = hashlib.sha256(version.encode())
    for source in sorted(_HERE.iterdir()):
        digest.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "koordinator"
    made = base / f"hadoop-{digest.hexdigest()[:12]}"
    base.mkdir(parents=True, exist_ok=True)
    with (base / "hadoop.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            unfinished = Path(tempfile.mkdtemp(prefix=".hadoop-", dir=base))
            try:
                _fetch(unfinished, version)
                unfinished.rename(made)
            except BaseException:
                shutil.rmtree(unfinished)
                raise
    return made


def _fetch(folder: Path, version: str) -> None:
    copy = "dependency:copy-dependencies"
    pom = str(shutil.copy(_HERE / "pom.xml", folder))
    fetch = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", pom, copy, "-DincludeScope=runtime"]
    fetch.append(f"-Dhadoop.version={version}")
    for each in (
        [*fetch, f"-DoutputDirectory={folder}/lib"],
        ["javac", "-cp", f"{folder}/lib/*", "-d", f"{folder}/classes", f"{_HERE}/Sleepers.java"],
    ):
        command = on_machine(each)
        subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )


@dataclass(frozen=True)
class ResourceManagers:
    """Number of ResourceManagers, and the certificates of their pages."""

    replicas: int = 1
    keystore: Path | None = None
    ca: Path | None = None


class RealYarn:
    """One cluster with one NodeManager of 1 vcore and 1024 MiB.  ``with`` starts and stops it.

    Of several ResourceManagers the first one is active, and none takes over by itself.
    """

    def __init__(
        self,
        folder: Path,
        process_group: int,
        managers: ResourceManagers = ResourceManagers(),
        version: str = VERSION,
    ) -> None:
        self.folder = folder
        self._group = process_group
        self._jars = class_path(version)
        self._user = getpass.getuser()
        self._managers = managers
        several = managers.replicas > 1
        self.names = [f"rm{i + 1}" for i in range(managers.replicas)] if several else ["rm"]
        self._web = "webapp.https.address" if managers.keystore else "webapp.address"
        self._ports = {
            name: {each: free_port() for each in (*_ADDRESSES, self._web)} for name in self.names
        }
        self.active = self.names[0]
        self._node_port, self.node_web = free_port(), free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._configure()

    @property
    def node_id(self) -> str:
        """Id with which the NodeManager registers."""
        return f"localhost:{self._node_port}"

    @property
    def conf_dir(self) -> Path:
        """HADOOP_CONF_DIR of clients."""
        return self.folder / self.names[0]

    def port_of(self, what: str) -> int:
        """Return where the first ResourceManager listens, such as for ``admin.address``."""
        return self._ports[self.names[0]][what]

    def __enter__(self) -> Self:
        """Start all, and wait until the NodeManager has registered."""
        for name in self.names:
            self.start_resource_manager(name)
        if len(self.names) > 1:
            eventually(lambda: self.activate(self.names[0]), 120)
        self.start_node_manager()
        eventually(lambda: self.limit() == REGISTERED, 120)
        return self

    def __exit__(self, *_: object) -> None:
        """End all."""
        for name in tuple(self._processes):
            self.kill(name)

    def start_resource_manager(self, name: str = "rm") -> None:
        self._start(name, f"{_SERVER}.resourcemanager.ResourceManager")

    def activate(self, name: str) -> bool:
        """Make a ResourceManager the active one, as ``yarn rmadmin`` does."""
        request = bytes_field(1, number_field(1, _BY_USER))
        address = ("localhost", self._ports[name]["admin.address"])
        call_rpc(address, HA_SERVICE, "transitionToActive", request, RpcCaller(self._user, 10.0))
        self.active = name
        return True

    def start_node_manager(self) -> None:
        self._start("nm", f"{_SERVER}.nodemanager.NodeManager")

    def kill(self, name: str) -> None:
        """End ``rm`` or ``nm`` at once, as a machine that dies does."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def pause(self, name: str) -> None:
        """Suspend ``rm`` or ``nm``: it accepts connections and sends no answers."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Resume it, with the requests sent to it meanwhile."""
        self._processes[name].send_signal(signal.SIGCONT)

    # -- what they say -----------------------------------------------------------------------

    def limit(self) -> Amounts | None:
        """Return what the ResourceManager may hand out on the node; None if it has none."""
        node = self._node()
        if node is None:
            return None
        total = node.get("totalResource")
        if total is not None:
            return Amounts(total["vCores"], total["memory"])
        return Amounts(  # Hadoop 3.2
            node["usedVirtualCores"] + node["availableVirtualCores"],
            node["usedMemoryMB"] + node["availMemoryMB"],
        )

    def used(self) -> Amounts:
        """Return what containers have."""
        node = self._node()
        return Amounts(node["usedVirtualCores"], node["usedMemoryMB"]) if node else Amounts(0, 0)

    def own_limit(self) -> Amounts | None:
        """Return what the NodeManager itself admits containers by."""
        response = self._ask(f"http://localhost:{self.node_web}/ws/v1/node/info")
        if response is None:
            return None
        info = response["nodeInfo"]
        return Amounts(
            info["totalVCoresAllocatedContainers"], info["totalPmemAllocatedContainersMB"]
        )

    def tasks(self) -> list[str]:
        """Return the ids of the running containers without ApplicationMasters."""
        response = self._ask(f"http://localhost:{self.node_web}/ws/v1/node/containers")
        listed = ((response or {}).get("containers") or {}).get("container", [])
        return [
            each["id"]
            for each in listed
            if each["state"] == "RUNNING" and not each["id"].endswith("_000001")
        ]

    def pid_of(self, container: str) -> int:
        """Return the process, which is its process group as well, of a container."""
        (path,) = self.folder.glob(f"nm/local/nmPrivate/*/{container}/{container}.pid")
        return int(path.read_text())

    def processes_of(self, container: str) -> list[int]:
        """Return the processes of a container."""
        group, pids = self.pid_of(container), []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    pids.append(int(stat.parent.name))
        return pids

    def run_tasks(self, count: int, memory_mb: int = 256, vcores: int = 1) -> str:
        """Submit an application that keeps so many sleeping tasks; return its id."""
        new = self._ask(self._url("apps/new-application"), {})
        app_id: str = new["application-id"]
        command = (
            f"exec java -Xmx96m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "
            f"{self.folder}/rm:{self._jars}/classes:{self._jars}/lib/* "
            f"Sleepers {count} {memory_mb} {vcores} 1><LOG_DIR>/out 2><LOG_DIR>/err"
        )
        submission = {
            "application-id": app_id,
            "application-name": "sleepers",
            "application-type": "YARN",
            "max-app-attempts": 1,
            "resource": {"memory": 256, "vCores": 1},
            "am-container-spec": {"commands": {"command": command}},
        }
        self._ask(self._url("apps"), submission)
        return app_id

    def end(self, app_id: str) -> None:
        """End an application."""
        self._ask(self._url(f"apps/{app_id}/state"), {"state": "KILLED"}, method="PUT")

    def _node(self) -> dict[str, Any] | None:
        response = self._ask(self._url("nodes?states=RUNNING"))
        listed = ((response or {}).get("nodes") or {}).get("node", [])
        return next((each for each in listed if each["id"] == self.node_id), None)

    def _url(self, path: str) -> str:
        scheme = "https" if self._managers.keystore else "http"
        port = self._ports[self.active][self._web]
        return f"{scheme}://localhost:{port}/ws/v1/cluster/{path}"

    def _ask(self, url: str, body: Any = None, *, method: str | None = None) -> Any:
        """Return the JSON of an answer; None without an answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 -- our own
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._trust()) as reply:  # noqa: S310 -- our own
                text = reply.read()
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(f"{url}: {error.code} {error.read().decode()}") from error
        except OSError:
            return None
        return json.loads(text) if text else None

    def _trust(self) -> ssl.SSLContext | None:
        ca = self._managers.ca
        return ssl.create_default_context(cafile=str(ca)) if ca is not None else None

    # -- processes ---------------------------------------------------------------------------

    def _start(self, name: str, main_class: str) -> None:
        opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _PACKAGES]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [  # noqa: S607 -- any JRE
                    "java",
                    "-Xmx192m",
                    "-Xss512k",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-XX:MaxMetaspaceSize=160m",
                    "-Djava.net.preferIPv4Stack=true",
                    *opened,
                    "-cp",
                    f"{self.folder / name}:{self._jars}/lib/*",
                    main_class,
                ],
                stdout=log,
                stderr=log,
                process_group=self._group,
            )

    def _configure(self) -> None:
        calculator = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
        shared = {
            **self._addresses(),
            "yarn.admin.acl": self._user,
            "yarn.resourcemanager.am.max-attempts": "1",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
            "yarn.resourcemanager.connect.retry-interval.ms": "500",
            "yarn.scheduler.minimum-allocation-mb": "64",
            "yarn.scheduler.maximum-allocation-mb": "1048576",
            "yarn.scheduler.maximum-allocation-vcores": "1024",
        }
        node = {
            "yarn.nodemanager.address": self.node_id,
            "yarn.nodemanager.localizer.address": f"localhost:{free_port()}",
            "yarn.nodemanager.webapp.address": f"localhost:{self.node_web}",
            "yarn.nodemanager.collector-service.address": f"localhost:{free_port()}",
            "yarn.nodemanager.resource.cpu-vcores": str(REGISTERED.vcores),
            "yarn.nodemanager.resource.memory-mb": str(REGISTERED.memory_mb),
            "yarn.nodemanager.local-dirs": f"{self.folder}/nm/local",
            "yarn.nodemanager.log-dirs": f"{self.folder}/nm/logs",
            "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH,LANG",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
            "yarn.nodemanager.delete.debug-delay-sec": "0",
        }
        core = {
            "fs.defaultFS": "file:///",
            "hadoop.tmp.dir": str(self.folder / "tmp"),
            "hadoop.http.staticuser.user": self._user,
            "hadoop.http.filter.initializers": "org.apache.hadoop.http.lib.StaticUserWebFilter",
        }
        queues = {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
            "yarn.scheduler.capacity.resource-calculator": calculator,
        }
        policy = "HTTPS_ONLY" if self._managers.keystore else "HTTP_ONLY"
        own = {**shared, "yarn.http.policy": policy}
        sites = {name: {**own, f"{_RM}.ha.id": name} for name in self.names}
        for name, site in {**sites, "nm": {**shared, **node}}.items():
            folder = self.folder / name
            folder.mkdir(parents=True)
            _write(folder / "yarn-site.xml", site)
            _write(folder / "core-site.xml", core)
            _write(folder / "capacity-scheduler.xml", queues)
            if self._managers.keystore is not None:
                _write(folder / "ssl-server.xml", _served_with(self._managers.keystore))
            (folder / "log4j.properties").write_text(
                "log4j.rootLogger=INFO,out\n"
                "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
                "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
                "log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n\n"
            )

    def _addresses(self) -> dict[str, str]:
        several = len(self.names) > 1
        addresses = {
            f"{_RM}.{what}.{name}" if several else f"{_RM}.{what}": f"localhost:{port}"
            for name, ports in self._ports.items()
            for what, port in ports.items()
        }
        if several:
            addresses |= {
                f"{_RM}.ha.enabled": "true",
                f"{_RM}.ha.automatic-failover.enabled": "false",
                f"{_RM}.ha.rm-ids": ",".join(self.names),
                f"{_RM}.cluster-id": "real",
                "yarn.client.failover-sleep-base-ms": "200",
                "yarn.client.failover-sleep-max-ms": "500",
            }
        return addresses


def _served_with(keystore: Path) -> dict[str, str]:
    return {
        "ssl.server.keystore.type": "pkcs12",
        "ssl.server.keystore.location": str(keystore),
        "ssl.server.keystore.password": KEYSTORE_PASSWORD,
        "ssl.server.keystore.keypassword": KEYSTORE_PASSWORD,
    }


def _write(path: Path, properties: Mapping[str, str]) -> None:
    entries = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n"
        for name, value in properties.items()
    )
    path.write_text(f"<configuration>\n{entries}</configuration>\n")
