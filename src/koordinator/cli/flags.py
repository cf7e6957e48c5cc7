"""Flags that several commands have, and their values."""

from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.output import Output
from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError

ONCE = "Once, without a cluster"
_FILES = "File, folder or - for standard input; repeatable."
BOOL = "true|false"  # of a flag that says one or the other, or nothing at all
_NOW = "The time it is, RFC 3339; default: "

Files = Annotated[list[str] | None, typer.Option("--filename", "-f", help=_FILES)]
Now = Annotated[str, typer.Option(help=f"{_NOW}the current time.")]
GatesOfScheduler = Annotated[
    str, typer.Option(metavar="NAME=true,...", help="As for the scheduler.")
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse fields that a kind does not have; else they are told."),
]
Print = Annotated[Output, typer.Option("--output", "-o")]
Verbosity = Annotated[
    int, typer.Option("-v", help="How much is logged: 0, 4 (details), 8 (of libraries).")
]
LivenessDeadline = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="After so long without a sign of life of the loop /livez fails.",
    ),
]
LIVENESS_DEADLINE = "1m"
_SERVING = "Serving"
SecurePort = Annotated[
    int,
    typer.Option(
        help="HTTPS: health for anybody, all else for whom the API server lets; 0: none.",
        min=0,
        max=65535,
        rich_help_panel=_SERVING,
    ),
]
BindAddress = Annotated[str, typer.Option(help="Of the secure port.", rich_help_panel=_SERVING)]
TlsFile = Annotated[Path | None, typer.Option(rich_help_panel=_SERVING)]
AlwaysAllowPaths = Annotated[
    str,
    typer.Option(help="What anybody may read.", metavar="PATH,PATH*", rich_help_panel=_SERVING),
]
ANY_ADDRESS = "::"
PROBES = "/healthz,/readyz,/livez"
OnceFiles = Annotated[
    list[str] | None, typer.Option("--filename", "-f", help=_FILES, rich_help_panel=ONCE)
]
OnceNow = Annotated[str, typer.Option(help=f"{_NOW}now.", rich_help_panel=ONCE)]
OncePrint = Annotated[Output, typer.Option("--output", "-o", rich_help_panel=ONCE)]


def parse_seconds(text: str, source: str) -> float:
    """Return the seconds of a duration such as ``1m30s``.  Raises InputError unless above 0."""
    try:
        seconds = Duration.parse(text).total_seconds()
    except InputError as error:
        raise error.within(source=source) from None
    if seconds <= 0:
        raise InputError(f"found {text!r}; accepted is more than 0", source=source)
    return seconds


def parse_bool(text: str, source: str) -> bool:
    """Return what a flag such as ``--leader-elect=false`` says.  Raises InputError."""
    if text.lower() in ("true", "1", "t"):
        return True
    if text.lower() in ("false", "0", "f"):
        return False
    raise InputError(f"found {text!r}; accepted is true or false", source=source)
