"""Printed and HTML reports of a simulation."""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from koordinator.cli.interruption import Interruption, warn_interrupted
from koordinator.cli.output import Output, console, print_data
from koordinator.foundation.errors import InputError
from koordinator.simulator import Simulation
from koordinator.simulator.colocation.comparison import comparison_table, queue_table
from koordinator.simulator.progress import LiveView
from koordinator.simulator.report import run_page, summary_table
from koordinator.simulator.results import SimulationResult
from koordinator.simulator.run_report import RunReport, to_json


def run_watched(
    simulation: Simulation, record: Callable[[bytes], object] | None = None
) -> tuple[SimulationResult, bool]:
    """Run a simulation with a live view; return its result and whether Ctrl-C ended it.

    ``record`` is called with the lines of a recording.
    """
    with (
        LiveView(simulation.recorder, ends_s=simulation.ends_s) as view,
        Interruption() as interruption,
    ):

        def on_sample() -> None:
            view.update()
            interruption.check()

        result = simulation.run(on_sample, record=record)
    if interruption.is_requested:
        done_h, all_h = result.report.finished_s / 3600, simulation.ends_s / 3600
        warn_interrupted(f"{done_h:.4g} h of {all_h:.4g} h")
    return result, interruption.is_requested


def print_report(report: RunReport, output: Output) -> None:
    """Print a report to standard output."""
    if output is Output.TABLE:
        console().print(summary_table(report))
        _print_queues(report)
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
        _print_queues(after)
    else:
        both = {"before": before, "after": after}
        print_data({name: msgspec.to_builtins(each) for name, each in both.items()}, output)


def _print_queues(report: RunReport) -> None:
    if report.colocation is not None and report.colocation.yarn is not None:
        console().print(queue_table(report.colocation.yarn))


def write_html(result: SimulationResult, path: Path, before: RunReport | None = None) -> None:
    """Write a result as one HTML file, compared with ``before`` if given, and print its URL.

    Raises InputError if the file can't be written.
    """
    from koordinator.dashboard.offline import offline_page  # noqa: PLC0415 -- an optional part

    try:
        path.write_text(
            offline_page(run_page(result.report, before, result.devices.lanes())), encoding="utf-8"
        )
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
    console(stderr=True).print(f"Report: {path.resolve().as_uri()}", soft_wrap=True, markup=False)
