"""Replay of a trace by ``koord simulate --trace``."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.progress import Progress
from rich.table import Table

from koordinator.cli.interruption import INTERRUPTED, Interruption, warn_interrupted
from koordinator.cli.output import Output, check_writable, console, print_data
from koordinator.foundation.errors import InputError
from koordinator.simulator.interruption import RunInterrupted
from koordinator.simulator.research.bound import allocation_bound
from koordinator.simulator.research.openb import Arrivals, OpenbTrace, arrivals, read_trace
from koordinator.simulator.research.openb_departures import (
    WEEK_S,
    DepartureWeek,
    draw_departing_pods,
)
from koordinator.simulator.research.openb_fleet import FleetClasses, GpuFleet
from koordinator.simulator.research.openb_moves import LimitedMoves, MoveBudget
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
    """Settings of a replay; empty and None mean the default."""

    data: Path
    workload: str
    policy: str
    tune: float | None
    seed: int | None
    output: Output
    placements: Path | None
    with_bound: bool
    departures: bool = False
    migrate: float | None = None  # moves per 1,000 arrivals; None: no descheduler


def replay(settings: Replay) -> None:
    """Replay the openb trace and print the figures.

    Without ``tune`` every pod of the list arrives once.
    """
    if settings.departures:
        _refuse_with_departures(settings)
        _replay_week(settings)
        return
    if settings.migrate is not None:
        raise InputError("requires --departures", source="--migrate")
    if settings.tune is not None and not 0 < settings.tune < math.inf:
        raise InputError(f"must be a ratio over 0, got {settings.tune}", source="--tune")
    trace = read_trace(settings.data, settings.workload or "default")
    seed = DEFAULT_SEED if settings.seed is None else settings.seed
    ratio = demand_ratio(trace) if settings.tune is None else settings.tune
    order = arrivals(trace, seed, ratio, settings.data)
    started_s = time.perf_counter()
    if settings.placements is not None:
        check_writable(settings.placements)
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
            settings.policy or DEFAULT_POLICY,
            on_arrival=on_arrival,
        )
    seconds = time.perf_counter() - started_s
    if settings.placements is not None:
        write_placements(settings.placements, result.placements)
    figures = result.as_data() | {
        "podsPerSecond": round(len(result.placements) / max(seconds, 1e-9))
    }
    if settings.with_bound:
        figures["bound"] = _bound(trace, order)
    if settings.output is Output.TABLE:
        _print_table(result, figures)
    else:
        print_data(figures, settings.output)
    if interruption.is_requested:
        warn_interrupted(f"{len(result.placements)} of {len(order.order)} arrivals")
        raise typer.Exit(INTERRUPTED)


def _refuse_with_departures(settings: Replay) -> None:
    given = {"tune": settings.tune is not None, "placements": settings.placements is not None}
    given["bound"] = settings.with_bound
    for name, is_given in given.items():
        if is_given:
            raise InputError("can't be used with --departures", source=f"--{name}")


def _replay_week(settings: Replay) -> None:
    """Simulate a week of the trace and print the figures."""
    trace = read_trace(settings.data, settings.workload or "default")
    seed = DEFAULT_SEED if settings.seed is None else settings.seed
    policy = settings.policy or DEFAULT_POLICY
    drawn = draw_departing_pods(trace, seed)
    week = DepartureWeek(GpuFleet(trace, FleetClasses.of(trace), drawn.rank, policy), drawn)
    mover = None if settings.migrate is None else LimitedMoves(trace, MoveBudget(settings.migrate))
    with (
        Progress(console=console(stderr=True), transient=True) as progress,
        Interruption() as interruption,
    ):
        task = progress.add_task("simulating a week", total=WEEK_S)

        def every_hour(at: DepartureWeek) -> None:
            if mover is not None:
                mover(at)
            progress.update(task, completed=at.now_s)
            interruption.check()

        try:
            hours = week.run(every_hour)
        except RunInterrupted:
            hours = ()
    result = week.result(policy, seed, hours)
    figures = {
        "trace": trace.name,
        "policy": policy,
        "seed": seed,
        "arrivals": result.arrivals,
        "waitingAtTheEnd": result.waiting,
        "gpuUsedPercent": round(100 * result.gpu_used, 3),
        "meanWaitSeconds": round(result.mean_wait_s, 1),
        "moves": result.moves,
        "movesPer1000Arrivals": round(result.moves_per_1000, 2),
    }
    if settings.output is Output.TABLE:
        console().print(
            f"{trace.name}, policy {policy}, seed {seed}: {figures['gpuUsedPercent']} % of the "
            f"GPUs in use, mean wait {result.mean_wait_s / 3600:.2f} h, {result.arrivals} "
            f"arrivals, {result.waiting} wait at the end, {result.moves} moves "
            f"({figures['movesPer1000Arrivals']} per 1,000 arrivals)"
        )
    else:
        print_data(figures, settings.output)
    if interruption.is_requested:
        warn_interrupted(f"{week.now_s / 3600:.0f} of {WEEK_S / 3600:.0f} hours")
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
