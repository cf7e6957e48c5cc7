"""Results of one or several runs: printed, as HTML, and as a file of placements.

Handler of Ctrl-C in long runs: the first keeps the result so far, the second ends the run.
"""

import csv
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from types import FrameType, TracebackType
from typing import Any, Final, Self

import msgspec
from rich.table import Table

from koordinator.cli.output import Output, console, print_data, warn
from koordinator.foundation.errors import InputError
from koordinator.simulator import Simulation
from koordinator.simulator.numerals import UNKNOWN, duration, percent
from koordinator.simulator.progress import LiveView
from koordinator.simulator.report import comparison_table, queue_table, run_page, summary_table
from koordinator.simulator.results import SimulationResult, format_gpus
from koordinator.simulator.run import RunInterrupted
from koordinator.simulator.run_report import RunReport, to_json

INTERRUPTED: Final = 130  # the status that a shell reports for a program ended by SIGINT

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # with which a cell begins that spreadsheets run
_SECONDS: Final = ("completion_mean_s", "completion_p99_s", "queueing_mean_s")
_SHARES: Final = ("gpu_utilization", "cpu_utilization", "gpu_fragmentation")
_TITLES: Final = {
    "pods_scheduled": "scheduled",
    "pods_finished": "finished",
    "restarts": "restarts",
    "completion_mean_s": "mean completion",
    "completion_p99_s": "p99 completion",
    "queueing_mean_s": "mean queueing",
    "fairness_mean": "fairness",
    "gpu_utilization": "GPU used",
    "cpu_utilization": "CPU used",
    "gpu_fragmentation": "fragmented",
    "cost": "cost",
    "energy_kwh": "kWh",
    "moves": "moves",
}


class Interruption:
    """Context in which the first Ctrl-C only sets ``is_requested``."""

    def __init__(self) -> None:
        self.is_requested = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise RunInterrupted once Ctrl-C has been pressed."""
        if self.is_requested:
            raise RunInterrupted

    def _request(self, _signal: int, _frame: FrameType | None) -> None:
        self.is_requested = True
        signal.signal(signal.SIGINT, self._before)


def warn_interrupted(progress: str) -> None:
    """Print how far a run was when Ctrl-C ended it."""
    warn(f"ended by Ctrl-C; the figures are of {progress}")


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


def figures_of(result: SimulationResult, bound: dict[str, Any] | None) -> dict[str, Any]:
    """Return what ``-o json`` prints of a run: figures of arrivals, or its report."""
    if result.curve is None:
        return dict(msgspec.to_builtins(result.report))
    figures = result.arrival_figures()
    figures["podsPerSecond"] = round(len(result.placements) / max(result.report.wall_s, 1e-9))
    return figures | ({"bound": bound} if bound is not None else {})


def print_arrivals(result: SimulationResult, figures: dict[str, Any]) -> None:
    """Print the allocation over arrivals as a table."""
    printer = console()
    table = Table(box=None, header_style="bold")
    table.add_column("GPU DEMAND ARRIVED", justify="right")
    table.add_column("GPU ALLOCATED", justify="right")
    for mark, allocated in figures["gpuAllocatedPercentAt"].items():
        table.add_row(f"{mark} %", f"{allocated:.2f} %")
    printer.print(table)
    scores = f"policy {result.policy}" if result.policy else "scores of the configuration"
    printer.print(
        f"{result.source}, {scores}, seed {result.seed}: {figures['arrivals']} arrivals, "
        f"{figures['failed']} failed, {figures['gpuAllocatedPercent']} % of the GPUs "
        f"allocated, {figures['gpuFragmentedPercent']} % fragmented, "
        f"{figures['podsPerSecond']} pods/s"
    )
    for reason, count in figures["failedByReason"].items():
        printer.print(f"  {count} failed: {reason}")
    if "bound" in figures:
        proven = figures["bound"]
        printer.print(
            f"no placement of these arrivals can exceed {proven['gpuAllocatedPercent']} % "
            f"({proven['method']})"
        )
        if "workConservingPercent" in proven:
            printer.print(
                "no policy that places every pod that fits a node can exceed "
                f"{proven['workConservingPercent']} %"
            )


def print_runs(
    results: Sequence[SimulationResult], figures: Sequence[dict[str, Any]], output: Output
) -> None:
    """Print several runs: a row per run, and mean and deviation per variant."""
    if output is not Output.TABLE:
        data = [
            {**result.labels, "seed": result.seed, "figures": result.figures(), "result": each}
            for result, each in zip(results, figures, strict=True)
        ]
        print_data({"runs": data}, output)
        return
    rows = [result.figures() for result in results]
    if all(result.curve is not None for result in results):
        marks = [name for name in rows[0] if name.startswith("gpu_allocated_at_")]
        names = {mark: f"at {mark.rpartition('_')[2]} %" for mark in marks}
    else:
        names = {
            name: title
            for name, title in _TITLES.items()
            if any(row.get(name) is not None for row in rows)
        }
    table = Table(box=None, header_style="bold")
    table.add_column("RUN")
    table.add_column("SEED", justify="right")
    for title in names.values():
        table.add_column(title.upper(), justify="right")
    variants = list(dict.fromkeys(_label(result) for result in results))
    for variant in variants:
        own = [
            (result, row)
            for result, row in zip(results, rows, strict=True)
            if _label(result) == variant
        ]
        for result, row in own:
            cells = [_cell(name, row.get(name)) for name in names]
            table.add_row(variant, str(result.seed), *cells)
        if len(own) > 1:
            table.add_row("", "mean ± sd", *(_spread(n, [row for _, row in own]) for n in names))
    console().print(table)


def _label(result: SimulationResult) -> str:
    return result.labels.get("variant") or result.policy or result.report.title


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if name in _SECONDS:
        return duration(value)
    if name in _SHARES:
        return percent(value)
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _spread(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return mean and standard deviation of a figure."""
    values = [float(row[name]) for row in rows if row.get(name) is not None]
    if len(values) < 2:  # noqa: PLR2004 -- one value has no deviation
        return UNKNOWN
    mean, deviation = fmean(values), stdev(values)
    if name in _SECONDS:
        return f"{duration(mean)} ± {duration(deviation)}"
    if name in _SHARES:
        return f"{100 * mean:.2f} ± {100 * deviation:.2f} %"
    return f"{mean:,.2f} ± {deviation:,.2f}"


def write_placements(path: Path, result: SimulationResult) -> None:
    """Write a line per pod: ``arrival,pod,node,gpus``, and times where they have a meaning.

    gpus are ``minor:milli`` joined by ``;``.  A name that a spreadsheet would run gets a ``'``
    before it.  Raises InputError if the file can't be written.
    """
    try:
        file = path.open("w", newline="", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
    is_timed = result.curve is None
    with file:
        writer = csv.writer(file)
        times = ("submitted_s", "bound_s", "ended_s", "stage") if is_timed else ()
        writer.writerow(("arrival", "pod", "node", "gpus", *times))
        for number, each in enumerate(result.placements):
            name = each.pod.removeprefix("default/")
            more = (each.submitted_s, each.bound_s, each.ended_s, each.stage) if is_timed else ()
            row = (number, _as_text(name), _as_text(each.node), format_gpus(each.gpus), *more)
            writer.writerow(row)


def _as_text(cell: str) -> str:
    """Return a cell that spreadsheets take as text: names may begin like a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) or cell.lstrip().startswith(_FORMULA) else cell
