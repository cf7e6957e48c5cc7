"""Week of a trace with departures, on arrays instead of the scheduler."""

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.progress import Progress

from koordinator.cli.output import Output, console, print_data
from koordinator.cli.simulate.reports import INTERRUPTED, Interruption, warn_interrupted
from koordinator.simulator.research.openb import OpenbTrace, read_trace
from koordinator.simulator.research.openb_departures import (
    WEEK_S,
    DepartureWeek,
    draw_departing_pods,
)
from koordinator.simulator.research.openb_fleet import FleetClasses, GpuFleet
from koordinator.simulator.research.openb_moves import LimitedMoves, MoveBudget
from koordinator.simulator.run import RunInterrupted

DEFAULT_SEED = 42


def simulate_weeks(
    data: Path,
    pods: str,
    policy: str,
    seeds: Sequence[int],
    *,
    output: Output,
    migrate: float | None,
) -> None:
    """Simulate a week of the trace per seed, and print the figures."""
    trace = read_trace(data, pods or "default")
    for seed in seeds or (DEFAULT_SEED,):
        _simulate_week(trace, policy, seed, output, migrate)


def _simulate_week(
    trace: OpenbTrace, policy: str, seed: int, output: Output, migrate: float | None
) -> None:
    drawn = draw_departing_pods(trace, seed)
    week = DepartureWeek(GpuFleet(trace, FleetClasses.of(trace), drawn.rank, policy), drawn)
    mover = None if migrate is None else LimitedMoves(trace, MoveBudget(migrate))
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
    if output is Output.TABLE:
        console().print(
            f"{trace.name}, policy {policy}, seed {seed}: {figures['gpuUsedPercent']} % of the "
            f"GPUs in use, mean wait {result.mean_wait_s / 3600:.2f} h, {result.arrivals} "
            f"arrivals, {result.waiting} wait at the end, {result.moves} moves "
            f"({figures['movesPer1000Arrivals']} per 1,000 arrivals)"
        )
    else:
        print_data(figures, output)
    if interruption.is_requested:
        warn_interrupted(f"{week.now_s / 3600:.0f} of {WEEK_S / 3600:.0f} hours")
        raise typer.Exit(INTERRUPTED)
