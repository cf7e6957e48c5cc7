"""Flags of ``koord yarn-copilot``, from yarn-copilot-agent, and of its ResourceManager client."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.component.flags import ProcessFlags, parse_address
from koordinator.foundation.errors import InputError


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
