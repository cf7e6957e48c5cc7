"""``koord explain``: why pods wait, and what would help."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import (
    Files,
    GatesOfScheduler,
    KubeVersionFlag,
    Now,
    Print,
    Strict,
)
from koordinator.cli.explain.move_history import moves_of, print_moves
from koordinator.cli.explain.text import (
    by_cause,
    print_explanations,
    print_gangs,
    print_overview,
)
from koordinator.cli.help_pages import HelpGroup
from koordinator.cli.input.configuration import Config, plugins_for, read_configuration
from koordinator.cli.input.extender_connector import extender_connector
from koordinator.cli.input.input_objects import InputObjects
from koordinator.cli.input.live import LiveObjects, is_live, read_gates, readable_objects
from koordinator.cli.input.manifests import read_input_objects
from koordinator.cli.input.scope import ScopeFlags
from koordinator.cli.input.times import parse_time
from koordinator.cli.output import Output, console, print_data, warn
from koordinator.domain.gangs import gang_id, group_reference
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.explain import CauseReport, Explanation
from koordinator.scheduler.explain.sentences import sentence
from koordinator.scheduler.features.explanation.explainer import PLACED
from koordinator.scheduler.ingest import is_over
from koordinator.simulator.explanations import explain_pods, explain_waiting

SCHEDULED = "PodScheduled"
UNSEEN = "no scheduler has written anything about it yet"
LIMITED = (
    "this user may not read {}: told is what the scheduler wrote into the pods, and nothing is "
    "tried"
)


def explain_by_conditions(
    objects: Sequence[KubeObject], keys: Sequence[str] = ()
) -> list[Explanation]:
    """Explain pods by their conditions; without keys all that wait.

    Raises InputError for a key that no pod has.
    """
    pods = {obj.key: obj for obj in objects if isinstance(obj, Pod)}
    unknown = [key for key in keys if key not in pods]
    if unknown:
        known = ", ".join(sorted(pods)[:10]) or "nothing: there are no pods"
        problem = f"there is no pod {unknown[0]}, or it may not be read; must be one of {known}"
        raise InputError(problem, source="explain pod")
    wanted = [pods[key] for key in keys] if keys else _waiting_pods(pods.values())
    return [_explained_by_condition(pod) for pod in wanted]


def _waiting_pods(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if not pod.spec.node_name and not is_over(pod)]


def _explained_by_condition(pod: Pod) -> Explanation:
    if is_over(pod):
        summary = f"it has ended: {pod.status.phase}"
        return Explanation(pod=pod.key, verdict="ended", summary=summary, node=pod.spec.node_name)
    if pod.spec.node_name:
        summary = f"it runs on {pod.spec.node_name}"
        return Explanation(pod=pod.key, verdict="placed", summary=summary, node=pod.spec.node_name)
    said = next((c for c in pod.status.conditions if c.type == SCHEDULED), None)
    message = (said.message or said.reason) if said is not None else ""
    closed = " ".join(gate.name for gate in pod.spec.scheduling_gates)
    if closed:
        message = f"waiting for scheduling gates: {closed}"
    reason = message or UNSEEN
    cause = CauseReport(plugin="", reason=reason, sentence=sentence(reason))
    return Explanation(
        pod=pod.key, verdict="waits", summary=reason, causes=(cause,), last_message=message
    )


IS_PLACED = ("placed", "ended")  # verdicts on members of gangs that wait no more

explain = typer.Typer(
    cls=HelpGroup, help="Why pods wait, and what would help.", no_args_is_help=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainFlags:
    """What is looked at, as of when, and how a scheduler would see it."""

    files: Files = None
    config: Config = ""
    now: Now = ""
    kubeconfig: Annotated[str, typer.Option(help="Read this cluster; nothing is written.")] = ""
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = ""
    feature_gates: GatesOfScheduler = ""
    kube_version: KubeVersionFlag = ""
    strict: Strict = False
    scope: ScopeFlags = field(default_factory=ScopeFlags)
    output: Print = Output.TABLE

    def read(self) -> LiveObjects:
        """Return what manifests and the cluster have.  Raises InputError if neither is given."""
        self.scope.check()
        given = read_input_objects(self.files, strict=self.strict) if self.files else InputObjects()
        live = LiveObjects(given.objects, "")
        if is_live(self.files, self.kubeconfig, self.context):
            live = readable_objects(
                given.objects, self.kubeconfig, self.context, self.scope.namespace
            )
        if live.lacks_nodes:
            names = ", ".join(kind.PLURAL for kind in live.unreadable[:3])
            warn(LIMITED.format(names))
        return replaced(live, objects=given.completed(live.objects))

    def gates(self) -> FeatureGates:
        """Return the gates, at the level of the cluster or of the flag.  Raises InputError."""
        return read_gates(
            self.feature_gates,
            self.kube_version,
            kubeconfig=self.kubeconfig,
            context=self.context,
            is_live=is_live(self.files, self.kubeconfig, self.context),
        )

    @property
    def now_s(self) -> float:
        """The time it is, or is said to be.  Raises InputError."""
        return parse_time(self.now) if self.now else SystemClock().now_s()


@explain.command("pods")
@with_flags
def explain_all(flags: ExplainFlags) -> None:
    """Tell for which reasons pods wait, how many for each, and what would help.

    The scheduler is run on a copy until nothing moves any more; what waits then is looked at.
    """
    live = flags.read()
    told = _waiting(flags, live)
    total = sum(len(pods) for _, pods in told)
    gangs = _gangs(live.objects)
    if flags.output is not Output.TABLE:
        causes = [_cause(*each, gangs) for each in by_cause(told)]
        print_data({"waiting": total, "causes": causes}, flags.output)
    elif not told:
        console().print("no pod waits")
    else:
        print_overview(console(), told, total, gangs)


def _waiting(flags: ExplainFlags, live: LiveObjects) -> list[tuple[Explanation, tuple[str, ...]]]:
    """Explain one of each kind of pods that wait and are meant, with the names of all of them."""
    configuration = read_configuration(flags.config)
    told: list[tuple[Explanation, tuple[str, ...]]]
    if live.lacks_nodes:
        told = [(one, (one.pod,)) for one in explain_by_conditions(live.objects)]
    else:
        with ExitStack() as cleanup:
            told = explain_waiting(
                live.objects,
                configuration,
                now_s=flags.now_s,
                out_of_tree=plugins_for(configuration),
                source=flags.config,
                gates=flags.gates(),
                connect=extender_connector(cleanup),
            )
    if not flags.scope.is_narrow:
        return told
    meant = flags.scope.keys(live.objects)
    kept = [(one, tuple(pod for pod in pods if pod in meant)) for one, pods in told]
    return [(replace(one, pod=pods[0]), pods) for one, pods in kept if pods]


@explain.command("pod")
@with_flags
def explain_pod(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="namespace/name or reservation/name, repeatable; default: all that wait."
        ),
    ] = None,
    *,
    audit: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files or folders of the descheduler's --audit-dir: tell also why the named pods "
            "were moved, or stayed; repeatable."
        ),
    ] = None,
    flags: ExplainFlags,
) -> None:
    """Tell what blocks a pod, where, and what would unblock it; and why it was moved.

    The scheduler is run on a copy until nothing moves any more; what waits then is explained.
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
            and flags.scope.holds(obj)
            and not is_over(obj)
        )
        if not keys:
            console().print("no pod waits")
            return
    moves = moves_of(audit or (), keys if audit else (), objects)
    there = {obj.key for obj in objects if isinstance(obj, Pod)}
    gone = [key for key in keys if moves.get(key) and key not in there]
    left = [key for key in keys if key not in gone]
    explained: list[Explanation] = []
    if live.lacks_nodes:
        explained = explain_by_conditions(objects, left)
    elif left or not gone:
        explained = _explained(objects, left, flags)
    if not names:
        explained = [one for one in explained if one.verdict != PLACED]
    if flags.output is not Output.TABLE:
        told = {"moves": msgspec.to_builtins(moves)} if audit else {}
        print_data({"pods": [_as_data(one) for one in explained], **told}, flags.output)
        return
    if explained:
        print_explanations(console(), explained)
    elif not gone:
        console().print("no pod waits")
    print_moves(console(), moves)


@explain.command("gang")
@with_flags
def explain_gang(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="namespace/name of gangs, repeatable; default: all that wait."),
    ] = None,
    *,
    flags: ExplainFlags,
) -> None:
    """Tell how many members of a gang find places, what blocks the rest, and what would help."""
    live = flags.read()
    objects = live.objects
    members: dict[str, list[str]] = {}
    for pod, gang in _gangs(objects).items():
        members.setdefault(gang, []).append(pod)
    wanted = flags.scope.full_names(names, live.namespace) if names else list(members)
    for name in wanted:
        if name not in members:
            known = ", ".join(sorted(members)[:10]) or "none: no pod is in a gang"
            raise InputError(f"no gang {name}; known gangs: {known}", source="explain gang")
    pods = {pod.key: pod for pod in objects if isinstance(pod, Pod)}
    asked = {
        next((key for key in members[name] if not pods[key].spec.node_name), members[name][0]): name
        for name in wanted
    }
    if live.lacks_nodes:
        explained = explain_by_conditions(objects, list(asked))
    else:
        explained = _explained(objects, list(asked), flags) if asked else []
    told = [(asked[one.pod], one) for one in explained if names or one.verdict not in IS_PLACED]
    if flags.output is not Output.TABLE:
        data = [{"name": gang, **_as_data(one)} for gang, one in told]
        print_data({"gangs": data}, flags.output)
    elif told:
        print_gangs(console(), [(gang, len(members[gang]), one) for gang, one in told])
    else:
        console().print("no gang waits")


def _gangs(objects: Iterable[KubeObject]) -> dict[str, str]:
    """Return the gang of each pod that is in one."""
    return {
        obj.key: gang
        for obj in objects
        if isinstance(obj, Pod) and (gang := gang_id(obj.metadata, group_reference(obj.spec)))
    }


def _explained(
    objects: Sequence[KubeObject], keys: Sequence[str], flags: ExplainFlags
) -> list[Explanation]:
    configuration = read_configuration(flags.config)
    with ExitStack() as cleanup:
        return explain_pods(
            objects,
            keys,
            configuration,
            now_s=flags.now_s,
            out_of_tree=plugins_for(configuration),
            source=flags.config,
            gates=flags.gates(),
            connect=extender_connector(cleanup),
        )


def _as_data(one: Explanation) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(one)
    return data


def _cause(
    words: str, told: Sequence[tuple[Explanation, Sequence[str]]], gangs: Mapping[str, str]
) -> dict[str, Any]:
    """Return a line of the overview as data: the remedies are those of the first pod."""
    first, _ = max(told, key=lambda each: len(each[1]))
    pods = [pod for _, pods in told for pod in pods]
    return {
        "cause": words,
        "plugins": sorted({cause.plugin for one, _ in told for cause in one.causes}),
        "pods": pods,
        "gangs": dict(Counter(gangs[pod] for pod in pods if pod in gangs)),
        "explained": first.pod,
        "remedies": [msgspec.to_builtins(one) for one in first.remedies],
    }
