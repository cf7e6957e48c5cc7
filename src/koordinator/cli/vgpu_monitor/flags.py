"""Flags and environment variables of ``koord vgpu-monitor``, from HAMi's vGPUmonitor."""

from dataclasses import field
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
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuMonitorFlags:
    """Node to watch, folder of HAMi-core, and metrics to serve."""

    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    pages: PageFlags = field(default_factory=PageFlags)
    process: ProcessFlags = field(default_factory=ProcessFlags)
    node_name: Annotated[
        str, typer.Option(help="Name of this node.", envvar="NODE_NAME", show_default=False)
    ] = ""
    hook_path: Annotated[
        str,
        typer.Option(
            help="Folder of HAMi-core; its folder containers/ has a folder per container.",
            envvar="HOOK_PATH",
        ),
    ] = "/usr/local/vgpu"
    resync_interval: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Time after which the folder of a container without a pod is removed.",
            envvar="HAMI_RESYNC_INTERVAL",
        ),
    ] = "5m"
    legacy_metrics: Annotated[
        str,
        typer.Option(metavar=BOOL, help="Serve metrics under the names of HAMi v2.6 as well."),
    ] = "true"
    metrics_bind_address: Annotated[
        str,
        typer.Option(
            help="Address of the plain HTTP server; 0 disables it. Except for health, the API "
            "server authorizes each request, unless this is a loopback address."
        ),
    ] = ":9394"

    @property
    def node(self) -> str:
        """Name of the node.  Raises InputError if it is not set."""
        if not self.node_name:
            raise InputError("is required; or set NODE_NAME", source="--node-name")
        return self.node_name

    @property
    def retention_s(self) -> float:
        """Seconds that a folder is kept without its pod.  Raises InputError unless above 0."""
        return parse_seconds(self.resync_interval, "--resync-interval")

    @property
    def with_old_names(self) -> bool:
        """Whether metrics are served under the names of HAMi v2.6 as well.  Raises InputError."""
        return parse_bool(self.legacy_metrics, "--legacy-metrics")

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the plain HTTP server; None if it is disabled.  Raises InputError."""
        return parse_address(self.metrics_bind_address, "--metrics-bind-address")
