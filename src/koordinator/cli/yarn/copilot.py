"""Command ``koord yarn-copilot``: the YARN agent of a node.

Flags of ``koord yarn-copilot``, from yarn-copilot-agent, and of its ResourceManager client.

The copilot as a process: a socket, and nothing that it would need the API server for.
"""

import logging
from dataclasses import field
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import (
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import ProcessFlags, parse_address
from koordinator.domain.cgroups.files import CgroupVersion
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import relative_path
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.hadoop.configuration import read_clusters
from koordinator.hadoop.connection import YarnClientOptions, connector
from koordinator.hadoop.rest import NodeManager, WebService
from koordinator.host.linux.host import LinuxHost
from koordinator.process.logs import set_up_logging
from koordinator.process.termination import stop_on_signals
from koordinator.yarn.copilot import (
    ContainerCgroups,
    ContainerSignaller,
    CopilotSocket,
    YarnCopilot,
)

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnCopilotFlags:
    """Socket, cgroups and YARN clients of the copilot."""

    server_endpoint: Annotated[
        Path, typer.Option(help="Unix socket that the copilot serves for koordlet.")
    ] = Path("/var/run/yarn-copilot/yarn-copilot.sock")
    yarn_container_cgroup_path: Annotated[
        str, typer.Option(help="Parent cgroup of YARN containers, relative to the cgroup root.")
    ] = "kubepods/besteffort/hadoop-yarn"
    node_manager_endpoint: Annotated[
        str, typer.Option(help="Address of the web service of this node's NodeManager.")
    ] = "localhost:8042"
    cgroup_root_dir: Annotated[str, typer.Option(help="Mount point of the cgroups.")] = (
        "/sys/fs/cgroup/"
    )
    hadoop_conf_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with yarn-site.xml. Its ResourceManager ends containers without a cgroup.",
            envvar="HADOOP_CONF_DIR",
        ),
    ] = None
    hadoop_user_name: Annotated[
        str,
        typer.Option(
            help="User name for requests to the ResourceManager.", envvar="HADOOP_USER_NAME"
        ),
    ] = "yarn"
    process: ProcessFlags = field(default_factory=ProcessFlags)

    @property
    def node_manager(self) -> tuple[str, int]:
        """Host and port of the NodeManager.  Raises InputError."""
        address = parse_address(self.node_manager_endpoint, "--node-manager-endpoint")
        if address is None:
            problem = "must be an address such as localhost:8042, got '0'"
            raise InputError(problem, source="--node-manager-endpoint")
        return ("localhost", address[1]) if address[0] == "::" else address


class EndedContainers(Collector):
    """Counter of ended containers, by cause."""

    def __init__(self, copilot: YarnCopilot) -> None:
        self._copilot = copilot

    def collect(self) -> list[CounterMetricFamily]:
        """Return the counter."""
        family = CounterMetricFamily(
            "koord_yarn_copilot_ended_containers",
            "Containers that were ended, by what.",
            labels=("by",),
        )
        for way, count in self._copilot.ended.items():
            family.add_metric((way,), count)
        return [family]


def run_yarn_copilot(flags: YarnCopilotFlags) -> None:
    """Answer until a signal comes.  Raises InputError for invalid arguments."""
    set_up_logging(flags.process.logging_format, flags.process.verbosity)
    stopping = stop_on_signals()
    host = LinuxHost()
    root = flags.cgroup_root_dir.rstrip("/") or "/"
    is_v2 = host.exists(f"{root}/cgroup.controllers")
    folder = relative_path(flags.yarn_container_cgroup_path, path="--yarn-container-cgroup-path")
    copilot = YarnCopilot(
        NodeManager(WebService(flags.node_manager, timeout_s=_TIMEOUT_S)),
        host,
        ContainerCgroups(root, folder, CgroupVersion.V2 if is_v2 else CgroupVersion.V1),
        _signaller(flags),
    )
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(EndedContainers(copilot))
    socket = CopilotSocket(flags.server_endpoint, copilot, lambda: generate_latest(registry))
    socket.start()
    log.info("serving", extra={"socket": str(flags.server_endpoint)})
    try:
        stopping.wait()
    finally:
        socket.stop()
        host.close()
    log.info("stopped")


def _signaller(flags: YarnCopilotFlags) -> ContainerSignaller | None:
    if flags.hadoop_conf_dir is None:
        return None
    default = read_clusters(flags.hadoop_conf_dir)[0]
    options = YarnClientOptions(user=flags.hadoop_user_name, timeout_s=_TIMEOUT_S)
    return connector(default, options)()


@with_flags
def yarn_copilot(flags: YarnCopilotFlags) -> None:
    """Run the YARN agent of this node until a signal stops it."""
    run_yarn_copilot(flags)
