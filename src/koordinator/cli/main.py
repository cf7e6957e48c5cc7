"""``koord``: the command line, and what its failures exit with.

0 done, 1 the work failed, 2 the input is wrong, 130 ended by Ctrl-C, 141 nobody reads the output.
"""

import gc
import sys
from typing import Annotated

import typer

from koordinator.cli.commands import CommandTable
from koordinator.cli.output import console, one_line
from koordinator.cli.pipes import stream_to
from koordinator.foundation.errors import InputError, InvalidError, KoordinatorError
from koordinator.process.logs import tell_warnings

app = typer.Typer(
    name="koord", cls=CommandTable, no_args_is_help=True, pretty_exceptions_enable=False
)


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 -- a quarter of the time of --help

        typer.echo(f"koord {version('koordinator')}")
        raise typer.Exit


@app.callback()
def koord(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """QoS-aware scheduling, co-location and device management for Kubernetes."""


def spare_the_collector() -> None:
    """Let the garbage collector look at new objects only, and less often.

    A cluster is millions of objects that live as long as the process; walking over them again and
    again would take a quarter of its time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def main() -> None:
    """Run the command line; never returns."""
    spare_the_collector()
    tell_warnings()
    sys.stdout = stream_to(sys.stdout)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except (InputError, InvalidError) as error:
        _tell(f"error: {error}")
        sys.exit(2)
    except KoordinatorError as error:
        _tell(f"failed: {error}")
        sys.exit(1)


def _tell(text: str) -> None:
    console(stderr=True).print(one_line(text), style="red", markup=False, soft_wrap=True)
