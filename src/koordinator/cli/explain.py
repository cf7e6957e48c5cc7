"""``koord explain``: why pods wait, and what would help."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.cli.configuration import Config, plugins_for, read_configuration
from koordinator.cli.flags import Files, GatesOfScheduler, Now, Print, Strict
from koordinator.cli.given import Given
from koordinator.cli.live import with_cluster
from koordinator.cli.manifests import read_given
from koordinator.cli.output import Output, console, print_data
from koordinator.cli.times import parse_time
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.explain import Explanation
from koordinator.simulator.explaining import explain_pods

explain = typer.Typer(help="Why pods wait, and what would help.", no_args_is_help=True)


@explain.callback()
def _explain() -> None:
    """Keep ``pod`` a command of its own while it is the only one."""


@explain.command("pod")
def explain_pod(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="namespace/name or reservation/name, repeatable; default: all that wait."
        ),
    ] = None,
    *,
    files: Files = None,
    config: Config = "",
    now: Now = "",
    kubeconfig: Annotated[str, typer.Option(help="Read this cluster; nothing is written.")] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    feature_gates: GatesOfScheduler = "",
    strict: Strict = False,
    output: Print = Output.TABLE,
) -> None:
    """Tell what blocks a pod, where, and what would unblock it.

    The scheduler is run on a copy until nothing moves any more; what waits then is explained.
    """
    given = read_given(files, strict=strict) if files else Given()
    objects: Sequence[KubeObject] = given.objects
    if kubeconfig or context:
        objects = with_cluster(objects, kubeconfig, context)
    elif not files:
        raise InputError("required, but missing; accepted is -f or --kubeconfig", source="-f")
    objects = given.completed(objects)
    configuration = read_configuration(config)
    explained = explain_pods(
        objects,
        [name if "/" in name else f"default/{name}" for name in names or ()],
        configuration,
        now_s=parse_time(now) if now else SystemClock().now_s(),
        out_of_tree=plugins_for(configuration),
        source=config,
        gates=FeatureGates.parse(feature_gates),
    )
    if output is not Output.TABLE:
        print_data({"pods": [_as_data(one) for one in explained]}, output)
        return
    printer = console()
    if not explained:
        printer.print("no pod waits")
    for one in explained:
        _print(printer, one)


def _as_data(one: Explanation) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(one)
    return data


def _print(printer: Console, one: Explanation) -> None:
    _say(printer, f"[bold]{escape(one.pod)}[/] {one.verdict}: {escape(one.summary)}")
    _print_causes(printer, one)
    _print_nearest(printer, one)
    told = {cause.reason for cause in one.causes if not cause.nodes}
    never = "" if one.empty_cluster is None or one.empty_cluster.fits else one.empty_cluster.why
    if never and never not in told:
        _say(printer, f"  not even if all other pods were gone: {escape(never)}")
    if one.remedies:
        _say(printer, "  what would help:")
    for remedy in one.remedies:
        besides = "" if remedy.sufficient else " (not enough alone)"
        _say(printer, f"    - {escape(remedy.text)}{besides}")
    turn, forecast = one.queue, one.forecast
    if turn is not None:
        before = f", {turn.position - 1} before it" if turn.position > 1 else ""
        _say(
            printer,
            f"  queue: {turn.state}{before}, tried {turn.attempts} times since {turn.since}",
        )
        for event in turn.woken_by:
            _say(printer, f"    woken by {escape(event)}")
        if turn.retry_at:
            _say(printer, f"    tried again at {turn.retry_at} at the latest")
    if forecast is not None:
        text = f"{forecast.at} on {forecast.node}" if forecast.at else f"unknown: {forecast.why}"
        _say(printer, f"  start: {escape(text)}")


def _print_causes(printer: Console, one: Explanation) -> None:
    for cause in one.causes:
        more = f" ({escape(cause.detail)})" if cause.detail else ""
        if not cause.nodes:
            _say(printer, f"  {escape(cause.plugin or '-')}: {escape(cause.reason)}{more}")
            continue
        rank = "" if cause.decisive else "also, but not alone: "
        _say(printer, f"  {rank}{escape(cause.plugin)}: {cause.nodes} {escape(cause.reason)}{more}")


def _say(printer: Console, text: str) -> None:
    printer.print(text, soft_wrap=True)  # lines are searched for, and copied


def _print_nearest(printer: Console, one: Explanation) -> None:
    if not one.nearest:
        return
    table = Table(box=None, header_style="bold", padding=(0, 2))
    for column in ("NEAREST NODE", "LACKS", "WHY"):
        table.add_column(column, overflow="fold")
    for near in one.nearest:
        lacks = ", ".join(f"{amount} {name}" for name, amount in near.lacks.items())
        table.add_row(near.node, lacks or "-", escape("; ".join(near.details)))
    printer.print(table)
