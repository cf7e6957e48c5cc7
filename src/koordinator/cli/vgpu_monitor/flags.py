"""The flags of ``koord vgpu-monitor``: those of HAMi's vGPUmonitor, and its variables."""

from dataclasses import dataclass, field
from typing import Annotated

import typer

from koordinator.cli.component.flags import (
    BOOL,
    ConnectionFlags,
    PageFlags,
    ProcessFlags,
    parse_address,
    parse_bool,
    parse_seconds,
)
from koordinator.foundation.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuMonitorFlags:
    """Which node is watched, and what is shown."""

    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    pages: PageFlags = field(default_factory=PageFlags)
    process: ProcessFlags = field(default_factory=ProcessFlags)
    node_name: Annotated[
        str, typer.Option(help="The node this runs on.", envvar="NODE_NAME", show_default=False)
    ] = ""
    hook_path: Annotated[
        str,
        typer.Option(
            help="The folder of HAMi-core; below it, containers/ has a folder per container.",
            envvar="HOOK_PATH",
        ),
    ] = "/usr/local/vgpu"
    resync_interval: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="After so long without its pod the folder of a container is removed.",
            envvar="HAMI_RESYNC_INTERVAL",
        ),
    ] = "5m"
    legacy_metrics: Annotated[
        str, typer.Option(metavar=BOOL, help="Also show metrics under the names of HAMi v2.6.")
    ] = "true"
    metrics_bind_address: Annotated[
        str,
        typer.Option(
            help="Plain HTTP: health for anybody, all else for whom the API server lets, or for "
            "anybody who reaches a loopback address; 0: none."
        ),
    ] = ":9394"

    @property
    def node(self) -> str:
        """The name of the node.  Raises InputError if nothing says it."""
        if not self.node_name:
            raise InputError("is required; or set NODE_NAME", source="--node-name")
        return self.node_name

    @property
    def retention_s(self) -> float:
        """How long a folder stays without its pod.  Raises InputError unless above 0."""
        return parse_seconds(self.resync_interval, "--resync-interval")

    @property
    def with_old_names(self) -> bool:
        """Whether metrics have the names of HAMi v2.6 as well.  Raises InputError."""
        return parse_bool(self.legacy_metrics, "--legacy-metrics")

    @property
    def address(self) -> tuple[str, int] | None:
        """Where plain HTTP is served, if anywhere.  Raises InputError."""
        return parse_address(self.metrics_bind_address, "--metrics-bind-address")
