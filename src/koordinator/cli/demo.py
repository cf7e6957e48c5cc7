"""Command ``koord demo``: a simulated day of a cluster of GPU and CPU servers, and its report."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from koordinator.cli.output import Output, check_writable, console
from koordinator.cli.simulate.reports import INTERRUPTED, print_report, run_watched, write_html
from koordinator.simulator import Simulation, demo_workload
from koordinator.simulator.policies import default_profile

if TYPE_CHECKING:
    from koordinator.dashboard.sources.simulation import SimulationSource

SHOWN_SPEED = 1800.0  # simulated seconds per second: the day takes less than a minute
ANY_PORT = "127.0.0.1:0"


def demo(
    report: Annotated[Path, typer.Option(help="File to write the HTML report to.")] = Path(
        "koord-demo.html"
    ),
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed of the generated pods and failures.")
    ] = None,
    *,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Don't show the day in a browser while it runs.")
    ] = False,
) -> None:
    """Simulate a day of an AI and services cluster and write an HTML report.

    On a desktop the day is shown in the browser while it runs, and then the report.
    """
    from koordinator.cli.dashboard.command import has_browser  # noqa: PLC0415 -- pipes need no server

    check_writable(report)
    if not no_browser and has_browser():
        show(partial(Simulation, demo_workload(), seed=seed), report)
        return
    simulation = Simulation(demo_workload(), seed=seed)
    result, is_interrupted = run_watched(simulation)
    print_report(result.report, Output.TABLE)
    write_html(result, report)
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)


def show(simulate: Callable[..., Simulation], report: Path) -> None:
    """Show a simulation in the browser, write its report, and keep showing its end.

    Raises typer.Exit if Ctrl-C ends it early; the report then covers the part that was simulated.
    """
    from koordinator.cli.dashboard.command import (  # noqa: PLC0415
        SCORES_SHARE,
        open_browser,
        serve,
    )
    from koordinator.cli.dashboard.flags import DashboardFlags  # noqa: PLC0415
    from koordinator.dashboard.sources.simulation import SimulationSource  # noqa: PLC0415
    from koordinator.foundation.clock import SystemClock  # noqa: PLC0415
    from koordinator.process.termination import stop_on_signals  # noqa: PLC0415
    from koordinator.scheduler.features.audit import Audit  # noqa: PLC0415

    clock, stopping = SystemClock(), stop_on_signals()
    trail = Audit(scores_share=SCORES_SHARE)
    simulation = simulate(audit=trail, times_plugins=False)
    source = SimulationSource(simulation, default_profile(), clock, speed=SHOWN_SPEED, trail=trail)
    with ExitStack() as cleanup:
        serve(DashboardFlags(listen=ANY_PORT), source, clock, cleanup)
        while source.result is None and not stopping.wait(0.2):
            pass
        if source.result is not None:
            _report(source, report)
            open_browser(report.resolve().as_uri())
            console(stderr=True).print("The day is over; Ctrl-C ends the dashboard.")
            while not stopping.wait(0.5):
                pass
            return
    _report(source, report)
    raise typer.Exit(INTERRUPTED)


def _report(source: "SimulationSource", report: Path) -> None:
    if source.result is not None:
        print_report(source.result.report, Output.TABLE)
        write_html(source.result, report)
