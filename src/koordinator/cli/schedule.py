"""``koord schedule``: manifests in, decisions out, no cluster needed."""

import datetime as dt
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from koordinator.cli.configuration import read_configuration
from koordinator.cli.manifests import read_manifests
from koordinator.cli.output import Output, console, print_data
from koordinator.foundation.clock import SystemClock, to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.scheduler.app import Bound, Unschedulable
from koordinator.scheduler.profile import installed_plugins
from koordinator.simulator import ScheduleResult
from koordinator.simulator import schedule as run


def schedule(
    files: Annotated[
        list[str],
        typer.Option("--filename", "-f", help="File, folder or - for standard input; repeatable."),
    ],
    config: Annotated[
        Path | None, typer.Option(help="KubeSchedulerConfiguration; default: kube-scheduler's own.")
    ] = None,
    now: Annotated[
        str, typer.Option(help="The time it is, RFC 3339; default: the current time.")
    ] = "",
    scores: Annotated[
        bool, typer.Option("--scores", help="Add every node's verdict and scores to each pod.")
    ] = False,
    output: Annotated[Output, typer.Option("--output", "-o")] = Output.TABLE,
) -> None:
    """Decide where the pending pods among the given objects go."""
    result = run(
        read_manifests(files, sys.stdin.buffer),
        read_configuration(config),
        now_s=parse_time(now) if now else SystemClock().now_s(),
        explain=scores,
        out_of_tree=installed_plugins(),
        source=str(config or ""),
    )
    if result.not_yet:
        console(stderr=True).print(
            f"warning: these plugins do nothing yet: {', '.join(result.not_yet)}", style="yellow"
        )
    if output is Output.TABLE:
        _print_table(result)
    else:
        print_data(as_data(result), output)


def parse_time(text: str) -> float:
    """Return seconds since the epoch.  Raises InputError."""
    try:
        return to_epoch_s(dt.datetime.fromisoformat(text))
    except ValueError:
        accepted = "a time such as 2026-01-31T12:00:00Z"
        raise InputError(f"found {text!r}; accepted is {accepted}", source="--now") from None


def as_data(result: ScheduleResult) -> dict[str, Any]:
    """Return the decisions in the shape that is a contract: see the README."""
    return {
        "placements": [_placement(bound) for bound in result.placements],
        "unschedulable": [_refusal(refused) for refused in result.unschedulable],
        "evicted": [{"pod": e.pod, "by": e.by, "reason": e.reason} for e in result.evicted],
    }


def _placement(bound: Bound) -> dict[str, Any]:
    return {
        "pod": bound.pod,
        "node": bound.node,
        "annotations": dict(bound.annotations),
        "labels": dict(bound.labels),
        **_scores(bound),
    }


def _refusal(refused: Unschedulable) -> dict[str, Any]:
    return {
        "pod": refused.pod,
        "plugin": refused.plugin,
        "reason": refused.reason,
        "message": refused.message,
        **_scores(refused),
    }


def _scores(outcome: Bound | Unschedulable) -> dict[str, Any]:
    card = outcome.scorecard
    if card is None:
        return {}
    rejected = card.rejections()
    return {
        "filtered": {node: {"plugin": p, "reason": r} for node, (p, r) in rejected.items()},
        "scores": card.score_table(),
    }


def _print_table(result: ScheduleResult) -> None:
    printer = console()
    table = Table(box=None, header_style="bold")
    for column in ("POD", "NODE", "WHY"):
        table.add_column(column, overflow="fold")
    for bound in result.placements:
        table.add_row(bound.pod, bound.node, "")
    for refused in result.unschedulable:
        table.add_row(refused.pod, "-", refused.message)
    for evicted in result.evicted:
        table.add_row(evicted.pod, "(evicted)", evicted.reason)
    printer.print(table)
    printer.print(
        f"{len(result.placements)} placed, {len(result.unschedulable)} unschedulable, "
        f"{len(result.evicted)} evicted"
    )
