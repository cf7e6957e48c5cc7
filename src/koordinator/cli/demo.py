"""``koord demo``: a generated cluster of GPU and CPU servers, a day of work, one report."""

from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.output import Output, console
from koordinator.cli.run_reports import print_report, write_html
from koordinator.simulator import Simulation, demo_workload
from koordinator.simulator.progress import LiveView


def demo(
    report: Annotated[Path, typer.Option(help="Where to write the report.")] = Path(
        "koord-demo.html"
    ),
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the generated pods and failures.")
    ] = None,
) -> None:
    """Simulate a day of an AI and services cluster and write an HTML report."""
    simulation = Simulation(demo_workload(), seed=seed)
    with LiveView(simulation.recorder, ends_s=simulation.ends_s) as view:
        result = simulation.run(view.update)
    write_html(result.report, report)
    print_report(result.report, Output.TABLE)
    console().print(f"Report: {report.resolve().as_uri()}", soft_wrap=True)
