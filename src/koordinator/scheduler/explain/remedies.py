"""What would let a pod start.  Whatever is said to be enough has been tried on the state.

From the cheapest to the dearest: wait for pods that go anyway, change a node's facts, let pods end
(or preempt them), add a node.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from koordinator.api.kubescheduler.gates import DRA_EXTENDED_RESOURCE
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordinator.domain.reserve_pod import spoken_name
from koordinator.foundation.arrays import BoolArray
from koordinator.scheduler.contract import plugins_with
from koordinator.scheduler.explain.changed_pods import (
    asking_less,
    changed_for_refusals,
    changed_pods,
    smaller_pod,
    told_as_less,
)
from koordinator.scheduler.explain.explanation import Remedy
from koordinator.scheduler.explain.gangs import Member, all_fit, nodes_for_all
from koordinator.scheduler.explain.gangs import together as as_one
from koordinator.scheduler.explain.obstacles import Way
from koordinator.scheduler.explain.pinned import is_pinned
from koordinator.scheduler.explain.pods import FIT, SHORT
from koordinator.scheduler.explain.question import Question
from koordinator.scheduler.explain.victims import budgets_against, candidates
from koordinator.scheduler.preemption import minimal
from koordinator.scheduler.snapshot import PlacedPod, PodClass, Snapshot

TRIED = 3  # nearest nodes on which pods are removed in thought
SELECTING = "NodeAffinity"
HARD = "DoNotSchedule"
LEAVE_MORE = "leave-more"  # depends on what is measured: not tried
HIGHEST_OF_USERS = 1_000_000_000  # what a PriorityClass may have
NAMED = 3  # nodes or pods that a text names before it only counts


def remedies(asked: Question, gang: Sequence[Member] = ()) -> Iterator[Remedy]:
    """Yield what would help, the cheapest first; then what would together where nothing does.

    ``gang`` are the members without a place, the pod among them: then what helps the pod alone is
    not enough.
    """
    whole = _whole(asked, gang)
    refused = [*_for_refusals(asked, whole, gang)]
    if len(gang) > 1:
        rest = [*changed_for_refusals(asked), *(_for_nodes(asked) if _is_rejected(asked) else ())]
        nodes = [*nodes_for_all(asked, gang)] if _is_rejected(asked) else []
        same = {"add-node"} if nodes else set()
        alone = [replace(one, sufficient=False) for one in rest if one.kind not in same]
        found = [*nodes, *alone]
        changed: list[Remedy] = []
    else:
        changed = [*changed_for_refusals(asked)]
        nodes = found = [*_for_nodes(asked)] if _is_rejected(asked) else []
    yield from (*refused, *changed, *found)
    if any(one.sufficient and one.kind != "ask-less" for one in (*refused, *changed, *found)):
        return
    steps = _steps_for_refusals(asked, whole)
    if not steps:
        if not gang:
            yield from _raised_with_fewer_pods(asked, whole)
        return
    if _is_rejected(asked) and not (nodes and nodes[0].kind != LEAVE_MORE):
        return
    if not _is_rejected(asked) and gang and not all_fit(asked, gang):
        return
    more = nodes[0] if nodes else Remedy(kind="together", text="")
    text = "; and ".join(filter(None, (*steps, more.text)))
    if text != refused[0].text:
        yield Remedy(kind="together", text=f"together: {text}", nodes=more.nodes, pods=more.pods)


def _is_rejected(asked: Question) -> bool:
    return bool(asked.found.rejected.all())


def _whole(asked: Question, gang: Sequence[Member]) -> PodClass:
    """Return what has to be let in: the pod, or all members that find no place as one."""
    if len(gang) <= 1:
        return asked.pod_class
    return asked.state.classes.of(as_one(gang))


def _for_nodes(asked: Question) -> Iterator[Remedy]:
    """Yield what would help against all that nodes have against the pod."""
    yield from _waiting(asked)
    gate = [*_by_gate(asked)]
    yield from gate
    meant, others = _ways_by_selection(asked)
    changes = [*_changed_nodes(asked, meant), *changed_pods(asked, meant), *_fewer_pods(asked)]
    changes += [*_changed_nodes(asked, others), *changed_pods(asked, others)]
    yield from changes or _changed_nodes_with_fewer_pods(asked)
    yield from [*_asking_less(asked)] or asking_less(asked)
    if not gate and not is_pinned(asked.pod_class, asked.state.objects):
        yield from [*_one_node_more(asked)] or _larger_node(asked)
    yield from _more_left_by_others(asked)


def _for_refusals(asked: Question, whole: PodClass, gang: Sequence[Member]) -> Iterator[Remedy]:
    """Ask the plugins that refuse the pod as a whole."""
    enough = len(asked.found.refusals) == 1 and not _is_rejected(asked)
    if enough and len(gang) > 1:
        enough = all_fit(asked, gang)
    for text, helps in _asked_of_refusing(asked, whole):
        yield Remedy(kind="refusal", text=text, sufficient=enough and helps)


def _steps_for_refusals(asked: Question, whole: PodClass) -> list[str]:
    """Return what helps against all refusals; none if nothing is known against one of them."""
    steps = [text for text, helps in _asked_of_refusing(asked, whole) if helps]
    return steps if len(steps) == len(asked.found.refusals) else []


def _asked_of_refusing(asked: Question, whole: PodClass) -> Iterator[tuple[str, bool]]:
    """Yield what each refusal would need, and whether it would go then."""
    for cause in asked.found.refusals:
        for active in asked.profile.pre_filter:
            if active.name in cause.plugins and "remedy" in active.has:
                text, helps = active.plugin.remedy(Snapshot(asked.state), whole)
                if text:
                    yield text, helps
                    break


def _raised_with_fewer_pods(asked: Question, whole: PodClass) -> Iterator[Remedy]:
    """Look for pods that have to end beside higher limits of what refuses the pod as a whole."""
    refusing = {name for cause in asked.found.refusals for name in cause.plugins}
    for active in plugins_with(asked.profile.pre_filter, "relaxed_limits"):
        if active.name not in refusing:
            continue
        with active.plugin.relaxed_limits(Snapshot(asked.state), whole) as text:
            for row in asked.hopeful_rows(TRIED) if text else ():
                leaving = _leaving(asked, row)
                keys = [placed.key for placed in leaving]
                if leaving and asked.starts(asked.pod, row, keys):
                    node = asked.state.nodes.names[row]
                    ended = f"{node} takes it when {_ended(asked, leaving)}"
                    yield Remedy(
                        kind="together",
                        text=f"together: {text}; and {ended}",
                        nodes=(node,),
                        pods=tuple(spoken_name(placed.pod) for placed in leaving),
                    )
                    return


def _waiting(asked: Question) -> Iterator[Remedy]:
    """Look for a node that pods are leaving already."""
    for row in asked.hopeful_rows(TRIED):
        pods = asked.state.pods.on_row[row].values()
        going = [p for p in pods if p.pod.metadata.deletion_timestamp is not None]
        if going and _takes_without(asked, row, going):
            node = asked.state.nodes.names[row]
            text = f"wait: {node} takes it when {_listed(going)} {_have(going)} gone"
            yield _remedy(asked, "wait", text, (node,), going)
            return


def _ways_by_selection(asked: Question) -> tuple[list[Way], list[Way]]:
    """Return the ways out on nodes that the pod selects, and those on others."""
    meant = [way for way in asked.found.ways if all(c.plugin != SELECTING for c in way)]
    return meant, [way for way in asked.found.ways if way not in meant]


def _changed_nodes(asked: Question, ways: Sequence[Way]) -> Iterator[Remedy]:
    """Look for nodes that what an operator can change about them would be enough for."""
    if _counts_nodes(asked):
        return
    names = asked.state.nodes.names
    for way in ways:
        plugins = sorted({cause.plugin for cause in way})
        relieved = asked.assuming(plugins)
        alike: dict[str, list[int]] = {}
        for row in asked.nearest(asked.found.only(way), NAMED):
            told = [asked.node_remedy(name, row) for name in plugins]
            if all(told) and relieved.takes_without(row, ()):
                text = _all_of(told)
                alike.setdefault(text.replace(names[row], "\0"), []).append(row)
        for pattern, rows in alike.items():
            first, *others = (names[row] for row in rows)
            more = f", or the same on {' or '.join(others)}" if others else ""
            yield _remedy(
                asked, "change-node", pattern.replace("\0", first) + more, (first, *others)
            )


def _all_of(steps: Sequence[str]) -> str:
    """Join steps of which one may be a part of another."""
    whole = [one for one in steps if not any(one != other and one in other for other in steps)]
    return " and ".join(dict.fromkeys(whole))


def _counts_nodes(asked: Question) -> bool:
    """Return whether labels and taints decide which nodes count, and so what is against them."""
    return any(one.when_unsatisfiable == HARD for one in asked.pod.spec.topology_spread_constraints)


def _changed_nodes_with_fewer_pods(asked: Question) -> Iterator[Remedy]:
    """Look for a near node that an operator's change and fewer pods are enough for together."""
    if _counts_nodes(asked):
        return
    for index in asked.order[:TRIED].tolist():
        row = int(asked.found.rows[index])
        plugins = {cause.plugin for cause in asked.found.against(index)}
        told = {name: asked.node_remedy(name, row) for name in sorted(plugins)}
        steps = {name: text for name, text in told.items() if text}
        leaving = _leaving(asked.assuming(steps), row) if steps else ()
        if leaving:
            first = _all_of(list(steps.values()))
            text = f"{first}, then it takes it when {_ended(asked, leaving)}"
            yield _remedy(asked, "change-node", text, (asked.found.names[index],), leaving)
            return


def _fewer_pods(asked: Question) -> Iterator[Remedy]:
    """Look for the node that has to lose the fewest pods, and say how they could be lost."""
    best: tuple[PlacedPod, ...] = ()
    for row in asked.hopeful_rows(TRIED):
        leaving = _leaving(asked, row)
        if leaving and (not best or _price(asked, leaving) < _price(asked, best)):
            best = leaving
    if not best:
        return
    node = asked.state.nodes.names[best[0].row]
    top, own = max(placed.priority for placed in best), asked.pod.spec.priority or 0
    text = f"{node} takes it when {_ended(asked, best)}"
    # Preemption spares what budgets cover only where other pods do.
    anyway = " all the same" if budgets_against(asked, best) else ""
    if not _can_be_preempted(asked, best):
        kind = "fewer-pods"
    elif top >= own:
        text += f"; a priority above {top} (it has {own}) would let it preempt{anyway}"
        kind = "fewer-pods"
    else:
        never = asked.pod.spec.preemption_policy == "Never"
        text += "; it is more important"
        text += ", but its preemptionPolicy is Never" if never else f": it may preempt{anyway}"
        kind = "preempt"
    yield _remedy(asked, kind, text, (node,), best)


def _can_be_preempted(asked: Question, pods: Sequence[PlacedPod]) -> bool:
    """Return whether the pod could preempt these with a priority that users may give it."""
    asking = plugins_with(asked.profile.post_filter, "may_preempt")
    return any(
        all(active.plugin.may_preempt(asked.pod, placed) for placed in pods) for active in asking
    ) and all(placed.priority < HIGHEST_OF_USERS for placed in pods)


def _asking_less(asked: Question) -> Iterator[Remedy]:
    """Look for a node that lacks nothing but amounts, and say what it has left."""
    found, lacks = asked.found, asked.lacks
    for index in asked.order[_offers_some(asked)[asked.order]][:TRIED].tolist():
        short = asked.lacking(index)
        if any(cause.reason.removeprefix(SHORT) not in short for cause in found.against(index)):
            continue  # what is reserved for the pod makes up for it, but is too little of others
        wanted = dict(zip(lacks.names, lacks.asked.tolist(), strict=True))
        left = {name: wanted[name] - n for name, n in short.items()}
        row = int(found.rows[index])
        pod = smaller_pod(asked.pod, left) if left and min(left.values()) > 0 else None
        if pod is not None and asked.takes(pod, row, ()):
            yield told_as_less(asked, pod, left, row)
            return


def _offers_some(asked: Question) -> BoolArray:
    """Return which nodes lack nothing but amounts, and have something of each, ``(n,)``.

    What is reserved for the pod counts as if it could be used together.  Of what no node has,
    nobody can ask for less.
    """
    found, lacks = asked.found, asked.lacks
    amounts = {(FIT, f"{SHORT}{name}") for name in lacks.names}
    others = np.array([(cause.plugin, cause.reason) not in amounts for cause in found.causes], bool)
    none_left = (lacks.lacking > 0) & (lacks.lacking >= lacks.asked)
    offers: BoolArray = ~found.blocked[others].any(axis=0) & ~none_left.any(axis=1)
    return offers


def _one_node_more(asked: Question) -> Iterator[Remedy]:
    """Look for a node of which a second one, without pods, would take the pod."""
    for row in asked.hopeful_rows(TRIED):
        if not asked.left_when_empty(row) and not asked.is_blocked_cluster_wide(row):
            node = asked.state.nodes.names[row]
            text = f"add a node like {node}: an empty one takes it"
            yield _remedy(asked, "add-node", text, (node,))
            return


def _larger_node(asked: Question) -> Iterator[Remedy]:
    """Say how large a node would have to be, where none of those that there are is."""
    for index in asked.order[:TRIED].tolist():
        row, node = int(asked.found.rows[index]), asked.found.names[index]
        sizes: dict[str, str] = {}
        for plugin in sorted({cause.plugin for cause in asked.found.against(index)}):
            size = asked.required_size(plugin, row)
            if size:
                sizes[plugin] = size
        if (
            sizes
            and not asked.assuming(sizes).left_when_empty(row)
            and not asked.is_blocked_cluster_wide(row)
        ):
            text = f"add a node like {node}, but with {' and '.join(sizes.values())}"
            yield _remedy(asked, "add-node", text, (node,))
            return


def _by_gate(asked: Question) -> Iterator[Remedy]:
    """Say where only a feature gate keeps devices of a DeviceClass from serving a resource.

    With the gate on, nodes that have nothing of the resource would not be short of it.
    """
    short = {c.reason.removeprefix(SHORT) for c in asked.found.decisive if c.plugin == FIT}
    for column, device_class in asked.pod_class.served:
        name = asked.state.axis.names[column]
        if name not in short or asked.state.nodes.allocatable[column].any():
            continue
        text = (
            f"switch on the feature gate {DRA_EXTENDED_RESOURCE} of the API server and the "
            f"scheduler: then devices of DeviceClass {device_class} serve {name}"
        )
        yield Remedy(kind="enable-gate", text=text, tried=False)


def _more_left_by_others(asked: Question) -> Iterator[Remedy]:
    """Say where batch and mid resources come from, which are not a matter of nodes."""
    short = {cause.reason.removeprefix(SHORT) for cause in asked.found.decisive}
    names = [name for name in (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY) if name in short]
    if not names:
        return
    state, listed = asked.state, " and ".join(names)
    columns = [state.axis.index(name) for name in names]
    if not state.nodes.allocatable[columns].any():
        text = (
            f"no node offers {listed}: koord-manager computes them where colocation is on "
            "(ConfigMap slo-controller-config, colocation-config: enable) and koordlet reports use"
        )
    else:
        text = (
            f"{listed}: koord-manager offers what more important pods leave unused, so that there "
            "is more when those use less or end"
        )
    yield Remedy(kind=LEAVE_MORE, text=text, sufficient=False, tried=False)


def _remedy(
    asked: Question,
    kind: str,
    text: str,
    nodes: tuple[str, ...],
    pods: Sequence[PlacedPod] = (),
) -> Remedy:
    enough, tried = not asked.found.refusals, True
    if not enough and pods:
        enough = asked.starts(asked.pod, pods[0].row, [placed.key for placed in pods])
    elif not enough:  # a node that is changed or added is not tried with all plugins
        tried = False
    return Remedy(
        kind=kind,
        text=text,
        sufficient=enough,
        tried=tried,
        nodes=nodes,
        pods=tuple(spoken_name(placed.pod) for placed in pods),
    )


def _leaving(asked: Question, row: int) -> tuple[PlacedPod, ...]:
    """Return the fewest of a row's least important pods that have to go; empty: it is no use."""
    enough = _enough(asked, row)
    budgets = list(asked.state.objects.all(PodDisruptionBudget))

    def fits(gone: Sequence[PlacedPod]) -> bool:
        return _takes_without(asked, row, gone)

    return minimal("", enough, budgets, fits).victims if enough else ()


def _enough(asked: Question, row: int) -> list[PlacedPod]:
    """Return the least important pods of a row whose leaving is enough; empty: none is.

    What is reserved for the pod goes only where the pod can do without it.
    """
    wanted = dict(asked.pod_class.demand)

    def size(placed: PlacedPod) -> float:
        return sum(amount / wanted[c] for c, amount in placed.pod_class.demand if wanted.get(c))

    pods = sorted(candidates(asked, row), key=lambda p: (p.priority, -size(p), p.key))
    reserved = asked.reserved(row)
    for kept in (reserved, *({key} for key in sorted(reserved)), ()) if reserved else ((),):
        leaving = [placed for placed in pods if placed.key not in kept]
        found = _shortest(leaving, lambda gone: _takes_without(asked, row, gone))
        if found:
            return found
    return []


def _shortest(
    pods: Sequence[PlacedPod], fits: Callable[[Sequence[PlacedPod]], bool]
) -> list[PlacedPod]:
    """Return the shortest beginning of the list that is enough to remove, by bisection."""
    if not pods or not fits(pods):
        return []
    low, high = 1, len(pods)
    while low < high:
        middle = (low + high) // 2
        if fits(pods[:middle]):
            high = middle
        else:
            low = middle + 1
    return list(pods[:high])


def _takes_without(asked: Question, row: int, gone: Sequence[PlacedPod]) -> bool:
    return asked.takes_without(row, [placed.key for placed in gone])


def _price(asked: Question, pods: Sequence[PlacedPod]) -> tuple[bool, int, int]:
    is_held = bool(budgets_against(asked, pods))
    return is_held, max(placed.priority for placed in pods), len(pods)


def _ended(asked: Question, pods: Sequence[PlacedPod]) -> str:
    """Return that pods have ended, and which budgets keep them from being evicted."""
    held = budgets_against(asked, pods)
    return f"{_listed(pods)} {_have(pods)} ended" + (f" ({held})" if held else "")


def _listed(pods: Sequence[PlacedPod]) -> str:
    names = [spoken_name(placed.pod) for placed in pods]
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _have(pods: Sequence[PlacedPod]) -> str:
    return "has" if len(pods) == 1 else "have"
