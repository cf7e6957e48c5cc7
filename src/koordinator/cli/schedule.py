"""Command ``koord schedule``: scheduling decisions for manifests, without a cluster."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from typing import Annotated, Any

import msgspec
import typer

from koordinator.api.dynamic_resources import ClaimAllocation
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import (
    KUBECONFIG_CONTEXT,
    KubeVersionFlag,
    ManifestFiles,
    Now,
    Print,
    SchedulerGates,
    Strict,
)
from koordinator.cli.input.configuration import (
    Config,
    PluginFiles,
    extender_connector,
    plugins_for,
    read_configuration,
)
from koordinator.cli.input.live import find_cluster, is_live, read_gates, with_cluster
from koordinator.cli.input.scope import ScopeFlags, parse_time
from koordinator.cli.input.unused_objects import unused_objects
from koordinator.cli.output import Output, print_data, print_outcomes, warn
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.snapshot import ResourceAxis
from koordinator.simulator.embedded import ScheduleResult
from koordinator.simulator.embedded import schedule as run
from koordinator.simulator.manifests.input_objects import InputObjects
from koordinator.simulator.manifests.reader import collector_paused, read_input_objects


class FailOn(enum.StrEnum):
    """Outcomes with which the command fails."""

    NOTHING = "nothing"
    UNSCHEDULABLE = "unschedulable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFlags:
    """Objects to schedule, scheduler to use, and output."""

    files: ManifestFiles = None
    config: Config = ""
    plugin: PluginFiles = None
    now: Now = ""
    scores: Annotated[
        bool,
        typer.Option("--scores", help="Add the verdict and scores of every node to each pod."),
    ] = False
    kubeconfig: Annotated[
        str,
        typer.Option(
            help="Read also the cluster of this kubeconfig file; --dry-run is then required."
        ),
    ] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = ""
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only print the decisions; nothing is written."),
    ] = False
    feature_gates: SchedulerGates = ""
    kube_version: KubeVersionFlag = ""
    strict: Strict = False
    scope: ScopeFlags = field(default_factory=ScopeFlags)
    fail_on: Annotated[
        FailOn,
        typer.Option(help="Exit with status 1 if a pod or reservation finds no node."),
    ] = FailOn.NOTHING
    output: Print = Output.TABLE


@with_flags
@collector_paused()  # scheduling makes no cycles either, and the process ends with the command
def schedule(flags: ScheduleFlags) -> None:
    """Schedule the pending pods of manifests or a cluster, and print the decisions.

    With a cluster and -f, only the pods of the manifests are printed.
    """
    flags.scope.check()
    given = read_input_objects(flags.files, strict=flags.strict) if flags.files else InputObjects()
    configuration = read_configuration(flags.config, plugins=flags.plugin)
    out_of_tree = plugins_for(configuration, flags.plugin)
    gates = read_gates(
        flags.feature_gates,
        flags.kube_version,
        kubeconfig=flags.kubeconfig if flags.dry_run else "",
        context=flags.context if flags.dry_run else "",
        is_live=flags.dry_run and is_live(flags.files, flags.kubeconfig, flags.context),
    )
    objects: Sequence[KubeObject] = given.objects
    if is_live(flags.files, flags.kubeconfig, flags.context):
        if not flags.dry_run:
            find_cluster(flags.kubeconfig, flags.context)
            problem = (
                "is required with a cluster: this command writes nothing; use `koord scheduler` to "
                "bind pods"
            )
            raise InputError(problem, source="--dry-run")
        built = build_profiles(
            configuration,
            ResourceAxis(),
            out_of_tree=out_of_tree,
            source=flags.config,
            gates=gates,
        )
        objects = with_cluster(
            given.objects, flags.kubeconfig, flags.context, selectors=built.selectors
        )
    existing = set() if objects is given.objects else _keys(objects) - _keys(given.objects)
    objects = given.completed(warn, objects)
    wanted = [obj for obj in objects if (type(obj), obj.key) not in existing]
    for sentence in unused_objects(
        wanted or objects, configuration, out_of_tree=out_of_tree, source=flags.config, gates=gates
    ):
        warn(sentence)
    with ExitStack() as cleanup:
        result = run(
            objects,
            configuration,
            now_s=parse_time(flags.now) if flags.now else SystemClock().now_s(),
            explain=flags.scores,
            out_of_tree=out_of_tree,
            source=flags.config,
            gates=gates,
            connect=extender_connector(cleanup),
        )
    if given.objects and existing:
        result = result.about(
            {obj.key for obj in wanted if isinstance(obj, Pod)},
            {obj.key for obj in wanted if isinstance(obj, Reservation)},
        )
    if flags.scope.is_narrow:
        result = result.about(flags.scope.keys(objects))
    if flags.output is Output.TABLE:
        _print_table(result, len(given.not_simulated))
    else:
        print_data(as_data(result), flags.output)
    result.faults.check()
    if flags.fail_on is FailOn.UNSCHEDULABLE and (
        result.unschedulable
        or any(isinstance(o, Unschedulable) for o in result.reservations)
        or given.not_simulated
    ):
        raise typer.Exit(1)


def _keys(objects: Iterable[KubeObject]) -> set[tuple[type[KubeObject], str]]:
    return {(type(obj), obj.key) for obj in objects}


def as_data(result: ScheduleResult) -> dict[str, Any]:
    """Return the decisions in the stable format that the README documents."""
    data: dict[str, Any] = {
        "placements": [
            _placement(bound) | _allocation(result.allocations.get(bound.pod, {}))
            for bound in result.placements
        ],
        "unschedulable": [_refusal(refused) for refused in result.unschedulable],
        "evicted": [{"pod": e.pod, "by": e.by, "reason": e.reason} for e in result.evicted],
    }
    if result.reservations:
        data["reservations"] = [_reservation(outcome) for outcome in result.reservations]
    return data


def _reservation(outcome: Bound | Unschedulable) -> dict[str, Any]:
    """Return a reserve pod's outcome, with the name of its reservation in place of the pod."""
    fields = _placement(outcome) if isinstance(outcome, Bound) else _refusal(outcome)
    del fields["pod"]
    return {"reservation": outcome.reservation, **fields}


def _placement(bound: Bound) -> dict[str, Any]:
    return {
        "pod": bound.pod,
        "node": bound.node,
        "annotations": dict(bound.annotations),
        "labels": dict(bound.labels),
        **_scores(bound),
    }


def _allocation(claims: Mapping[str, ClaimAllocation]) -> dict[str, Any]:
    """Return the devices of a pod's claims, by name of the claim; nothing if there are none."""
    if not claims:
        return {}
    return {
        "allocation": {
            name: msgspec.to_builtins(allocation.devices.results, enc_hook=str)
            for name, allocation in claims.items()
        }
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


def _print_table(result: ScheduleResult, not_simulated: int) -> None:
    rows: list[tuple[str, str, str]] = []
    for outcome in result.reservations:
        name = f"reservation/{outcome.reservation}"
        if isinstance(outcome, Bound):
            rows.append((name, outcome.node, ""))
        else:
            rows.append((name, "-", outcome.message))
    rows += [(bound.pod, bound.node, "") for bound in result.placements]
    rows += [(refused.pod, "-", refused.message) for refused in result.unschedulable]
    rows += [(evicted.pod, "(evicted)", evicted.reason) for evicted in result.evicted]
    summary = (
        f"{len(result.placements)} placed, {len(result.unschedulable)} unschedulable, "
        f"{len(result.evicted)} evicted"
        + (f"; {not_simulated} workloads not simulated" if not_simulated else "")
    )
    print_outcomes(("POD", "NODE", "WHY"), rows, "there are no pending pods", summary)
