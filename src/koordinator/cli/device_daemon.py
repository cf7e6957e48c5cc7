"""Command ``koord device-daemon``: describes accelerators of vendors other than NVIDIA.

Flags and environment variables of ``koord device-daemon``, from koord-device-daemon.

The device daemon as a process: no cluster, no server, one file.

Source: koordinator cmd/koord-device-daemon/main.go.
"""

import logging
import signal
from dataclasses import field
from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import ProcessFlags, parse_seconds
from koordinator.device_daemon.daemon import DaemonIntervals, DeviceDaemon, LinuxCardMachine
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.programs import LinuxVendorTools
from koordinator.process.logs import set_up_logging
from koordinator.process.termination import stop_on_signals

_ROOTS = "Where the machine is mounted"

log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 0.5  # between two looks at signals


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDaemonFlags:
    """Output file, intervals and folders of the device daemon."""

    process: ProcessFlags = field(default_factory=ProcessFlags)
    oneshot: Annotated[
        bool,
        typer.Option("--oneshot", help="Describe the cards once and exit.", envvar="KDD_ONESHOT"),
    ] = False
    sleep_interval: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Interval between inventories of the cards.",
            envvar="KDD_SLEEP_INTERVAL",
        ),
    ] = "900s"
    health_interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Interval between health checks of the cards.")
    ] = "10s"
    prints_output_file: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="File that describes the cards; the node agent reads all files of its folder.",
            envvar=["KDD_PRINTS_OUTPUT_FILE", "PRINTS_OUTPUT_FILE"],
        ),
    ] = "/var/run/koordlet/xpu-device-infos/ic-device"
    host_root_dir: Annotated[
        str,
        typer.Option(
            help="Root of the host's file system, in which the vendors' tools are run. Default: "
            "/hostfs, the mount point in the original's DaemonSet, if it exists; otherwise /.",
            rich_help_panel=_ROOTS,
        ),
    ] = ""
    sys_root_dir: Annotated[
        str,
        typer.Option(
            help="Mount point of the host's /sys. Default: /host-sys if it exists; otherwise /sys.",
            rich_help_panel=_ROOTS,
        ),
    ] = ""

    def host_root(self, original: Path = Path("/hostfs")) -> str:
        """Return the host's root; ``original`` is its mount point in the original's DaemonSet."""
        return self.host_root_dir or (str(original) if original.is_dir() else "/")

    def sys_root(self, original: Path = Path("/host-sys")) -> str:
        """Return the host's /sys; ``original`` as for ``host_root``."""
        return self.sys_root_dir or (str(original) if original.is_dir() else "/sys")

    @property
    def inventory_s(self) -> float:
        """Seconds between inventories.  Raises InputError unless above 0."""
        return parse_seconds(self.sleep_interval, "--sleep-interval")

    @property
    def health_s(self) -> float:
        """Seconds between health checks.  Raises InputError unless above 0."""
        return parse_seconds(self.health_interval, "--health-interval")

    @property
    def output(self) -> str:
        """Path of the output file.  Raises InputError unless it is absolute."""
        if not self.prints_output_file.startswith("/"):
            raise InputError(
                f"must be an absolute path, got {self.prints_output_file!r}",
                source="--prints-output-file",
            )
        return self.prints_output_file


def run_device_daemon(flags: DeviceDaemonFlags) -> None:
    """Work until a signal stops it; the file is kept, so that no card disappears in a restart.

    Raises InputError for wrong flags, and HostError if a tool fails with ``--oneshot``.
    """
    set_up_logging(flags.process.logging_format, flags.process.verbosity)
    host, clock = LinuxHost(), SystemClock()
    daemon = DeviceDaemon(
        LinuxCardMachine(LinuxVendorTools(flags.host_root()), host, flags.sys_root()),
        host,
        clock,
        output=flags.output,
        intervals=DaemonIntervals(inventory_s=flags.inventory_s, health_s=flags.health_s),
    )
    if flags.oneshot:
        daemon.step()
        if daemon.has_failed:
            raise HostError("a tool of a vendor failed; the cards of the others are written")
        return
    stopping = stop_on_signals()
    hangups: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: hangups.append(number))
    while not stopping.is_set():
        if hangups:
            hangups.clear()
            daemon.request_inventory()
        daemon.step()
        stopping.wait(min(max(daemon.next_s() - clock.now_s(), 0.0), _LONGEST_WAIT_S))
    host.close()
    log.info("stopped")


@with_flags
def device_daemon(flags: DeviceDaemonFlags) -> None:
    """Describe NPUs, MLUs, XPUs and MetaX GPUs for the node agent, by their vendors' tools."""
    run_device_daemon(flags)
