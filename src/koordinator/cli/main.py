"""Command line ``koord`` and its exit codes.

0: success; 1: the work failed; 2: the input is wrong; 130: ended by Ctrl-C; 141: the reader of
standard output has closed it.
"""

import gc
import os
import sys
from collections.abc import Sequence
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer

from koordinator.cli.commands import CommandTable
from koordinator.foundation.errors import InputError, InvalidError, KoordinatorError, not_installed

PIPE_CLOSED: Final = 141  # the status that a shell reports for a program ended by SIGPIPE


class PipeClosed(SystemExit):
    """Exit because the reader of standard output has closed it."""


class _PipeEnd(FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self._discard_buffered()
            raise PipeClosed(PIPE_CLOSED) from None
        except OSError as error:
            self._discard_buffered()
            text = f"standard output: cannot be written: {error.strerror}"
            raise KoordinatorError(text) from None

    def _discard_buffered(self) -> None:
        """Send buffered output to the null device, so that flushing it can't fail again."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)


def stream_to(stdout: TextIO) -> TextIO:
    """Return a stream to the same file that raises PipeClosed when its reader has closed it.

    The stream raises KoordinatorError for any other failure to write.  SIGPIPE stays ignored, since
    it would end a server whose client closes the connection.
    """
    stdout.flush()
    raw = _PipeEnd(stdout.fileno(), "w", closefd=False)
    return TextIOWrapper(
        BufferedWriter(raw),
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.isatty(),
    )


PROGRAM: Final = "koord"
TRACEBACK: Final = "KOORD_TRACEBACK"  # environment variable: show tracebacks of internal errors
_PACKAGE = __name__.partition(".")[0]
#: Commands by the names of the original's programs, which its Deployments run.
PROGRAMS: Final = {
    "koord-scheduler": "scheduler",
    "koord-manager": "manager",
    "koord-descheduler": "descheduler",
    "koordlet": "koordlet",
    "koord-device-daemon": "device-daemon",
    "koord-yarn-operator": "yarn-operator",
}

app = typer.Typer(
    name="koord",
    cls=CommandTable,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_set: bool) -> None:
    if is_set:
        version()
        raise typer.Exit


@app.callback()
def koord(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """QoS-aware scheduling, co-location and device management for Kubernetes."""


def tune_garbage_collector() -> None:
    """Make the garbage collector run less often, and skip the objects that exist now.

    A cluster is millions of objects that live as long as the process; scanning them repeatedly
    would take a quarter of its time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def main() -> None:
    """Run the command line; never returns."""
    tune_garbage_collector()
    gc.disable()  # until the command is loaded: modules leave no garbage
    sys.stdout = stream_to(sys.stdout)
    try:
        try:
            app(_arguments(sys.argv), prog_name=PROGRAM, obj=_print_warnings)
        finally:
            sys.stdout.flush()
            gc.freeze()  # the interpreter ends with a collection of all objects that are left
    except (InputError, InvalidError) as error:
        _print_error(f"error: {error}")
        sys.exit(2)
    except KoordinatorError as error:
        _print_error(f"failed: {error}")
        sys.exit(1)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (text := missing_extra(error, sys.argv)):
            _print_error(f"error: {text}")
            sys.exit(2)
        if os.environ.get(TRACEBACK):
            raise
        _print_error(f"failed: {_internal_error(error)}; set {TRACEBACK}=1 to get a traceback")
        sys.exit(1)


def _print_warnings() -> None:
    from koordinator.process.logs import print_warnings  # noqa: PLC0415 -- a fifth of --help's time

    print_warnings()


#: Optional parts: extra by package.
EXTRAS: Final = {
    "koordinator.dashboard": "dashboard",
    "koordinator.hadoop": "yarn",
    "koordinator.simulator.research": "research",
    "koordinator.simulator.yarn": "yarn",
    "koordinator.yarn": "yarn",
}
#: Extra by command, for a missing library.
_EXTRA_OF_COMMAND: Final = {
    "dashboard": "dashboard",
    "yarn-operator": "yarn",
    "yarn-copilot": "yarn",
}


def missing_extra(error: ModuleNotFoundError, argv: Sequence[str]) -> str | None:
    """Return the message for a missing optional part or its library; None for another module."""
    module, command = error.name or "", next(iter(_arguments(argv)[:1]), "")
    own = (extra for package, extra in EXTRAS.items() if f"{module}.".startswith(f"{package}."))
    extra = next(own, None)
    if extra is None and not module.startswith(_PACKAGE):
        extra = _EXTRA_OF_COMMAND.get(command)
    if extra is None:
        return None
    return f"{module} {not_installed(extra)}"


def _internal_error(error: Exception) -> str:
    """Return the message of an unexpected exception, with the line of this package it is from."""
    at, trace = "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if f"/{_PACKAGE}/" in path:
            at = f" ({path.rpartition(f'/{_PACKAGE}/')[2]}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"internal error: {type(error).__name__}: {error}{at}. Please report this"


def _arguments(argv: Sequence[str]) -> list[str]:
    """Return the arguments after ``koord``; the name of an original's program adds its command."""
    command = PROGRAMS.get(Path(argv[0]).name)
    return [*([] if command is None else [command]), *argv[1:]]


def _print_error(text: str) -> None:
    from koordinator.cli.output import console, one_line  # noqa: PLC0415 -- half of --help's time

    console(stderr=True).print(one_line(text), style="red", markup=False, soft_wrap=True)


def version() -> None:
    """Print the version."""
    from importlib import metadata  # noqa: PLC0415 -- a quarter of --help's time

    typer.echo(f"koord {metadata.version('koordinator')}")
