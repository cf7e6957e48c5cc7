"""Command ``koord gang``: gangs, their members, and the reasons for which they wait."""

from dataclasses import field
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace

from koordinator.api.kubescheduler import (
    NO_GATES,
    CoschedulingArgs,
    FeatureGates,
    KubeSchedulerConfiguration,
    decode_args,
)
from koordinator.api.kubescheduler.gates import (
    COMPOSITE_POD_GROUPS,
    GANG_SCHEDULING,
    GENERIC_WORKLOAD,
    TOPOLOGY_PLACEMENTS,
)
from koordinator.api.node import Node
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import KUBECONFIG_CONTEXT, READ_CLUSTER, ManifestFiles, Print
from koordinator.cli.explain.text import why_in_short
from koordinator.cli.help_pages import HelpGroup
from koordinator.cli.input.configuration import (
    CONFIGURATION_HELP,
    NAMED_CONFIGURATION,
    read_configuration,
)
from koordinator.cli.input.live import LiveObjects, is_live, read_objects
from koordinator.cli.input.scope import ScopeFlags
from koordinator.cli.output import Output, console, print_data, print_with_reasons
from koordinator.domain.gangs import GangDefaults, GangSummary, LayerSummary, gang_summaries
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.text import pluralized_names
from koordinator.scheduler.explanations import Explanation
from koordinator.simulator.explanations import SHOWN, explain_pods

#: Gates with which gangs of every kind are scheduled, by all that their objects state.
_GATES = FeatureGates(
    NO_GATES.enabled
    | {GENERIC_WORKLOAD, GANG_SCHEDULING, TOPOLOGY_PLACEMENTS, COMPOSITE_POD_GROUPS},
    NO_GATES.level,
)

gang = typer.Typer(
    cls=HelpGroup, help="Show gangs: pods that start together or not at all.", no_args_is_help=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFlags:
    """Objects to read, defaults of gangs, and output."""

    files: ManifestFiles = None
    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{CONFIGURATION_HELP} It sets the defaults of gangs.",
        ),
    ] = ""
    kubeconfig: Annotated[str, typer.Option(help=READ_CLUSTER)] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = ""
    scope: ScopeFlags = field(default_factory=ScopeFlags)
    output: Print = Output.TABLE


@gang.command("list")
@with_flags
def list_gangs(flags: GangFlags) -> None:
    """Print a line per gang: the members that it needs and has, and why it waits."""
    live = read_objects(flags.files, flags.kubeconfig, flags.context, flags.scope)
    gangs = [one for one in _summaries(flags, live) if _is_selected(one, flags, live)]
    if flags.output is not Output.TABLE:
        print_data({"gangs": [_as_data(one) for one in gangs]}, flags.output)
        return
    rows = []
    for one in gangs:
        why = "; ".join(text for text in (one.why, *one.warnings) if text)
        numbers = (one.min_member, one.present, one.bound, one.running)
        place = "-" if one.queue_position is None else str(one.queue_position)
        rows.append((one.gang, one.phase or "-", *map(str, numbers), one.mode or "-", place, why))
    headers = ("GANG", "PHASE", "NEEDS", "THERE", "BOUND", "RUNNING", "MODE", "QUEUE", "WHY")
    print_with_reasons(console(), headers, rows, "there are no gangs")


@gang.command("show")
@with_flags
def show_gang(
    name: Annotated[
        str, typer.Argument(help="Name of the gang (namespace/name); the namespace is optional.")
    ],
    flags: GangFlags,
) -> None:
    """Print one gang with all its members."""
    live = read_objects(flags.files, flags.kubeconfig, flags.context, flags.scope)
    gangs = {one.gang: one for one in _summaries(flags, live)}
    one = gangs[flags.scope.gang_name(name, gangs, live.namespace, "gang show")]
    if flags.output is not Output.TABLE:
        print_data(_as_data(one), flags.output)
        return
    printer = console()
    printer.print(
        f"{one.gang}: needs {one.min_member} of {one.total}, there {one.present}, "
        f"bound {one.bound}, running {one.running}; {one.mode or 'no mode'}, "
        f"{one.match_policy or 'no match policy'}, waits {one.wait_seconds:g} s"
    )
    if len(one.group) > 1:
        printer.print(f"starts together with {', '.join(g for g in one.group if g != one.gang)}")
    for text in filter(None, (one.queue_reason, one.why, *one.warnings)):
        printer.print(text, markup=False)
    for layer in one.network:
        printer.print(_layer_text(layer), markup=False)
    headers = ("POD", "STATE", "PHASE", "NODE", *(("DOMAIN",) if one.network else ()), "WHY")
    rows = []
    for member in one.members:
        cells = [member.pod, member.state, member.phase or "-", member.node or "-"]
        domain = [member.domain or "-"] if one.network else []
        rows.append((*cells, *domain, member.why))
    print_with_reasons(printer, headers, rows, "it has no members")


def _layer_text(layer: LayerSummary) -> str:
    """Return a line such as ``BlockLayer (MustGather): s0/b3 8, s0/b4 2``."""
    rules = [layer.strategy] if layer.strategy else []
    if layer.pod_count_multiple > 1:
        rules.append(f"multiples of {layer.pod_count_multiple}")
    counts = ", ".join(f"{name} {count}" for name, count in layer.domains.items())
    words = f" ({', '.join(rules)})" if rules else ""
    return f"{layer.layer}{words}: {counts or 'no pods yet'}"


def _is_selected(one: GangSummary, flags: GangFlags, live: LiveObjects) -> bool:
    """Return whether a gang is in the namespace and one of its pods has the labels."""
    scope = flags.scope
    if scope.namespace and one.gang.partition("/")[0] != scope.namespace:
        return False
    if not scope.selector:
        return True
    selected = scope.keys(live.objects)
    return any(member.pod in selected for member in one.members)


def _summaries(flags: GangFlags, live: LiveObjects) -> list[GangSummary]:
    objects = live.objects
    gangs = gang_summaries(objects, _defaults(flags.config))
    if is_live(flags.files, flags.kubeconfig, flags.context):
        return gangs  # the scheduler of the cluster reports why they wait
    has_nodes = any(isinstance(obj, Node) for obj in objects)
    waiting = {
        one.gang: pods
        for one in gangs
        if (has_nodes or not one.why) and (pods := _members_without_node(one))
    }
    if not waiting:
        return gangs
    groups = list(waiting.values())
    explained = explain_pods(
        objects,
        configuration=_with_gangs(flags.config),
        gates=_GATES,
        groups=groups,
        forecasts=False,
    )
    by_gang = dict(zip(waiting, explained, strict=True))
    return [_with_reason(one, by_gang.get(one.gang)) for one in gangs]


def _members_without_node(gang: GangSummary) -> list[str]:
    """Return the members without a node of a gang that lacks members on nodes."""
    if gang.bound >= gang.min_member:
        return []
    return [member.pod for member in gang.members if not member.node]


def _with_reason(one: GangSummary, member: Explanation | None) -> GangSummary:
    """Return the gang with the reason for which a member waits, if it was explained."""
    if member is None:
        return one
    if member.victims:
        pods = pluralized_names(member.victims, "pod", SHOWN)
        return replace(one, why=f"nothing: it starts after the preemption of {pods}")
    if member.verdict in ("placed", "fits"):
        return replace(one, why="nothing: it starts when a scheduler looks at it")
    return replace(one, why=why_in_short(member))


def _with_gangs(config: str) -> KubeSchedulerConfiguration:
    """Return the configuration; by default the shipped profile, for either schedulerName."""
    configuration = read_configuration(config or "koordinator")
    if config:
        return configuration
    (shipped,) = configuration.profiles
    names = ("default-scheduler", shipped.scheduler_name)
    return replace(configuration, profiles=tuple(replace(shipped, scheduler_name=n) for n in names))


def _defaults(config: str) -> GangDefaults:
    """Return the defaults of gangs from the first profile of the configuration."""
    profile = next(iter(read_configuration(config).profiles), None)
    for given in profile.plugin_config if profile else ():
        if given.name == "Coscheduling":
            args = decode_args(CoschedulingArgs, dict(given.args), "Coscheduling", str(config))
            return GangDefaults(args.default_timeout.total_seconds(), args.default_match_policy)
    return GangDefaults()


def _as_data(one: GangSummary) -> dict[str, object]:
    data: dict[str, object] = msgspec.to_builtins(one)
    return data
