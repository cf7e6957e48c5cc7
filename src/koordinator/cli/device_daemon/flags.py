"""The flags of ``koord device-daemon``: those of koord-device-daemon, and its variables."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.component.flags import ProcessFlags, parse_seconds
from koordinator.foundation.errors import InputError

_ROOTS = "Where the machine is mounted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDaemonFlags:
    """What is written where, and how often."""

    process: ProcessFlags = field(default_factory=ProcessFlags)
    oneshot: Annotated[
        bool,
        typer.Option("--oneshot", help="Describe the cards once and exit.", envvar="KDD_ONESHOT"),
    ] = False
    sleep_interval: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Between two inventories.", envvar="KDD_SLEEP_INTERVAL"
        ),
    ] = "900s"
    health_interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Between two questions after health.")
    ] = "10s"
    prints_output_file: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Where cards are described; the node agent reads all files of the folder.",
            envvar=["KDD_PRINTS_OUTPUT_FILE", "PRINTS_OUTPUT_FILE"],
        ),
    ] = "/var/run/koordlet/xpu-device-infos/ic-device"
    host_root_dir: Annotated[
        str,
        typer.Option(
            help="Tools of vendors are run there; default: /hostfs, where the original's "
            "DaemonSet has it, if it is there, else /.",
            rich_help_panel=_ROOTS,
        ),
    ] = ""
    sys_root_dir: Annotated[
        str, typer.Option(help="Default: /host-sys or /sys, likewise.", rich_help_panel=_ROOTS)
    ] = ""

    def host_root(self, original: Path = Path("/hostfs")) -> str:
        """Return where the machine is mounted; ``original`` is where the original has it."""
        return self.host_root_dir or (str(original) if original.is_dir() else "/")

    def sys_root(self, original: Path = Path("/host-sys")) -> str:
        """Return where its /sys is."""
        return self.sys_root_dir or (str(original) if original.is_dir() else "/sys")

    @property
    def inventory_s(self) -> float:
        """The first interval.  Raises InputError unless above 0."""
        return parse_seconds(self.sleep_interval, "--sleep-interval")

    @property
    def health_s(self) -> float:
        """The second interval.  Raises InputError unless above 0."""
        return parse_seconds(self.health_interval, "--health-interval")

    @property
    def output(self) -> str:
        """The file.  Raises InputError unless it is an absolute path."""
        if not self.prints_output_file.startswith("/"):
            raise InputError(
                f"must be an absolute path, got {self.prints_output_file!r}",
                source="--prints-output-file",
            )
        return self.prints_output_file
