"""Flags that several commands have, and their values.

Groups of flags are fields of a command's own: see ``dataclass_flags``.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from koordinator.api.kube_version import DEFAULT_LEVEL, NEWEST, OLDEST
from koordinator.api.slo_config import CONFIG_NAMESPACE
from koordinator.cli.output import Output
from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError
from koordinator.process.logs import LogFormat

if TYPE_CHECKING:
    from koordinator.cli.component.page_servers import PageSettings

ONCE = "Once, without a cluster"
SERVING = "Serving"
ELECTION = "Leader election"
_FILES = "File, folder or - for standard input; repeatable."
BOOL = "true|false"  # of a flag that says one or the other, or nothing at all
TLS_VERSION: Any = typer.Option(
    metavar="VersionTLS12|VersionTLS13", help="The oldest.", rich_help_panel=SERVING
)
TLS_SUITES: Any = typer.Option(
    metavar="NAME,NAME",
    help="Of TLS 1.2, in Go's words such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; default: all "
    "good ones.",
    rich_help_panel=SERVING,
)
_NOW = "The time it is, RFC 3339; default: "

Files = Annotated[list[str] | None, typer.Option("--filename", "-f", metavar="FILE", help=_FILES)]
Now = Annotated[str, typer.Option(help=f"{_NOW}the current time.")]
GatesOfScheduler = Annotated[
    str, typer.Option(metavar="NAME=true,...", help="As for the scheduler.")
]
KubeVersionFlag = Annotated[
    str,
    typer.Option(
        "--kube-version",
        metavar="1.NN",
        help=f"Decide as this release of Kubernetes, {OLDEST} to {NEWEST}; default: that of the "
        f"cluster, without one {DEFAULT_LEVEL}.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse fields that a kind does not have; else they are told."),
]
Print = Annotated[Output, typer.Option("--output", "-o", help="How the result is printed.")]
OnceFiles = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", metavar="FILE", help=_FILES, rich_help_panel=ONCE),
]
OnceNow = Annotated[str, typer.Option(help=f"{_NOW}now.", rich_help_panel=ONCE)]
OncePrint = Annotated[
    Output,
    typer.Option("--output", "-o", help="How the result is printed.", rich_help_panel=ONCE),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFlags:
    """Which cluster a component works on."""

    kubeconfig: Annotated[
        str, typer.Option(help="How to reach the cluster; default: KUBECONFIG, or this pod's.")
    ] = ""
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFlags:
    """Where a component's pages are served over HTTPS, and what anybody may read of them."""

    secure_port: Annotated[
        int,
        typer.Option(
            help="HTTPS: health for anybody, all else for whom the API server lets; 0: none.",
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
    tls_min_version: Annotated[str, TLS_VERSION] = ""
    tls_cipher_suites: Annotated[str, TLS_SUITES] = ""
    authorization_always_allow_paths: Annotated[
        str,
        typer.Option(help="What anybody may read.", metavar="PATH,PATH*", rich_help_panel=SERVING),
    ] = "/healthz,/readyz,/livez"

    def settings(self, plain: tuple[str, int] | None) -> "PageSettings":
        """Return what the servers are made of; ``plain`` is the address without TLS, if any.

        Raises InputError for flags that contradict each other.
        """
        from koordinator.cli.component.page_servers import PageSettings  # noqa: PLC0415 -- servers take long

        return PageSettings.parse(plain=plain, **asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFlags:
    """What the original's components on controller-runtime take: pages, and whether one leads."""

    metrics_addr: Annotated[
        str,
        typer.Option(
            help="Plain HTTP, for whom the API server lets, or for anybody who reaches a loopback "
            "address; 0: none.",
            rich_help_panel=SERVING,
        ),
    ] = ":8080"
    pages: PageFlags = field(default_factory=PageFlags)
    health_probe_addr: Annotated[
        str, typer.Option(help="Plain HTTP, only health; 0: none.", rich_help_panel=SERVING)
    ] = ":8000"
    enable_leader_election: Annotated[
        str,
        typer.Option(
            help="Work only while holding the lease.", metavar=BOOL, rich_help_panel=ELECTION
        ),
    ] = "true"
    leader_election_namespace: Annotated[
        str, typer.Option(help="Namespace of the Lease.", rich_help_panel=ELECTION)
    ] = CONFIG_NAMESPACE

    @property
    def page_settings(self) -> "PageSettings":
        """What the servers of pages are made of.  Raises InputError."""
        return self.pages.settings(parse_address(self.metrics_addr, "--metrics-addr"))

    @property
    def health_address(self) -> tuple[str, int] | None:
        """Where only health is served, if anywhere.  Raises InputError."""
        return parse_address(self.health_probe_addr, "--health-probe-addr")

    @property
    def elects(self) -> bool:
        """Whether only the one that holds the lease writes.  Raises InputError."""
        return parse_bool(self.enable_leader_election, "--enable-leader-election")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFlags:
    """What a long-running process logs, and when it is taken for dead."""

    liveness_deadline: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="After so long without a sign of life of the loop /livez fails.",
        ),
    ] = "1m"
    verbosity: Annotated[
        int, typer.Option("-v", help="How much is logged: 0, 4 (details), 8 (of libraries).")
    ] = 0
    logging_format: Annotated[LogFormat, typer.Option(help="Format of log lines.")] = LogFormat.TEXT

    @property
    def liveness_deadline_s(self) -> float:
        """The deadline.  Raises InputError unless it is a duration above 0."""
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
    """Return what a flag such as ``--leader-elect=false`` says.  Raises InputError."""
    if text.lower() in ("true", "1", "t"):
        return True
    if text.lower() in ("false", "0", "f"):
        return False
    raise InputError(f"must be true or false, got {text!r}", source=source)


def parse_address(text: str, source: str) -> tuple[str, int] | None:
    """Return host and port of ``:8080`` or ``127.0.0.1:8080``; None for ``0``: nowhere.

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
