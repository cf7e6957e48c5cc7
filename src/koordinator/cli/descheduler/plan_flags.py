"""The flags of ``koord descheduler plan``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from koordinator.cli.component.flags import Files, KubeVersionFlag, Now, Print, Strict
from koordinator.cli.input.configuration import NAMED_CONFIGURATION, WHAT_NAMES_MEAN
from koordinator.cli.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """What is looked at, by which policy, and what is made of it."""

    files: Files = None
    kubeconfig: Annotated[str, typer.Option(help="Read this cluster.")] = ""
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = ""
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="DeschedulerConfiguration.")
    ] = None
    scheduler_config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"By which moves are proven. {WHAT_NAMES_MEAN} Default: both, each for its "
            "schedulerName.",
        ),
    ] = ""
    cycles: Annotated[
        int,
        typer.Option(min=1, max=1000, help="Most cycles, until one of them wants a pod to go."),
    ] = 10  # a node counts as hot after fewer looks, unless told otherwise
    now: Now = ""
    feature_gates: Annotated[
        str, typer.Option(metavar="NAME=true,...", help="As for the descheduler.")
    ] = ""
    kube_version: KubeVersionFlag = ""
    strict: Strict = False
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with before and after.")
    ] = None
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Create the PodMigrationJobs of the plan in the cluster."),
    ] = False
    output: Print = Output.TABLE
