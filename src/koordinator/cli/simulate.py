"""``koord simulate``: a workload or a trace through the scheduler, in virtual time."""

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.configuration import (
    NAMED_CONFIGURATION,
    WHAT_NAMES_MEAN,
    plugins_for,
    read_configuration,
)
from koordinator.cli.flags import Print
from koordinator.cli.interruption import INTERRUPTED
from koordinator.cli.output import Output, check_writable
from koordinator.cli.replay import Replay, replay
from koordinator.cli.run_reports import print_comparison, print_report, run_watched, write_html
from koordinator.domain.run_report import RunReport
from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError
from koordinator.simulator import Simulation, read_workload
from koordinator.simulator.run import default_profile


class Trace(enum.StrEnum):
    """Traces whose format is known."""

    OPENB = "openb"


def simulate(
    *,
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            help="YAML file that describes nodes and pods; with --trace the name or file of a pod "
            "list, the default one if absent.",
        ),
    ] = "",
    trace: Annotated[Trace | None, typer.Option(help="Replay a trace instead.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the trace's files.")] = None,
    policy: Annotated[str, typer.Option(help="With --trace: how GPUs are placed.")] = "",
    tune: Annotated[
        float | None,
        typer.Option(help="With --trace: GPU demand of all arrivals / GPUs of the cluster."),
    ] = None,
    bound: Annotated[
        bool, typer.Option("--bound", help="With --trace: add a proven upper bound.")
    ] = False,
    placements: Annotated[
        Path | None, typer.Option(help="With --trace: write a CSV line per arrival.")
    ] = None,
    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{WHAT_NAMES_MEAN} Default: that of koord demo.",
        ),
    ] = "",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Default: that of the workload file.")
    ] = None,
    until: Annotated[
        str, typer.Option(help="Virtual time to stop at, as 36h; default: the file's horizon.")
    ] = "",
    output: Print = Output.TABLE,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Run it without colocation, too, and put both side by side."
        ),
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report.")] = None,
) -> None:
    """Run a described workload, or replay a trace, and report what became of the pods."""
    if trace is not None:
        _refuse(
            "not accepted together with --trace",
            config=config,
            until=until,
            report=report,
            compare=compare,
        )
        if data is None:
            raise InputError("required with --trace: the folder with its files", source="--data")
        replay(Replay(data, workload, policy, tune, seed, output, placements, with_bound=bound))
        return
    _refuse(
        "accepted only together with --trace",
        data=data,
        policy=policy,
        tune=tune,
        bound=bound,
        placements=placements,
    )
    if not workload:
        raise InputError("required: a YAML file, or --trace with --data", source="--workload")
    described = read_workload(workload)
    if compare and described.colocation is None:
        raise InputError(
            "accepted only for a workload with the field colocation", source="--compare"
        )

    configuration = read_configuration(config, default_profile())
    out_of_tree = plugins_for(configuration)

    def simulation_of(*, colocates: bool) -> Simulation:
        return Simulation(
            described,
            configuration,
            seed=seed,
            until_s=_seconds(until) if until else None,
            out_of_tree=out_of_tree,
            source=config,
            colocates=colocates,
        )

    if report is not None:
        check_writable(report)
    if _run(simulation_of, report, output, compare=compare):
        raise typer.Exit(INTERRUPTED)


def _run(
    simulation_of: Callable[..., Simulation], report: Path | None, output: Output, *, compare: bool
) -> bool:
    """Run and print; return whether Ctrl-C ended it, in which case the second run is left out."""
    simulation = simulation_of(colocates=True)
    before: RunReport | None = None
    if compare:
        before, is_interrupted = run_watched(simulation_of(colocates=False))
        if is_interrupted:
            print_report(before, output)
            if report is not None:
                write_html(before, report)
            return True
    after, is_interrupted = run_watched(simulation)
    if before is None:
        print_report(after, output)
    else:
        print_comparison(before, after, output)
    if report is not None:
        write_html(after, report, before)
    return is_interrupted


def _refuse(problem: str, **options: object) -> None:
    for name, value in options.items():
        if value:
            raise InputError(problem, source=f"--{name}")


def _seconds(text: str) -> float:
    try:
        span_s = Duration.parse(text).total_seconds()
    except InputError as error:
        raise error.within(source="--until") from None
    if span_s <= 0:
        raise InputError(f"found {text}; accepted is more than 0s", source="--until")
    return span_s
