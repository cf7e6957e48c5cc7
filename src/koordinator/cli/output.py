"""Print results the way the user asked for."""

import enum
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from rich.console import Console

from koordinator.foundation.errors import InputError


class Output(enum.StrEnum):
    """How to print."""

    JSON = "json"
    YAML = "yaml"
    TABLE = "table"


WIDTH_WITHOUT_TERMINAL = 200
LONGEST_MESSAGE = 2000  # characters; whoever wrote the input may have written a name of megabytes


def console(*, stderr: bool = False) -> Console:
    """Return where to print; what goes into a file or pipe is not broken to 80 columns."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        highlight=False,
        width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL,
    )


def warn(about: object) -> None:
    """Tell people on standard error of what is left out, or is not what they may think."""
    console(stderr=True).print(f"warning: {one_line(about)}", style="yellow", markup=False)


def one_line(error: object) -> str:
    """Return a message as one line that does to a terminal nothing but be read."""
    text = "".join(char if char.isprintable() else " " for char in str(error))
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def check_writable(path: Path) -> None:
    """Raise InputError if the file can't be written: before a long run, not after it."""
    existed = path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", source=str(path)) from None
    if not existed:
        path.unlink()


def print_data(data: Mapping[str, Any], output: Output) -> None:
    """Print plain data as JSON or YAML to standard output."""
    if output is Output.JSON:
        sys.stdout.buffer.write(msgspec.json.encode(data) + b"\n")
        sys.stdout.buffer.flush()
    else:
        yaml.safe_dump(dict(data), sys.stdout, sort_keys=False, allow_unicode=True)
