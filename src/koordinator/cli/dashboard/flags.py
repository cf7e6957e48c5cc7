"""Flags of ``koord dashboard``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.component.flags import SERVING, parse_address
from koordinator.cli.input.configuration import NAMED_CONFIGURATION, WHAT_NAMES_MEAN
from koordinator.foundation.errors import InputError

_SOURCE = "What is shown: one of these"
_TIME = "Time, of simulations and recordings"
_DECISIONS = "What a scheduler elsewhere has decided: of a cluster or manifests"
LOCAL = "127.0.0.1:8765"


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardFlags:
    """What is shown, and to whom."""

    files: Annotated[
        list[str] | None,
        typer.Option(
            "--filename",
            "-f",
            help="Manifests: file or folder, read again when it changes; repeatable.",
            rich_help_panel=_SOURCE,
        ),
    ] = None
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            help="A workload of koord simulate, run while it is shown; demo: that of koord demo.",
            rich_help_panel=_SOURCE,
        ),
    ] = ""
    recording: Annotated[
        Path | None,
        typer.Option(help="A file of koord record, replayed.", rich_help_panel=_SOURCE),
    ] = None
    kubeconfig: Annotated[
        str, typer.Option(help="A cluster; nothing is written.", rich_help_panel=_SOURCE)
    ] = ""
    context: Annotated[
        str, typer.Option(help="Context of the kubeconfig.", rich_help_panel=_SOURCE)
    ] = ""
    in_cluster: Annotated[
        bool,
        typer.Option(
            "--in-cluster", help="The cluster that this pod runs in.", rich_help_panel=_SOURCE
        ),
    ] = False
    config: Annotated[
        str,
        typer.Option(
            "--config",
            metavar=NAMED_CONFIGURATION,
            help=f"{WHAT_NAMES_MEAN} Default: that of the recording or simulation, or both.",
        ),
    ] = ""
    compare_config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help="The same simulation or recording with this configuration, too: the Time view "
            "shows both.",
        ),
    ] = ""
    speed: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Seconds there in one of yours; 0: as fast as it can be computed. "
            "Default: 600, of recordings 60.",
            rich_help_panel=_TIME,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Of a workload; default: the file's.", rich_help_panel=_TIME),
    ] = None
    audit: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files or folders of its --audit-dir; repeatable.", rich_help_panel=_DECISIONS
        ),
    ] = None
    audit_server: Annotated[
        str,
        typer.Option(
            help="The scheduler that leads, such as https://127.0.0.1:10259 (its --secure-port); "
            "it is asked as the cluster is.",
            rich_help_panel=_DECISIONS,
        ),
    ] = ""
    audit_token: Annotated[
        str, typer.Option(help="Who asks it: a bearer token.", rich_help_panel=_DECISIONS)
    ] = ""
    audit_certificate_authority: Annotated[
        Path | None,
        typer.Option(help="Who certifies it, PEM.", rich_help_panel=_DECISIONS),
    ] = None
    audit_insecure_skip_tls_verify: Annotated[
        bool,
        typer.Option(
            "--audit-insecure-skip-tls-verify",
            help="Take any certificate, such as its own.",
            rich_help_panel=_DECISIONS,
        ),
    ] = False
    descheduler_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="DeschedulerConfiguration that the view What if starts with.",
        ),
    ] = None
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="In the clear; from elsewhere than this machine only with --secure-port.",
            rich_help_panel=SERVING,
        ),
    ] = LOCAL
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Don't open a browser.", rich_help_panel=SERVING)
    ] = False
    secure_port: Annotated[
        int,
        typer.Option(
            help="HTTPS, for whom the API server lets list pods; 0: none.",
            min=0,
            max=65535,
            rich_help_panel=SERVING,
        ),
    ] = 0
    bind_address: Annotated[
        str, typer.Option(help="Of the secure port.", rich_help_panel=SERVING)
    ] = "::"
    tls_cert_file: Annotated[
        Path | None,
        typer.Option(help="Certificate with which pages are served, PEM.", rich_help_panel=SERVING),
    ] = None
    tls_private_key_file: Annotated[
        Path | None, typer.Option(help="Its private key, PEM.", rich_help_panel=SERVING)
    ] = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where to listen in the clear; None: nowhere.  Raises InputError."""
        return parse_address(self.listen, "--listen")

    @property
    def reads_cluster(self) -> bool:
        """Whether a cluster is shown."""
        return bool(self.kubeconfig or self.context or self.in_cluster)

    def check(self) -> None:
        """Raise InputError unless exactly one thing is to be shown, to whom it may be."""
        if bool(self.tls_cert_file) is not bool(self.tls_private_key_file):
            raise InputError(
                "must be set together", source="--tls-cert-file, --tls-private-key-file"
            )
        if self.secure_port and not self.reads_cluster:
            text = "requires a cluster, whose API server authorizes each request"
            raise InputError(text, source="--secure-port")
        if self.compare_config and not (self.workload or self.recording):
            text = "requires --workload or --recording, which can be run twice"
            raise InputError(text, source="--compare-config")
        self._check_audit()
        asked: Sequence[tuple[str, object]] = (
            ("-f", self.files),
            ("--workload", self.workload),
            ("--recording", self.recording),
            ("--kubeconfig or --in-cluster", self.reads_cluster),
        )
        given = [name for name, value in asked if value]
        accepted = ", ".join(name for name, _ in asked)
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise InputError(f"must be one of {accepted}, got {found}", source="dashboard")

    def _check_audit(self) -> None:
        if (self.audit or self.audit_server) and (self.workload or self.recording):
            text = "requires a cluster or manifests: other sources show their own decisions"
            raise InputError(text, source="--audit" if self.audit else "--audit-server")
        if self.audit and self.audit_server:
            raise InputError("must set only one of the two", source="--audit, --audit-server")
        asked_as = (self.audit_token, self.audit_certificate_authority)
        if (any(asked_as) or self.audit_insecure_skip_tls_verify) and not self.audit_server:
            raise InputError("requires --audit-server", source="--audit-token …")
