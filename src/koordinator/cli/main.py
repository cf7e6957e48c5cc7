"""``koord``: the command line, and what its failures exit with.

0 done, 1 the work failed, 2 the input is wrong, 130 ended by Ctrl-C, 141 nobody reads the output.
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
from koordinator.cli.output import console, one_line
from koordinator.foundation.errors import InputError, InvalidError, KoordinatorError
from koordinator.process.logs import print_warnings

READER_GONE: Final = 141  # what a shell says of a program that SIGPIPE has ended


class ReaderGone(SystemExit):
    """Nobody reads standard output any more, so nothing is left to do."""


class _PipeEnd(FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self._go_nowhere()
            raise ReaderGone(READER_GONE) from None
        except OSError as error:
            self._go_nowhere()
            text = f"standard output: can't be written: {error.strerror}"
            raise KoordinatorError(text) from None

    def _go_nowhere(self) -> None:
        """Take what is still buffered: it must not fail again."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def stream_to(stdout: TextIO) -> TextIO:
    """Return a stream to the same file, which raises ReaderGone once its reader has gone.

    KoordinatorError is raised for whatever else makes writing fail.

    SIGPIPE itself stays ignored: it would end a server whose client hangs up.
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
#: Commands by the names of the original's programs, which its Deployments call.
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


def _tell_version(asked: bool) -> None:
    if asked:
        from koordinator.cli.version import version  # noqa: PLC0415 -- a quarter of --help's time

        version()
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
    print_warnings()
    sys.stdout = stream_to(sys.stdout)
    try:
        try:
            app(_arguments(sys.argv), prog_name=PROGRAM)
        finally:
            sys.stdout.flush()
    except (InputError, InvalidError) as error:
        _tell(f"error: {error}")
        sys.exit(2)
    except KoordinatorError as error:
        _tell(f"failed: {error}")
        sys.exit(1)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (text := missing_extra(error, sys.argv)):
            _tell(f"error: {text}")
            sys.exit(2)
        if os.environ.get(TRACEBACK):
            raise
        _tell(f"failed: {_internal_error(error)}; {TRACEBACK}=1 in the environment shows where")
        sys.exit(1)


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
    return f"{module} is not installed; run: pip install '{_PACKAGE}[{extra}]'"


def _internal_error(error: Exception) -> str:
    """Return an exception that nothing expects, with the line of ours that it comes from."""
    at, trace = "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if f"/{_PACKAGE}/" in path:
            at = f" ({path.rpartition(f'/{_PACKAGE}/')[2]}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"internal error: {type(error).__name__}: {error}{at}. Please report this"


def _arguments(argv: Sequence[str]) -> list[str]:
    """Return the words after ``koord``; a link by a name of the original's stands for a command."""
    command = PROGRAMS.get(Path(argv[0]).name)
    return [*([] if command is None else [command]), *argv[1:]]


def _tell(text: str) -> None:
    console(stderr=True).print(one_line(text), style="red", markup=False, soft_wrap=True)
