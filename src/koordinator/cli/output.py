"""Print results the way the user asked for."""

import enum
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from rich.console import Console

from koordinator.domain.run_report import RunReport, to_json
from koordinator.foundation.errors import InputError
from koordinator.simulator.colocation.comparison import comparison_table
from koordinator.simulator.report import render_html, summary_table


class Output(enum.StrEnum):
    """How to print."""

    JSON = "json"
    YAML = "yaml"
    TABLE = "table"


WIDTH_WITHOUT_TERMINAL = 200


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
    console(stderr=True).print(f"warning: {about}", style="yellow", markup=False)


def print_report(report: RunReport, output: Output) -> None:
    """Print to standard output, which gets nothing else."""
    if output is Output.TABLE:
        console().print(summary_table(report))
    elif output is Output.JSON:
        sys.stdout.buffer.write(to_json(report) + b"\n")
        sys.stdout.buffer.flush()
    else:
        print_data(msgspec.to_builtins(report), output)


def print_comparison(before: RunReport, after: RunReport, output: Output) -> None:
    """Print one workload without and with colocation to standard output."""
    if output is Output.TABLE:
        console().print(summary_table(after))
        console().print(comparison_table(before, after))
    else:
        both = {"before": before, "after": after}
        print_data({name: msgspec.to_builtins(each) for name, each in both.items()}, output)


def print_data(data: Mapping[str, Any], output: Output) -> None:
    """Print plain data as JSON or YAML to standard output."""
    if output is Output.JSON:
        sys.stdout.buffer.write(msgspec.json.encode(data) + b"\n")
        sys.stdout.buffer.flush()
    else:
        yaml.safe_dump(dict(data), sys.stdout, sort_keys=False, allow_unicode=True)


def write_html(report: RunReport, path: Path, before: RunReport | None = None) -> None:
    """Write the report as one HTML file, beside one without colocation if given.

    Raises InputError if the file can't be written.
    """
    try:
        path.write_text(render_html(report, before), encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", source=str(path)) from None
