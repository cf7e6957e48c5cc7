"""Flags shared by several commands, and parsers of their values.

The dataclass of a command has one field per group of flags: see ``dataclass_flags``.
"""

from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from koordinator.api.kube_version import DEFAULT_LEVEL, NEWEST, OLDEST
from koordinator.api.slo_config import CONFIG_NAMESPACE
from koordinator.cli.output import Output
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.logs import LogFormat

if TYPE_CHECKING:
    from koordinator.cli.component.page_settings import PageSettings

ONCE = "Once, without a cluster"
SERVING = "Serving"
ELECTION = "Leader election"
_FILES = "Manifests to read: a file, a folder, or - for standard input. Repeatable."
#: Placeholder of flags with an explicit boolean value; ``original_flags`` adds a missing ``=true``.
BOOL = "true|false"
TLS_VERSION: Any = typer.Option(
    metavar="VersionTLS12|VersionTLS13", help="Minimum TLS version.", rich_help_panel=SERVING
)
TLS_SUITES: Any = typer.Option(
    metavar="NAME,NAME",
    help="Cipher suites of TLS 1.2 by their Go names, such as "
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. Default: all secure suites.",
    rich_help_panel=SERVING,
)
_NOW = "Current time, in RFC 3339 format. Default: the system clock."
_PRINT = "Format of the printed result."
#: Help of flags that several dataclasses declare.
KUBECONFIG_CONTEXT = "Name of the kubeconfig context to use."
READ_CLUSTER = "Read the cluster of this kubeconfig file."
LEADER_ELECT = "Write to the cluster only while this replica holds the lease."
REST_QPS = "Average requests per second to the API server; 0 means no limit."
REST_BURST = "Burst of requests to the API server."
WRITE_CONFIG = "Write the effective configuration to this file, and exit."

ServerAddress = Annotated[
    str, typer.Option(help="Address that the HTTPS server listens on.", rich_help_panel=SERVING)
]
TlsCertificateFile = Annotated[
    Path | None,
    typer.Option(help="Certificate of the HTTPS server, in PEM format.", rich_help_panel=SERVING),
]
TlsKeyFile = Annotated[
    Path | None,
    typer.Option(help="Private key of the certificate, in PEM format.", rich_help_panel=SERVING),
]
ManifestFiles = Annotated[
    list[str] | None, typer.Option("--filename", "-f", metavar="FILE", help=_FILES)
]
Now = Annotated[str, typer.Option(help=_NOW)]
SchedulerGates = Annotated[
    str,
    typer.Option(
        metavar="NAME=true,...", help="Feature gates of the scheduler: see koord scheduler --help."
    ),
]
KubeVersionFlag = Annotated[
    str,
    typer.Option(
        "--kube-version",
        metavar="1.NN",
        help=f"Kubernetes release whose scheduling decisions are reproduced, {OLDEST} to {NEWEST}. "
        f"Default: the release of the cluster; {DEFAULT_LEVEL} without a cluster.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Reject fields that a kind does not have, instead of printing warnings."
    ),
]
Print = Annotated[Output, typer.Option("--output", "-o", help=_PRINT)]
OnceFiles = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", metavar="FILE", help=_FILES, rich_help_panel=ONCE),
]
OnceNow = Annotated[str, typer.Option(help=_NOW, rich_help_panel=ONCE)]
OncePrint = Annotated[
    Output,
    typer.Option("--output", "-o", help=_PRINT, rich_help_panel=ONCE),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFlags:
    """Connection of a component to its cluster."""

    kubeconfig: Annotated[
        str,
        typer.Option(
            help="Kubeconfig file of the cluster. Default: the files of the variable KUBECONFIG, "
            "~/.kube/config, or the service account of this pod."
        ),
    ] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFlags:
    """HTTPS server of a component's pages, and the paths that need no authorization."""

    secure_port: Annotated[
        int,
        typer.Option(
            help="Port of the HTTPS server; 0 disables it. The API server authorizes each request, "
            "except for the paths of --authorization-always-allow-paths.",
            min=0,
            max=65535,
            rich_help_panel=SERVING,
        ),
    ] = 0
    bind_address: ServerAddress = "::"
    tls_cert_file: TlsCertificateFile = None
    tls_private_key_file: TlsKeyFile = None
    tls_min_version: Annotated[str, TLS_VERSION] = ""
    tls_cipher_suites: Annotated[str, TLS_SUITES] = ""
    authorization_always_allow_paths: Annotated[
        str,
        typer.Option(
            help="Paths that are served without authorization.",
            metavar="PATH,PATH*",
            rich_help_panel=SERVING,
        ),
    ] = "/healthz,/readyz,/livez"

    def settings(self, plain: tuple[str, int] | None) -> "PageSettings":
        """Return the settings of the servers; ``plain`` is the address without TLS, if any.

        Raises InputError for flags that contradict each other.
        """
        from koordinator.cli.component.page_settings import PageSettings  # noqa: PLC0415 -- servers take long

        return PageSettings.parse(plain=plain, **asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFlags:
    """Flags of the original's components on controller-runtime: pages and leader election."""

    metrics_addr: Annotated[
        str,
        typer.Option(
            help="Address of the plain HTTP server for metrics; 0 disables it. The API server "
            "authorizes each request, unless this is a loopback address.",
            rich_help_panel=SERVING,
        ),
    ] = ":8080"
    pages: PageFlags = field(default_factory=PageFlags)
    health_probe_addr: Annotated[
        str,
        typer.Option(
            help="Address of the plain HTTP server for health probes; 0 disables it.",
            rich_help_panel=SERVING,
        ),
    ] = ":8000"
    enable_leader_election: Annotated[
        str,
        typer.Option(help=LEADER_ELECT, metavar=BOOL, rich_help_panel=ELECTION),
    ] = "true"
    leader_election_namespace: Annotated[
        str, typer.Option(help="Namespace of the Lease.", rich_help_panel=ELECTION)
    ] = CONFIG_NAMESPACE

    @property
    def page_settings(self) -> "PageSettings":
        """Settings of the page servers.  Raises InputError."""
        return self.pages.settings(parse_address(self.metrics_addr, "--metrics-addr"))

    @property
    def health_address(self) -> tuple[str, int] | None:
        """Host and port of the health server; None if it is disabled.  Raises InputError."""
        return parse_address(self.health_probe_addr, "--health-probe-addr")

    @property
    def elects(self) -> bool:
        """Whether only the holder of the lease writes.  Raises InputError."""
        return parse_bool(self.enable_leader_election, "--enable-leader-election")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFlags:
    """Logging and liveness of a long-running process."""

    liveness_deadline: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Time without progress of the main loop after which /livez fails.",
        ),
    ] = "1m"
    verbosity: Annotated[
        int,
        typer.Option("-v", help="Log level: 0, 4 for details, 8 for details of libraries."),
    ] = 0
    logging_format: Annotated[LogFormat, typer.Option(help="Format of log lines.")] = LogFormat.TEXT

    @property
    def liveness_deadline_s(self) -> float:
        """Liveness deadline in seconds.  Raises InputError unless it is above 0."""
        return parse_seconds(self.liveness_deadline, "--liveness-deadline")


def parse_seconds(text: str, source: str) -> float:
    """Return the seconds of a duration such as ``1m30s``.  Raises InputError unless above 0."""
    try:
        seconds = Duration.parse(text).total_seconds()
    except InputError as error:
        raise error.within(source=source) from None
    if seconds <= 0:
        raise InputError(f"must be more than 0, got {text!r}", source=source)
    return seconds


def parse_bool(text: str, source: str) -> bool:
    """Return the value of a flag such as ``--leader-elect=false``.  Raises InputError."""
    if text.lower() in ("true", "1", "t"):
        return True
    if text.lower() in ("false", "0", "f"):
        return False
    raise InputError(f"must be true or false, got {text!r}", source=source)


def parse_address(text: str, source: str) -> tuple[str, int] | None:
    """Return host and port of ``:8080`` or ``127.0.0.1:8080``; None for ``0``, which disables it.

    Raises InputError.
    """
    if text == "0":
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not int(port) < 1 << 16:
        raise InputError(f"must be an address such as :8080, or 0, got {text!r}", source=source)
    return host.strip("[]") or "::", int(port)


def parse_list(text: str) -> tuple[str, ...]:
    """Return the parts of ``A,B``, without spaces around them and without empty ones."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
