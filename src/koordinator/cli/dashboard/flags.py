"""Flags of ``koord dashboard``, and the archives of a scheduler's decisions that they name."""

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import typer

from koordinator.api.kubescheduler import check_gate_names
from koordinator.cli.audit import AuditEntries, decode_answer, read_trail, trail_files
from koordinator.cli.component.flags import (
    KUBECONFIG_CONTEXT,
    SERVING,
    SchedulerGates,
    ServerAddress,
    TlsCertificateFile,
    TlsKeyFile,
    parse_address,
)
from koordinator.cli.input.configuration import CONFIGURATION_HELP, NAMED_CONFIGURATION
from koordinator.domain.audit import AuditEntry
from koordinator.foundation.errors import InputError
from koordinator.foundation.feature_gates import SOURCE
from koordinator.foundation.lazy_dataclass import dataclass

_OVERLAP_S = 10.0  # requested again, since entries of one moment may arrive late
_SOURCE = "Source (exactly one)"
_TIME = "Time of simulations and recordings"
_DECISIONS = "Decisions of another scheduler, for a cluster or manifests"
LOCAL = "127.0.0.1:8765"


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardFlags:
    """Source of the dashboard, and its server."""

    files: Annotated[
        list[str] | None,
        typer.Option(
            "--filename",
            "-f",
            help="Show manifests: a file or folder, which is read again when it changes. "
            "Repeatable.",
            rich_help_panel=_SOURCE,
        ),
    ] = None
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            help="Simulate this workload of koord simulate while it is shown; demo is the workload "
            "of koord demo.",
            rich_help_panel=_SOURCE,
        ),
    ] = ""
    recording: Annotated[
        Path | None,
        typer.Option(help="Replay this file of koord record.", rich_help_panel=_SOURCE),
    ] = None
    kubeconfig: Annotated[
        str,
        typer.Option(
            help="Show the cluster of this kubeconfig file; nothing is written to it.",
            rich_help_panel=_SOURCE,
        ),
    ] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT, rich_help_panel=_SOURCE)] = ""
    in_cluster: Annotated[
        bool,
        typer.Option(
            "--in-cluster", help="Show the cluster that this pod runs in.", rich_help_panel=_SOURCE
        ),
    ] = False
    config: Annotated[
        str,
        typer.Option(
            "--config",
            metavar=NAMED_CONFIGURATION,
            help=f"{CONFIGURATION_HELP} Default: the configuration of the recording or simulation; "
            "otherwise both.",
        ),
    ] = ""
    feature_gates: SchedulerGates = ""
    compare_config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help="Run the simulation or recording a second time with this configuration; the Time "
            "view compares both runs.",
        ),
    ] = ""
    speed: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Simulated seconds per second; 0 means as fast as possible. Default: 600 for "
            "simulations, 60 for recordings.",
            rich_help_panel=_TIME,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Random seed of the simulation. Default: the seed of the workload.",
            rich_help_panel=_TIME,
        ),
    ] = None
    audit: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files or folders of the scheduler's --audit-dir. Repeatable.",
            rich_help_panel=_DECISIONS,
        ),
    ] = None
    audit_server: Annotated[
        str,
        typer.Option(
            help="URL of the --secure-port of the leading scheduler, such as "
            "https://127.0.0.1:10259. By default it gets the credentials for the cluster.",
            rich_help_panel=_DECISIONS,
        ),
    ] = ""
    audit_token: Annotated[
        str,
        typer.Option(
            help="Bearer token for requests to --audit-server.", rich_help_panel=_DECISIONS
        ),
    ] = ""
    audit_certificate_authority: Annotated[
        Path | None,
        typer.Option(
            help="CA certificates for --audit-server, in PEM format.", rich_help_panel=_DECISIONS
        ),
    ] = None
    audit_insecure_skip_tls_verify: Annotated[
        bool,
        typer.Option(
            "--audit-insecure-skip-tls-verify",
            help="Accept any certificate of --audit-server, such as a self-signed one.",
            rich_help_panel=_DECISIONS,
        ),
    ] = False
    descheduler_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="DeschedulerConfiguration that the What if view starts with.",
        ),
    ] = None
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Address of the plain HTTP server. It must be a loopback address unless the API "
            "server of a cluster authorizes the requests.",
            rich_help_panel=SERVING,
        ),
    ] = LOCAL
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Don't open a browser.", rich_help_panel=SERVING)
    ] = False
    secure_port: Annotated[
        int,
        typer.Option(
            help="Port of the HTTPS server, for users who may list pods; 0 disables it.",
            min=0,
            max=65535,
            rich_help_panel=SERVING,
        ),
    ] = 0
    bind_address: ServerAddress = "::"
    tls_cert_file: TlsCertificateFile = None
    tls_private_key_file: TlsKeyFile = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the plain HTTP server; None for ``0``.  Raises InputError."""
        return parse_address(self.listen, "--listen")

    @property
    def reads_cluster(self) -> bool:
        """Whether a cluster is shown."""
        return bool(self.kubeconfig or self.context or self.in_cluster)

    def check(self) -> None:
        """Raise InputError unless there is exactly one source, which may be served as asked."""
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
        if self.feature_gates and not self.reads_cluster:
            raise InputError("requires a cluster", source=SOURCE)
        check_gate_names(self.feature_gates)
        self._check_audit()
        sources: Sequence[tuple[str, object]] = (
            ("-f", self.files),
            ("--workload", self.workload),
            ("--recording", self.recording),
            ("--kubeconfig or --in-cluster", self.reads_cluster),
        )
        given = [name for name, value in sources if value]
        if len(given) != 1:
            names = ", ".join(name for name, _ in sources)
            problem = f"must be one of {names}, got {' and '.join(given) or 'none'}"
            raise InputError(problem, source="dashboard")

    def _check_audit(self) -> None:
        if (self.audit or self.audit_server) and (self.workload or self.recording):
            text = "requires a cluster or manifests: other sources show their own decisions"
            raise InputError(text, source="--audit" if self.audit else "--audit-server")
        if self.audit and self.audit_server:
            raise InputError("must set only one of the two", source="--audit, --audit-server")
        credentials = (self.audit_token, self.audit_certificate_authority)
        if (any(credentials) or self.audit_insecure_skip_tls_verify) and not self.audit_server:
            raise InputError("requires --audit-server", source="--audit-token …")


@dataclass(frozen=True, slots=True)
class FileArchive:
    """Files and folders of ``--audit-dir``; of several replicas they are put together."""

    paths: Sequence[Path]

    @property
    def title(self) -> str:
        """The names of the files."""
        return ", ".join(map(str, self.paths))

    def newest(self, most: int) -> Sequence[AuditEntry]:
        """Return that many entries, oldest first; only the needed rotated files are read.

        Raises InputError for unreadable files.
        """
        entries: list[AuditEntry] = []
        for path in self.paths:
            own: list[AuditEntry] = []
            for file in reversed(trail_files(path)):
                own[:0] = read_trail(file, lambda _: None)
                if len(own) >= most:
                    break
            entries += own[-most:]
        if len(self.paths) > 1:
            entries.sort(key=attrgetter("at_s"))
        return entries[-most:]


class ServerArchive:
    """Running scheduler; only new entries are requested."""

    def __init__(self, server: str, get: Callable[[str, dict[str, str]], bytes]) -> None:
        """``get`` sends a path and parameters, and returns the answer or raises ClusterError."""
        self.title = server
        self._get = get
        self._lock = threading.Lock()
        self._entries: list[AuditEntry] = []

    def newest(self, most: int) -> Sequence[AuditEntry]:
        """Return that many entries, oldest first, including entries before a restart.

        Raises ClusterError if the scheduler does not answer.
        """
        with self._lock:
            from_s = max((e.at_s for e in self._entries[-most:]), default=0.0) - _OVERLAP_S
            parameters = {"limit": str(most), "since": str(max(from_s, 0.0))}
            answer = self._get("/apis/v1/audit", parameters)
            fresh = decode_answer(answer, AuditEntries, self.title).entries
            known = [entry for entry in self._entries if entry.at_s < from_s]
            self._entries = [*known, *fresh][-most:]
            return self._entries
