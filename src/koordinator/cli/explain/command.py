"""Command ``koord explain``: reasons for which pods wait, and remedies."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from dataclasses import replace as replaced
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from koordinator.api.conditions import find_condition
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, is_terminal
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
from koordinator.cli.explain.text import (
    moves_of,
    nothing_waits,
    print_explanations,
    print_gangs,
    print_moves,
    print_overview,
)
from koordinator.cli.help_pages import HelpGroup
from koordinator.cli.input.configuration import (
    Config,
    PluginFiles,
    extender_connector,
    plugins_for,
    read_configuration,
)
from koordinator.cli.input.live import LiveObjects, is_live, read_gates, readable_objects
from koordinator.cli.input.scope import ScopeFlags, parse_time
from koordinator.cli.output import Output, print_data, print_indented, warn
from koordinator.domain.gangs import gang_id, group_reference
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.explanations import CauseReport, Explanation, by_cause
from koordinator.scheduler.explanations.sentences import sentence
from koordinator.scheduler.features.explanations.explainer import PLACED
from koordinator.simulator.explanations import explain_pods, explain_waiting
from koordinator.simulator.manifests.input_objects import InputObjects
from koordinator.simulator.manifests.reader import read_input_objects

SCHEDULED = "PodScheduled"
UNSEEN = "no scheduler has reported on it yet"
LIMITED = (
    "this user may not read {}: pods are explained by their conditions, without running a scheduler"
)


def explain_by_conditions(
    objects: Sequence[KubeObject], keys: Sequence[str] = ()
) -> list[Explanation]:
    """Explain pods by their conditions; without keys, explain all that wait.

    Raises InputError for an unknown key.
    """
    pods = {obj.key: obj for obj in objects if isinstance(obj, Pod)}
    unknown = [key for key in keys if key not in pods]
    if unknown:
        known = ", ".join(sorted(pods)[:10]) or "(there are no pods)"
        problem = f"there is no pod {unknown[0]}, or it may not be read; must be one of {known}"
        raise InputError(problem, source="explain pod")
    wanted = (
        [pods[key] for key in keys]
        if keys
        else [pod for pod in pods.values() if not pod.spec.node_name and not is_terminal(pod)]
    )
    return [_explained_by_condition(pod) for pod in wanted]


def _explained_by_condition(pod: Pod) -> Explanation:
    if is_terminal(pod):
        summary = f"it has ended: {pod.status.phase}"
        return Explanation(pod=pod.key, verdict="ended", summary=summary, node=pod.spec.node_name)
    if pod.spec.node_name:
        summary = f"it runs on {pod.spec.node_name}"
        return Explanation(pod=pod.key, verdict="placed", summary=summary, node=pod.spec.node_name)
    condition = find_condition(pod.status.conditions, SCHEDULED)
    message = (condition.message or condition.reason) if condition is not None else ""
    gates = " ".join(gate.name for gate in pod.spec.scheduling_gates)
    if gates:
        message = f"waiting for scheduling gates: {gates}"
    reason = message or UNSEEN
    cause = CauseReport(plugin="", reason=reason, sentence=sentence(reason))
    return Explanation(
        pod=pod.key, verdict="waits", summary=reason, causes=(cause,), last_message=message
    )


IS_PLACED = ("placed", "ended")  # verdicts on members of gangs that no longer wait

explain = typer.Typer(
    cls=HelpGroup, help="Explain why pods wait, and what would help.", no_args_is_help=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainFlags:
    """Objects to explain, current time, and scheduler configuration."""

    files: ManifestFiles = None
    config: Config = ""
    plugin: PluginFiles = None
    now: Now = ""
    kubeconfig: Annotated[
        str,
        typer.Option(help="Read the cluster of this kubeconfig file; nothing is written to it."),
    ] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = ""
    feature_gates: SchedulerGates = ""
    kube_version: KubeVersionFlag = ""
    strict: Strict = False
    scope: ScopeFlags = field(default_factory=ScopeFlags)
    output: Print = Output.TABLE

    def read(self) -> LiveObjects:
        """Return the objects of manifests and cluster.  Raises InputError if neither is given."""
        self.scope.check()
        given = read_input_objects(self.files, strict=self.strict) if self.files else InputObjects()
        live = LiveObjects(given.objects, "")
        if is_live(self.files, self.kubeconfig, self.context):
            live = readable_objects(
                given.objects, self.kubeconfig, self.context, self.scope.namespace
            )
        if live.has_no_nodes:
            names = ", ".join(kind.PLURAL for kind in live.unreadable[:3])
            warn(LIMITED.format(names))
        return replaced(live, objects=given.completed(warn, live.objects))

    def gates(self) -> FeatureGates:
        """Return the gates at the level of the cluster or the flag.  Raises InputError."""
        return read_gates(
            self.feature_gates,
            self.kube_version,
            kubeconfig=self.kubeconfig,
            context=self.context,
            is_live=is_live(self.files, self.kubeconfig, self.context),
        )

    @property
    def now_s(self) -> float:
        """Time of ``--now``, by default of the system clock.  Raises InputError."""
        return parse_time(self.now) if self.now else SystemClock().now_s()


@explain.command("pods")
@with_flags
def explain_all(flags: ExplainFlags) -> None:
    """Show the reasons for which pods wait, the number of pods for each, and what would help.

    The scheduler is run on a copy of the cluster until it can place no more pods; the pods that
    wait then are explained.
    """
    live = flags.read()
    explained = _waiting(flags, live)
    total = sum(len(pods) for _, pods in explained)
    gangs = _gangs(live.objects)
    if flags.output is not Output.TABLE:
        causes = [_cause(*each, gangs) for each in by_cause(explained)]
        print_data({"waiting": total, "causes": causes}, flags.output)
    elif not explained:
        _print_that_nothing_waits(flags, live)
    else:
        print_overview(explained, total, gangs)


def _print_that_nothing_waits(flags: ExplainFlags, live: LiveObjects) -> None:
    asks_cluster = is_live(flags.files, flags.kubeconfig, flags.context)
    objects = filter(flags.scope.contains, live.objects)
    text = nothing_waits(objects, is_live=asks_cluster)
    print_indented((0, line) for line in text.splitlines())


def _waiting(flags: ExplainFlags, live: LiveObjects) -> list[tuple[Explanation, tuple[str, ...]]]:
    """Explain one pod of each kind that waits and is selected, with the names of all of them."""
    configuration = read_configuration(flags.config, plugins=flags.plugin)
    explained: list[tuple[Explanation, tuple[str, ...]]]
    if live.has_no_nodes:
        explained = [(one, (one.pod,)) for one in explain_by_conditions(live.objects)]
    else:
        with ExitStack() as cleanup:
            explained = explain_waiting(
                live.objects,
                configuration,
                now_s=flags.now_s,
                out_of_tree=plugins_for(configuration, flags.plugin),
                source=flags.config,
                gates=flags.gates(),
                connect=extender_connector(cleanup),
            )
    if not flags.scope.is_narrow:
        return explained
    selected = flags.scope.keys(live.objects)
    kept = [(one, tuple(pod for pod in pods if pod in selected)) for one, pods in explained]
    return [(replace(one, pod=pods[0]), pods) for one, pods in kept if pods]


@explain.command("pod")
@with_flags
def explain_pod(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of pods (namespace/name) or reservations (reservation/name). Default: all "
            "waiting pods."
        ),
    ] = None,
    *,
    audit: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files or folders of the descheduler's --audit-dir; show also why the named pods "
            "were moved or stayed. Repeatable."
        ),
    ] = None,
    flags: ExplainFlags,
) -> None:
    """Explain what blocks a pod on which nodes, what would help, and why it was moved.

    The scheduler is run on a copy of the cluster until it can place no more pods; the pods that
    wait then are explained.
    """
    live = flags.read()
    objects = live.objects
    keys = flags.scope.full_names(names or (), live.namespace)
    if flags.scope.is_narrow and not keys:
        keys = sorted(
            obj.key
            for obj in objects
            if isinstance(obj, Pod)
            and not obj.spec.node_name
            and flags.scope.contains(obj)
            and not is_terminal(obj)
        )
        if not keys:
            print_indented([(0, "no pod waits")])
            return
    moves = moves_of(audit or (), keys if audit else (), objects)
    existing = {obj.key for obj in objects if isinstance(obj, Pod)}
    deleted = [key for key in keys if moves.get(key) and key not in existing]
    remaining = [key for key in keys if key not in deleted]
    explained: list[Explanation] = []
    # Without nodes (a user may read only pods), the conditions that the scheduler wrote are all
    # there is to explain.
    if live.has_no_nodes:
        explained = explain_by_conditions(objects, remaining)
    elif remaining or not deleted:
        explained = _explained(objects, remaining, flags)
    if not names:
        explained = [one for one in explained if one.verdict != PLACED]
    if flags.output is not Output.TABLE:
        moved = {"moves": msgspec.to_builtins(moves)} if audit else {}
        print_data({"pods": [_as_data(one) for one in explained], **moved}, flags.output)
        return
    if explained:
        print_explanations(explained)
    elif not deleted:
        _print_that_nothing_waits(flags, live)
    print_moves(moves)


@explain.command("gang")
@with_flags
def explain_gang(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names of gangs (namespace/name). Default: all waiting gangs."),
    ] = None,
    *,
    flags: ExplainFlags,
) -> None:
    """Show how many members of a gang fit, what blocks the others, and what would help."""
    live = flags.read()
    objects = live.objects
    members: dict[str, list[str]] = {}
    for pod, gang in _gangs(objects).items():
        members.setdefault(gang, []).append(pod)
    wanted = [
        flags.scope.gang_name(name, members, live.namespace, "explain gang") for name in names or ()
    ] or list(members)
    pods = {pod.key: pod for pod in objects if isinstance(pod, Pod)}
    groups = [  # pods without a node first
        sorted(members[name], key=lambda key: bool(pods[key].spec.node_name)) for name in wanted
    ]
    if not groups:
        explained = []
    elif live.has_no_nodes:
        explained = explain_by_conditions(objects, [group[0] for group in groups])
    else:
        explained = _explained(objects, (), flags, groups)
    shown = [
        (gang, one)
        for gang, one in zip(wanted, explained, strict=True)
        if names or one.verdict not in IS_PLACED
    ]
    if flags.output is not Output.TABLE:
        data = [{"name": gang, **_as_data(one)} for gang, one in shown]
        print_data({"gangs": data}, flags.output)
    elif shown:
        print_gangs([(gang, len(members[gang]), one) for gang, one in shown])
    else:
        print_indented([(0, "no gang waits")])


def _gangs(objects: Iterable[KubeObject]) -> dict[str, str]:
    """Return the gang of each pod that is in one."""
    return {
        obj.key: gang
        for obj in objects
        if isinstance(obj, Pod) and (gang := gang_id(obj.metadata, group_reference(obj.spec)))
    }


def _explained(
    objects: Sequence[KubeObject],
    keys: Sequence[str],
    flags: ExplainFlags,
    groups: Sequence[Sequence[str]] = (),
) -> list[Explanation]:
    configuration = read_configuration(flags.config, plugins=flags.plugin)
    with ExitStack() as cleanup:
        return explain_pods(
            objects,
            keys,
            configuration,
            now_s=flags.now_s,
            out_of_tree=plugins_for(configuration, flags.plugin),
            source=flags.config,
            gates=flags.gates(),
            connect=extender_connector(cleanup),
            groups=groups,
        )


def _as_data(one: Explanation) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(one)
    return data


def _cause(
    words: str, explained: Sequence[tuple[Explanation, Sequence[str]]], gangs: Mapping[str, str]
) -> dict[str, Any]:
    """Return a line of the overview as data, with the remedies of the first pod."""
    first, _ = max(explained, key=lambda each: len(each[1]))
    pods = [pod for _, pods in explained for pod in pods]
    return {
        "cause": words,
        "plugins": sorted({cause.plugin for one, _ in explained for cause in one.causes}),
        "pods": pods,
        "gangs": dict(Counter(gangs[pod] for pod in pods if pod in gangs)),
        "explained": first.pod,
        "remedies": [msgspec.to_builtins(one) for one in first.remedies],
    }
