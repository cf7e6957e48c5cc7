"""The flags of ``koord yarn-copilot``: those of yarn-copilot-agent, and who is asked else."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.component.flags import ProcessFlags, parse_address
from koordinator.foundation.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnCopilotFlags:
    """The flags of yarn-copilot-agent, and who is asked to end what has no cgroup."""

    server_endpoint: Annotated[Path, typer.Option(help="Socket that koordlet asks.")] = Path(
        "/var/run/yarn-copilot/yarn-copilot.sock"
    )
    yarn_container_cgroup_path: Annotated[
        str, typer.Option(help="Folder above the cgroups of containers, in its hierarchy.")
    ] = "kubepods/besteffort/hadoop-yarn"
    node_manager_endpoint: Annotated[
        str, typer.Option(help="Web address of this node's NodeManager.")
    ] = "localhost:8042"
    cgroup_root_dir: Annotated[str, typer.Option(help="Where cgroups are mounted.")] = (
        "/sys/fs/cgroup/"
    )
    hadoop_conf_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with yarn-site.xml: its ResourceManager ends what has no cgroup.",
            envvar="HADOOP_CONF_DIR",
        ),
    ] = None
    hadoop_user_name: Annotated[
        str,
        typer.Option(help="Who the ResourceManager is asked as.", envvar="HADOOP_USER_NAME"),
    ] = "yarn"
    process: ProcessFlags = field(default_factory=ProcessFlags)

    @property
    def node_manager(self) -> tuple[str, int]:
        """Host and port of the NodeManager.  Raises InputError."""
        found = parse_address(self.node_manager_endpoint, "--node-manager-endpoint")
        if found is None:
            problem = "must be an address such as localhost:8042, got '0'"
            raise InputError(problem, source="--node-manager-endpoint")
        return ("localhost", found[1]) if found[0] == "::" else found
