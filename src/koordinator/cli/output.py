"""Printers of results as tables, JSON and YAML, and of warnings.

Rich, the library of tables, takes a tenth of the start of a command.  It is loaded when something
is printed that needs layout: components load this module for their flags and print nothing, and a
file or pipe gets lines that fit as they are.
"""

import enum
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from koordinator.foundation.errors import InputError
from koordinator.foundation.text import cut
from koordinator.foundation.yaml_documents import to_yaml

if TYPE_CHECKING:
    from rich.console import Console


class Output(enum.StrEnum):
    """Formats of results."""

    JSON = "json"
    YAML = "yaml"
    TABLE = "table"


STDOUT = "-"
WIDTH_WITHOUT_TERMINAL = 200
_NARROWEST = 40  # columns to which lines are wrapped
_GAP = 2  # characters between two columns of a table
_LEAST_HEADROOM = 30  # characters for a column of reasons; below it they get lines of their own
LONGEST_MESSAGE = 2000  # characters; a message may quote input of any length
#: Environment variables by which Rich takes a file or pipe for a terminal.
_FORCING_TERMINAL: Final = ("FORCE_COLOR", "TTY_COMPATIBLE")


def console(*, stderr: bool = False) -> "Console":
    """Return a console; output to a file or pipe is not wrapped at 80 columns."""
    from rich.console import Console  # noqa: PLC0415 -- see above

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        highlight=False,
        emoji=False,  # names are printed as they are
        width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL,
    )


def _needs_layout(lines: Iterable[str], stream: TextIO) -> bool:
    """Return False if Rich would write the lines to the stream as they are."""
    if stream.isatty() or any(map(os.environ.get, _FORCING_TERMINAL)):
        return True
    return not all(
        line.isascii() and line.isprintable() and len(line) <= WIDTH_WITHOUT_TERMINAL
        for line in lines
    )


def print_indented(lines: Iterable[tuple[int, str]]) -> None:
    """Print lines of text, each after its number of spaces.

    On a terminal they are wrapped between words, with a hanging indent; in a file or pipe whole
    lines are easier to search and copy.
    """
    width = terminal_width()
    shown = [
        part
        for indent, text in lines
        for part in ([" " * indent + text] if width is None else _wrapped(text, indent, width))
    ]
    if all(map(str.isprintable, shown)):
        sys.stdout.writelines(f"{line}\n" for line in shown)
        return
    printer = console()
    for line in shown:
        printer.print(line, soft_wrap=True, markup=False)


def terminal_width() -> int | None:
    """Return the columns of the terminal that standard output is; None for a file or pipe."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return WIDTH_WITHOUT_TERMINAL if any(map(os.environ.get, _FORCING_TERMINAL)) else None


def _wrapped(text: str, indent: int, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, _NARROWEST),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


def warn(about: object) -> None:
    """Print a warning to standard error."""
    line = f"warning: {one_line(about)}"
    if _needs_layout([line], sys.stderr):
        console(stderr=True).print(line, style="yellow", markup=False)
    else:
        sys.stderr.write(f"{line}\n")


def one_line(error: object) -> str:
    """Return a message as one line without control characters."""
    text = "".join(char if char.isprintable() else " " for char in str(error))
    return cut(text, LONGEST_MESSAGE)


def print_outcomes(
    headers: Sequence[str], rows: Sequence[Sequence[str]], none: str, summary: str
) -> None:
    """Print a table whose last column is a reason, as ``print_with_reasons``, and a summary."""
    columns = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = [none]
    if rows:
        lines = [
            "".join(f" {text:{width}} " for text, width in zip(row, columns, strict=True))
            for row in (headers, *rows)
        ]
    has_headroom = WIDTH_WITHOUT_TERMINAL - sum(columns[:-1]) >= _LEAST_HEADROOM + _GAP * len(
        columns
    )
    if has_headroom and not _needs_layout([*lines, summary], sys.stdout):
        sys.stdout.writelines(f"{line}\n" for line in (*lines, summary))
        return
    printer = console()
    print_with_reasons(printer, headers, rows, none)
    printer.print(summary)


def print_with_reasons(
    printer: "Console", headers: Sequence[str], rows: Sequence[Sequence[str]], none: str
) -> None:
    """Print a table whose last column is a reason; the other columns are never wrapped or cut.

    On a narrow terminal each reason is printed below its row.  Without rows the sentence ``none``
    is printed.
    """
    if not rows:
        printer.print(none)
        return
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 -- see above
    from rich.padding import Padding  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    widths = [
        max(cell_len(text) for text in column)
        for column in zip(*(row[:-1] for row in (headers, *rows)), strict=True)
    ]
    headroom = printer.width - sum(widths) - _GAP * len(headers)
    has_reasons = any(row[-1] for row in rows)
    if headroom >= _LEAST_HEADROOM or not has_reasons:
        table = Table(box=None, header_style="bold")
        for header in headers[:-1]:
            table.add_column(header, no_wrap=True, overflow="ignore")
        table.add_column(headers[-1], overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        printer.print(table, crop=False)
        return
    for row in (headers, *rows):
        cells = (set_cell_size(text, width) for text, width in zip(row, widths, strict=False))
        line = f" {'  '.join(cells)}".rstrip()
        printer.print(Text(line, "bold" if row is headers else ""), soft_wrap=True)
        if row is not headers and row[-1]:
            printer.print(Padding(Text(row[-1]), (0, 0, 0, 4)))


def check_writable(path: Path) -> None:
    """Raise InputError if the file can't be written, before a long run instead of after it."""
    if str(path) == STDOUT:
        raise InputError("must be a file, as standard output has the result", source=str(path))
    existed = path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
    if not existed:
        path.unlink()


def write_text(text: str, path: Path) -> None:
    """Write a file, or standard output for ``-``.  Raises InputError if writing fails."""
    if str(path) == STDOUT:
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None


def print_items(items: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Print a list of plain data as JSON or YAML to standard output."""
    if output is Output.JSON:
        sys.stdout.buffer.write(msgspec.json.encode(items) + b"\n")
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(to_yaml([dict(item) for item in items]))


def print_data(data: Mapping[str, Any], output: Output) -> None:
    """Print plain data as JSON or YAML to standard output."""
    if output is Output.JSON:
        sys.stdout.buffer.write(msgspec.json.encode(data) + b"\n")
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(to_yaml(dict(data), allow_unicode=True))
