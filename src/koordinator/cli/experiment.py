"""Command ``koord experiment``: grids of simulations, and their comparison."""

import os
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from koordinator.cli.output import console, one_line, warn
from koordinator.simulator.experiments import ExperimentResult, experiment

_FAILED: Final = 1
#: Figures of the printed table; the files have all.
_SHOWN: Final = (
    "completion_mean_s",
    "queueing_mean_s",
    "gpu_utilization",
    "gpu_fragmentation",
    "gpu_allocated_at_100",
)


def run_experiment(
    definition: Annotated[Path, typer.Argument(help="Definition of the experiment, a YAML file.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder of the results; runs whose results it has are not executed again. "
            "Default: the name of the file without its extension, in the current folder.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes. Default: the number of usable CPUs."),
    ] = None,
) -> None:
    """Simulate a grid of sources, policies, seeds and parameters, and compare the policies.

    Writes runs.csv, samples.csv, summary.csv, charts and report.html. Ctrl-C keeps finished runs.
    """
    printer = console(stderr=True)
    result = experiment(
        definition,
        output or Path(definition.stem),
        workers=workers or len(os.sched_getaffinity(0)),
        on_line=lambda line: printer.print(one_line(line), soft_wrap=True, markup=False),
    )
    for sentence in result.notices:
        warn(sentence)
    _print_summary(result)
    if result.failures:
        warn(f"{len(result.failures)} of {len(result.records)} runs failed; see runs.csv")
        raise typer.Exit(_FAILED)


def _print_summary(result: ExperimentResult) -> None:
    """Print mean and paired difference of the main figures, and the report's address."""
    printer, summary = console(), result.summary
    parameters = [
        name for name in result.experiment.parameters.__struct_fields__ if name in summary
    ]
    table = Table(box=None, header_style="bold")
    for name in ("source", *parameters, "policy", "figure"):
        table.add_column(name.upper())
    for title in ("RUNS", "MEAN ± SD", "DIFFERENCE [95 %]"):
        table.add_column(title, justify="right")
    for number, figure in enumerate(summary.get("figure", ())):
        if figure in _SHOWN:
            row = {name: column[number] for name, column in summary.items()}
            names = ("source", *parameters, "policy", "figure", "runs")
            table.add_row(*(str(row[name]) for name in names), _mean(row), _difference(row))
    printer.print(table)
    report = result.files[-1].resolve().as_uri()
    console(stderr=True).print(f"Report: {report}", soft_wrap=True, markup=False)


def _mean(row: dict[str, float | None]) -> str:
    mean, deviation = row["mean"], row["standard_deviation"]
    if mean is None:
        return ""
    return f"{mean:,.4g}" if deviation is None else f"{mean:,.4g} ± {deviation:,.4g}"


def _difference(row: dict[str, float | None]) -> str:
    mean, low, high = (row[f"difference{end}"] for end in ("", "_low_95", "_high_95"))
    if mean is None:
        return ""
    if low is None or high is None:
        return f"{mean:+,.4g}"
    return f"{mean:+,.4g} [{low:+,.4g}, {high:+,.4g}]"
