"""Replay of a trace: the part of ``koord simulate`` behind ``--trace``."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.progress import Progress
from rich.table import Table

from koordinator.cli.interruption import INTERRUPTED, Interruption, tell_interrupted
from koordinator.cli.output import Output, check_writable, console, print_data
from koordinator.foundation.errors import InputError
from koordinator.simulator.research.bound import allocation_bound
from koordinator.simulator.research.openb import Arrivals, OpenbTrace, arrivals, read_trace
from koordinator.simulator.research.openb_replay import (
    DEFAULT_POLICY,
    ReplayResult,
    demand_ratio,
    write_placements,
)
from koordinator.simulator.research.openb_replay import replay as run

DEFAULT_SEED = 42


@dataclass(frozen=True, slots=True)
class Replay:
    """What the user asked for; empty and None mean the default."""

    data: Path
    workload: str
    policy: str
    tune: float | None
    seed: int | None
    output: Output
    placements: Path | None
    with_bound: bool


def replay(asked: Replay) -> None:
    """Replay the openb trace and print the figures.

    Without ``tune`` every pod of the list arrives once.
    """
    if asked.tune is not None and not 0 < asked.tune < math.inf:
        raise InputError(f"found {asked.tune}; accepted is a ratio over 0", source="--tune")
    trace = read_trace(asked.data, asked.workload or "default")
    seed = DEFAULT_SEED if asked.seed is None else asked.seed
    ratio = demand_ratio(trace) if asked.tune is None else asked.tune
    order = arrivals(trace, seed, ratio, asked.data)
    started_s = time.perf_counter()
    if asked.placements is not None:
        check_writable(asked.placements)
    with (
        Progress(console=console(stderr=True), transient=True) as progress,
        Interruption() as interruption,
    ):
        task = progress.add_task("replaying", total=len(order.order))

        def on_arrival(done: int) -> None:
            progress.update(task, completed=done)
            interruption.check()

        result = run(
            trace,
            order,
            seed,
            asked.policy or DEFAULT_POLICY,
            on_arrival=on_arrival,
        )
    seconds = time.perf_counter() - started_s
    if asked.placements is not None:
        write_placements(asked.placements, result.placements)
    figures = result.as_data() | {
        "podsPerSecond": round(len(result.placements) / max(seconds, 1e-9))
    }
    if asked.with_bound:
        figures["bound"] = _bound(trace, order)
    if asked.output is Output.TABLE:
        _print_table(result, figures)
    else:
        print_data(figures, asked.output)
    if interruption.asked:
        tell_interrupted(f"{len(result.placements)} of {len(order.order)} arrivals")
        raise typer.Exit(INTERRUPTED)


def _bound(trace: OpenbTrace, order: Arrivals) -> dict[str, Any]:
    bound = allocation_bound(trace, order.order)
    return {
        "gpuAllocatedPercent": round(100 * bound.gpu_milli / trace.gpu_milli, 2),
        "method": bound.method,
    }


def _print_table(result: ReplayResult, figures: dict[str, Any]) -> None:
    printer = console()
    table = Table(box=None, header_style="bold")
    table.add_column("GPU DEMAND ARRIVED", justify="right")
    table.add_column("GPU ALLOCATED", justify="right")
    for mark, allocated in figures["gpuAllocatedPercentAt"].items():
        table.add_row(f"{mark} %", f"{allocated:.2f} %")
    printer.print(table)
    printer.print(
        f"{result.trace}, policy {result.policy}, seed {result.seed}: {figures['arrivals']} "
        f"arrivals, {figures['failed']} failed, {figures['gpuAllocatedPercent']} % of the GPUs "
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
