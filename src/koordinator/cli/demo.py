"""``koord demo``: a generated cluster of GPU and CPU servers, a day of work, one report."""

from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.interruption import INTERRUPTED
from koordinator.cli.output import Output, check_writable
from koordinator.cli.run_reports import print_report, run_watched, write_html
from koordinator.simulator import Simulation, demo_workload


def demo(
    report: Annotated[Path, typer.Option(help="Where to write the report.")] = Path(
        "koord-demo.html"
    ),
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the generated pods and failures.")
    ] = None,
) -> None:
    """Simulate a day of an AI and services cluster and write an HTML report."""
    check_writable(report)
    found, is_interrupted = run_watched(Simulation(demo_workload(), seed=seed))
    print_report(found, Output.TABLE)
    write_html(found, report)
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)
