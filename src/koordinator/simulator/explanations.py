"""Explanations of pending pods: the scheduler runs to a fixed point, then explains them."""

import difflib
import heapq
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from koordinator.api.dynamic_resources import ResourceClaimTemplate
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.reservation import Reservation
from koordinator.domain.dynamic_resources.extended_resources import NOT_MADE, template_to_create
from koordinator.domain.gangs import gang_id, group_reference
from koordinator.domain.reserve_pod import OVER, display_name
from koordinator.foundation.clock import to_datetime, to_epoch_s
from koordinator.foundation.errors import InputError, NotFoundError
from koordinator.foundation.text import pluralized_names
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.explanations import Explanation, Forecast
from koordinator.scheduler.extenders import Connect
from koordinator.scheduler.features.explanations.explainer import PLACED, explain, key_of, kind_of
from koordinator.scheduler.loop import Bound, Evicted, Outcome, SchedulerOptions
from koordinator.simulator.embedded import STOCK, Embedded, without_binding

ENDED, LOST = "ended", "lost"
SHOWN = 3  # nodes or pods in a sentence

NO_KNOWN_END = "no running pod has a known end"


def explain_pods(
    objects: Sequence[KubeObject],
    keys: Sequence[str] = (),
    configuration: KubeSchedulerConfiguration = STOCK,
    *,
    now_s: float = 0.0,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
    connect: Connect | None = None,
    groups: Sequence[Sequence[str]] = (),
    forecasts: bool = True,
) -> list[Explanation]:
    """Explain pods by key, ``namespace/name``; without keys all pending pods.

    Of each of the ``groups`` of keys, the first pod that waits is explained, or else the first.  A
    pod given by key, or explained for a group, also has a forecast of its start, unless
    ``forecasts`` is false; each forecast schedules a cluster of its own.  ``connect`` connects to
    the extenders of the configuration, which never bind here.
    Raises InputError for a key without a pod.
    """
    specs = tuple(out_of_tree)

    def world() -> tuple[Embedded, list[Outcome]]:
        return _scheduled_world(
            objects,
            configuration,
            now_s=now_s,
            out_of_tree=specs,
            source=source,
            gates=gates,
            connect=connect,
        )

    now, outcomes = world()
    state, waiting = now.state, _waiting(now)
    bound = {outcome.pod: outcome.node for outcome in outcomes if isinstance(outcome, Bound)}
    victims: dict[str, list[str]] = {}  # by pod or gang
    for outcome in outcomes:
        if isinstance(outcome, Evicted):
            victims.setdefault(_unit_of(now, outcome.by), []).append(outcome.pod)
    explanations = []
    pending = set(waiting)
    chosen = [next((key for key in group if key in pending), group[0]) for group in groups]
    for name in keys or chosen or waiting:
        key = key_of(now.scheduler.handle, name)
        if key not in state.pods.by_key and key not in state.unbound:
            names = [display_name(state.unbound[key][0]) for key in waiting]
            explanations.append(_untracked(now, name, names))
            continue
        one = _with_templates(now, key, explain(now.scheduler.handle, key))
        if one.verdict == PLACED and key in bound:
            group = next((group for group in groups if key in group), ())
            nodes = {bound[member] for member in group if member in bound}
            preempted = tuple(sorted(victims.get(_unit_of(now, key), ())))
            one = replace(one, summary=_would_start(one.node, nodes, preempted), victims=preempted)
        elif one.queue is not None and one.verdict != PLACED and forecasts and (keys or groups):
            one = replace(one, forecast=forecast(world()[0], key))
        explanations.append(one)
    return explanations


def _unit_of(world: Embedded, key: str) -> str:
    """Return the gang of a pod, or its key if it has none."""
    placed, unbound = world.state.pods.by_key.get(key), world.state.unbound.get(key)
    pod = placed.pod if placed is not None else unbound[0] if unbound is not None else None
    return (pod and gang_id(pod.metadata, group_reference(pod.spec))) or key


def _would_start(node: str, nodes: Collection[str], victims: Sequence[str]) -> str:
    """Return the places of a pod, or of all pods of a gang, and the victims."""
    text = f"it would be placed on {node} now"
    if len(nodes) > 1:
        text = f"its pods would be placed on {pluralized_names(sorted(nodes), 'node', SHOWN)} now"
    if not victims:
        return text
    return f"{text}, after the preemption of {pluralized_names(victims, 'pod', SHOWN)}"


def explain_waiting(
    objects: Sequence[KubeObject],
    configuration: KubeSchedulerConfiguration = STOCK,
    *,
    now_s: float = 0.0,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
    connect: Connect | None = None,
) -> list[tuple[Explanation, tuple[str, ...]]]:
    """Explain one pod of each group of similar pending pods; return it with all their names.

    A group has the members of a gang, or pods that no plugin can distinguish.
    """
    now, _ = _scheduled_world(
        objects,
        configuration,
        now_s=now_s,
        out_of_tree=tuple(out_of_tree),
        source=source,
        gates=gates,
        connect=connect,
    )
    kinds: dict[Hashable, list[str]] = {}
    for key in _waiting(now):
        kinds.setdefault(kind_of(now.scheduler.handle, key), []).append(key)
    names = {key: display_name(now.state.unbound[key][0]) for key in _waiting(now)}
    return [
        (
            _with_templates(now, alike[0], explain(now.scheduler.handle, alike[0])),
            tuple(names[key] for key in alike),
        )
        for alike in kinds.values()
    ]


def _with_templates(world: Embedded, key: str, explanation: Explanation) -> Explanation:
    """Return the explanation with the missing claim templates, which schedulers do not watch."""
    if key not in world.state.unbound:
        return explanation
    pod = world.state.unbound[key][0]
    namespace = pod.metadata.namespace
    templates = [one.metadata for one in world.cluster.list(ResourceClaimTemplate).items]
    template_keys = {(meta.namespace, meta.name) for meta in templates}
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_template_name
        if name is None or (namespace, name) in template_keys:
            continue
        other_namespaces = sorted(space for space, other in template_keys if other == name)
        hint = (
            f" (there is one of this name in namespace {other_namespaces[0]})"
            if other_namespaces
            else ""
        )
        missing = f"there is no ResourceClaimTemplate {name} in namespace {namespace}"
        reason, helps = NOT_MADE.format(entry.name), template_to_create(namespace, name)
        explanation = replace(
            explanation,
            causes=tuple(
                replace(cause, sentence=missing) if cause.reason == reason else cause
                for cause in explanation.causes
            ),
            remedies=tuple(
                replace(
                    one,
                    text=one.text.replace(
                        helps, f"create the ResourceClaimTemplate {namespace}/{name}{hint}"
                    ),
                )
                for one in explanation.remedies
            ),
        )
    return explanation


def _scheduled_world(
    objects: Sequence[KubeObject],
    configuration: KubeSchedulerConfiguration,
    *,
    now_s: float,
    out_of_tree: tuple[PluginSpec[Any], ...],
    source: str,
    gates: FeatureGates,
    connect: Connect | None,
) -> tuple[Embedded, list[Outcome]]:
    """Return a world scheduled to its fixed point, and the outcomes."""
    one = Embedded(
        without_binding(configuration),
        now_s=now_s,
        options=SchedulerOptions(
            initial_backoff_s=configuration.pod_initial_backoff_seconds,
            max_backoff_s=configuration.pod_max_backoff_seconds,
        ),
        out_of_tree=out_of_tree,
        source=source,
        gates=gates,
        connect=connect,
    )
    one.load(objects)
    return one, one.run_to_fixed_point()


def _waiting(world: Embedded) -> list[str]:
    """Return the keys of the pods without a node, and of those that wait for their permit."""
    state, bindings = world.state, world.scheduler.handle.bindings
    return sorted(
        key for key in state.unbound if key not in state.pods.by_key or bindings.is_waiting(key)
    )


def _untracked(world: Embedded, name: str, waiting: Sequence[str]) -> Explanation:
    """Explain a pod or reservation that the scheduler does not track.

    Raises InputError if none has this name.
    """
    kind, _, rest = name.partition("/")
    try:
        if kind == "reservation":
            phase = world.cluster.get(Reservation, rest).status.phase
            if phase in OVER:
                return Explanation(pod=name, verdict=ENDED, summary=f"it has ended: {phase}")
            summary = "no profile has the plugin Reservation, so it is not scheduled"
            return Explanation(pod=name, verdict=LOST, summary=summary)
        pod = world.cluster.get(Pod, rest, kind)
    except NotFoundError:
        accepted = ", ".join(waiting[:10]) or "none"
        known = [pod.key for pod in world.cluster.list(Pod).items]
        known += [
            f"reservation/{one.metadata.name}" for one in world.cluster.list(Reservation).items
        ]
        meant = _near(name, known)
        problem = f"there is no {'reservation' if kind == 'reservation' else 'pod'} {name}{meant}"
        problem = f"{problem}; waiting pods: {accepted}"
        raise InputError(problem, source="explain pod") from None
    node = pod.spec.node_name
    if is_terminal(pod):
        summary = f"it has ended: {pod.status.phase}"
        return Explanation(pod=name, verdict=ENDED, summary=summary, node=node)
    summary = f"it is bound to node {node}, which does not exist"
    return Explanation(pod=name, verdict=LOST, summary=summary, node=node)


def _near(name: str, known: Sequence[str]) -> str:
    """Return a suggestion of similar names; empty without similar ones."""
    own = name.partition("/")[2]
    same = [each for each in known if each.partition("/")[2] == own]
    suggestions = [*same, *difflib.get_close_matches(name, known, n=3)]
    listed = ", ".join(dict.fromkeys(suggestions[:3]))
    return f" (did you mean {listed}?)" if listed else ""


# -- forecast --------------------------------------------------------------------------------


def forecast(world: Embedded, key: str) -> Forecast:
    """Advance a world from its fixed point until the pod is bound; changes the world."""
    leaving = [
        (max(ends_s, world.clock.now_s()), pod.metadata.namespace, pod.metadata.name)
        for pod in world.cluster.list(Pod).items
        if (ends_s := _ends_s(pod)) is not None
    ]
    if not leaving:
        return Forecast(why=NO_KNOWN_END)
    heapq.heapify(leaving)
    while leaving:
        now_s, namespace, name = heapq.heappop(leaving)
        world.clock.advance_to(max(now_s, world.clock.now_s()))
        try:
            world.cluster.delete(Pod, name, namespace, grace_period_s=0)
        except NotFoundError:
            continue
        if leaving and leaving[0][0] <= now_s:
            continue  # several pods end at the same time
        for outcome in world.run_to_fixed_point():
            if isinstance(outcome, Bound) and outcome.pod == key:
                at = to_datetime(world.clock.now_s()).isoformat().replace("+00:00", "Z")
                return Forecast(at=at, node=outcome.node)
    return Forecast(why="it stays pending after all pods with a known end")


def _ends_s(pod: Pod) -> float | None:
    """Return the end of a pod on a node; None if unknown."""
    if not pod.spec.node_name:
        return None
    ends: list[float] = []
    if pod.metadata.deletion_timestamp is not None:
        ends.append(to_epoch_s(pod.metadata.deletion_timestamp))
    if pod.spec.active_deadline_seconds is not None and pod.status.start_time is not None:
        ends.append(to_epoch_s(pod.status.start_time) + pod.spec.active_deadline_seconds)
    return min(ends, default=None)
