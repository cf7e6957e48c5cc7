"""Print and write what a simulation reports."""

import sys
from pathlib import Path

import msgspec

from koordinator.cli.output import Output, console, print_data
from koordinator.domain.run_report import RunReport, to_json
from koordinator.foundation.errors import InputError
from koordinator.simulator.colocation.comparison import comparison_table
from koordinator.simulator.report import render_html, summary_table


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


def write_html(report: RunReport, path: Path, before: RunReport | None = None) -> None:
    """Write the report as one HTML file, beside one without colocation if given.

    Raises InputError if the file can't be written.
    """
    try:
        path.write_text(render_html(report, before), encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", source=str(path)) from None
