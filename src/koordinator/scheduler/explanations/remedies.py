"""Remedies for pending pods; those marked sufficient have been tried on the state.

The order is from cheap to expensive: wait for terminating pods, change a node, end or preempt pods,
add a node.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace as replaced

import numpy as np
from msgspec.structs import replace

from koordinator.api.kubescheduler.gates import DRA_EXTENDED_RESOURCE
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordinator.domain.reserve_pod import display_name
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.text import listed
from koordinator.scheduler.contract import ActivePlugin, Refusal, plugins_with
from koordinator.scheduler.explanations.explanation import Remedy
from koordinator.scheduler.explanations.gangs import all_fit, nodes_for_all
from koordinator.scheduler.explanations.gangs import together as as_one
from koordinator.scheduler.explanations.obstacles import Cause, Way
from koordinator.scheduler.explanations.pods import (
    FIT,
    SHORT,
    changed_for_refusals,
    changed_pods,
    pods_using_holds,
    smaller_pod,
    smaller_request_remedy,
    smaller_requests,
)
from koordinator.scheduler.explanations.question import Question
from koordinator.scheduler.explanations.sentences import reported_in
from koordinator.scheduler.explanations.victims import (
    budgets_against,
    candidates,
    ended_resizes,
    is_pinned,
)
from koordinator.scheduler.post_filter import ClassedPod
from koordinator.scheduler.preemption.single_node import minimal
from koordinator.scheduler.snapshot import PlacedPod, PodClass, Snapshot

TRIED = 3  # nearest nodes on which removing pods is tried
SELECTING = "NodeAffinity"
HARD = "DoNotSchedule"
LEAVE_MORE = "leave-more"  # depends on measured usage, not tried
REPORT = "report"  # depends on what koordlet will report, not tried
HIGHEST_OF_USERS = 1_000_000_000  # highest value of a user's PriorityClass
NAMED = 3  # nodes or pods listed in a text


def remedies(question: Question, gang: Sequence[ClassedPod] = ()) -> Iterator[Remedy]:
    """Yield remedies, cheapest first, then combinations if no single one suffices.

    ``gang`` are the unplaced members including the pod: a remedy for the pod alone does not suffice
    then.
    """

    def named(one: Remedy) -> Remedy:
        """Return a remedy that changes a member of a gang with the name of the member."""
        if not gang or one.kind not in ("change-pod", "ask-less"):
            return one
        return replace(one, text=f"for {question.pod.key}: {one.text}")

    # Refusals of the pod as a whole (quota, gang) and rejections by nodes must both be remedied, so
    # a remedy for one of them suffices only if the other does not apply.
    refused = [*_for_refusals(question, gang)]
    if len(gang) > 1:
        rest = [
            *map(named, changed_for_refusals(question)),
            *(map(named, _for_nodes(question)) if _is_rejected(question) else ()),
        ]
        nodes = [*nodes_for_all(question, gang)] if _is_rejected(question) else []
        same = {"add-node"} if nodes else set()
        alone = [replace(one, sufficient=False) for one in rest if one.kind not in same]
        for_pod = [*nodes, *alone]
        changed: list[Remedy] = []
    else:
        changed = [*map(named, changed_for_refusals(question))]
        nodes = for_pod = [*map(named, _for_nodes(question))] if _is_rejected(question) else []
    yield from (*refused, *changed, *for_pod)
    if any(one.sufficient and one.kind != "ask-less" for one in (*refused, *changed, *for_pod)):
        return
    steps = _steps_for_refusals(question, gang)
    if not steps:
        if not gang:
            yield from _raised_with_fewer_pods(question)
        return
    if _is_rejected(question) and not (nodes and nodes[0].kind not in (LEAVE_MORE, REPORT)):
        return
    if not _is_rejected(question) and gang and not all_fit(question, gang):
        return
    more = nodes[0] if nodes else Remedy(kind="together", text="")
    text = "; and ".join(filter(None, (*steps, more.text)))
    if text != refused[0].text:
        yield Remedy(kind="together", text=f"together: {text}", nodes=more.nodes, pods=more.pods)


def limited_together(question: Question, gang: Sequence[ClassedPod]) -> Question:
    """Return the question with what refuses the unplaced members of a gang together.

    A limit may admit the next member, and not all of them.
    """
    if len(gang) <= 1:
        return question
    snapshot = Snapshot(question.state)
    known = {name for cause in question.obstacles.refusals for name in cause.plugins}
    more = []
    for active in plugins_with(question.profile.pre_filter, "relaxed_limits"):
        if active.name in known:
            continue
        answers = (active.plugin.prefilter(snapshot, w) for w in _wholes(question, gang, active))
        refusal = next((answer for answer in answers if isinstance(answer, Refusal)), None)
        if refusal is not None:
            more.append(Cause(active.name, refusal.reason))
    if not more:
        return question
    refusals = (*question.obstacles.refusals, *more)
    return replaced(question, obstacles=replaced(question.obstacles, refusals=refusals))


def _is_rejected(question: Question) -> bool:
    return bool(question.obstacles.rejected.all())


def _wholes(question: Question, gang: Sequence[ClassedPod], active: ActivePlugin) -> list[PodClass]:
    """Return the pod class for a plugin to admit: the pod, or all unplaced members as one.

    There is one per limit of the plugin, of the members that it counts.  It has the labels of a
    member with the fewest limits, so that no other limit is applied to all of them.
    """
    if len(gang) <= 1:
        return [question.pod_class]
    snapshot, by_limit = Snapshot(question.state), dict[Hashable, list[ClassedPod]]()
    limits: list[tuple[Sequence[Hashable], ClassedPod]] = [
        (active.plugin.limit_keys(snapshot, member[1]), member)
        if "limit_keys" in active.has
        else ([None], member)
        for member in gang
    ]
    for keys, member in sorted(limits, key=lambda each: len(each[0])):
        for key in keys:
            by_limit.setdefault(key, []).append(member)
    return [question.state.classes.of(as_one(members)) for members in by_limit.values()]


def _for_nodes(question: Question) -> Iterator[Remedy]:
    """Yield remedies for all rejections by nodes."""
    yield from _waiting(question)
    yield from ended_resizes(question)
    gate = [*_by_gate(question)]
    yield from gate
    selected, others = _ways_by_selection(question)
    changes = [
        *_changed_nodes(question, selected),
        *_changed_objects(question),
        *changed_pods(question, selected),
        *pods_using_holds(question),
        *_fewer_pods(question),
    ]
    changes += [*_changed_nodes(question, others), *changed_pods(question, others)]
    yield from changes or _changed_nodes_with_fewer_pods(question)
    yield from [*_reduced_amounts(question)] or smaller_requests(question)
    if not gate and not is_pinned(question.pod_class, question.state.objects):
        yield from [*_one_node_more(question)] or _larger_node(question)
    yield from _more_left_by_others(question)
    yield from _missing_reports(question)


def _for_refusals(question: Question, gang: Sequence[ClassedPod]) -> Iterator[Remedy]:
    """Yield the remedies of plugins that refuse the pod as a whole.

    One suffices if it is that of each refusal: of two plugins that miss the same volume.
    """
    steps = [*_refusal_remedies(question, gang)]
    texts = [text for text, helps in steps if helps]
    enough = len(texts) == len(question.obstacles.refusals) and len(set(texts)) == 1
    enough = enough and not _is_rejected(question)
    if enough and len(gang) > 1:
        enough = all_fit(question, gang)
    for text, helps in dict.fromkeys(steps):
        yield Remedy(kind="refusal", text=text, sufficient=enough and helps)


def _steps_for_refusals(question: Question, gang: Sequence[ClassedPod]) -> list[str]:
    """Return remedies for all refusals; none if one of them has no remedy."""
    steps = [text for text, helps in _refusal_remedies(question, gang) if helps]
    return [*dict.fromkeys(steps)] if len(steps) == len(question.obstacles.refusals) else []


def _refusal_remedies(question: Question, gang: Sequence[ClassedPod]) -> Iterator[tuple[str, bool]]:
    """Yield the remedy of each refusal, and whether it suffices."""
    for cause in question.obstacles.refusals:
        for active in question.profile.pre_filter:
            if active.name in cause.plugins and "remedy" in active.has:
                text, helps = _admitting(question, active, _wholes(question, gang, active))
                if text:
                    yield text, helps
                    break


def _admitting(
    question: Question, active: ActivePlugin, wholes: Sequence[PodClass]
) -> tuple[str, bool]:
    """Return the change after which a plugin admits all these, and whether it suffices.

    Changes for several of them suffice if their limits, raised together, admit all.  A change
    counts for those after it.
    """
    snapshot = Snapshot(question.state)
    if len(wholes) == 1:
        text, helps = active.plugin.remedy(snapshot, wholes[0])
        return text, helps
    steps: list[tuple[str, bool]] = []
    with ExitStack() as relaxed:
        for whole in wholes:
            text, helps = active.plugin.remedy(snapshot, whole)
            if text:
                steps.append((text, helps))
                relaxed.enter_context(active.plugin.relaxed_limits(snapshot, whole))
        answered = [active.plugin.prefilter(snapshot, whole) for whole in wholes]
    enough = all(helps for _, helps in steps)
    if len(steps) > 1:
        enough = enough and not any(isinstance(answer, Refusal) for answer in answered)
    return "; and ".join(text for text, _ in steps), enough


def _raised_with_fewer_pods(question: Question) -> Iterator[Remedy]:
    """Yield raised limits combined with pods that must end."""
    refusing = {name for cause in question.obstacles.refusals for name in cause.plugins}
    for active in plugins_with(question.profile.pre_filter, "relaxed_limits"):
        if active.name not in refusing:
            continue
        with active.plugin.relaxed_limits(Snapshot(question.state), question.pod_class) as text:
            for row in question.resolvable_rows(TRIED) if text else ():
                leaving = _leaving(question, row)
                keys = [placed.key for placed in leaving]
                if leaving and question.starts(question.pod, row, keys):
                    node = question.state.nodes.names[row]
                    ended = f"{node} takes it when {_ended(question, leaving)}"
                    yield Remedy(
                        kind="together",
                        text=f"together: {text}; and {ended}",
                        nodes=(node,),
                        pods=tuple(display_name(placed.pod) for placed in leaving),
                    )
                    return


def _waiting(question: Question) -> Iterator[Remedy]:
    """Yield a node that the pod fits on once terminating pods have ended."""
    for row in question.resolvable_rows(TRIED):
        pods = question.state.pods.on_row[row].values()
        going = [p for p in pods if p.pod.metadata.deletion_timestamp is not None]
        if going and _takes_without(question, row, going):
            node = question.state.nodes.names[row]
            text = f"wait: {node} takes it when {_listed(going)} {_have(going)} terminated"
            yield _remedy(question, "wait", text, (node,), going)
            return


def _ways_by_selection(question: Question) -> tuple[list[Way], list[Way]]:
    """Return the sets of causes of nodes that the pod selects, and of other nodes."""
    selected = [way for way in question.obstacles.ways if all(c.plugin != SELECTING for c in way)]
    return selected, [way for way in question.obstacles.ways if way not in selected]


def _changed_nodes(question: Question, ways: Sequence[Way]) -> Iterator[Remedy]:
    """Yield changes of nodes by an operator that suffice."""
    if _counts_nodes(question):
        return
    names = question.state.nodes.names
    for way in ways:
        plugins = sorted({cause.plugin for cause in way})
        relieved = question.assuming(plugins)
        alike: dict[str, list[int]] = {}
        for row in question.nearest(question.obstacles.only(way), NAMED):
            node_remedies = [question.node_remedy(name, row) for name in plugins]
            if all(node_remedies) and relieved.takes_without(row, ()):
                text = _all_of(node_remedies)
                alike.setdefault(text.replace(names[row], "\0"), []).append(row)
        for pattern, rows in alike.items():
            first, *others = (names[row] for row in rows)
            more = f", or the same on {' or '.join(others)}" if others else ""
            yield _remedy(
                question, "change-node", pattern.replace("\0", first) + more, (first, *others)
            )


def _changed_objects(question: Question) -> Iterator[Remedy]:
    """Yield, for each of the nearest nodes, the first change of objects that suffices there."""
    for plugin in sorted({cause.plugin for cause in question.obstacles.decisive}):
        for row in question.nearest(question.obstacles.rows, TRIED):
            changes = question.object_remedies(plugin, row)
            change = next((one for one in changes if question.takes_after(row, one)), None)
            if change is not None:
                yield Remedy(
                    kind="change-object",
                    text=change.text,
                    sufficient=not question.obstacles.refusals,
                    nodes=(question.state.nodes.names[row],),
                    pods=change.pods,
                )


def _all_of(steps: Sequence[str]) -> str:
    """Join steps, leaving out those contained in others."""
    whole = [one for one in steps if not any(one != other and one in other for other in steps)]
    return " and ".join(dict.fromkeys(whole))


def _counts_nodes(question: Question) -> bool:
    """Return whether labels and taints decide which nodes count for spread constraints."""
    return any(
        one.when_unsatisfiable == HARD for one in question.pod.spec.topology_spread_constraints
    )


def _changed_nodes_with_fewer_pods(question: Question) -> Iterator[Remedy]:
    """Yield a change of a near node that suffices together with fewer pods."""
    if _counts_nodes(question):
        return
    for index in question.order[:TRIED].tolist():
        row = int(question.obstacles.rows[index])
        plugins = {cause.plugin for cause in question.obstacles.against(index)}
        node_remedies = {name: question.node_remedy(name, row) for name in sorted(plugins)}
        steps = {name: text for name, text in node_remedies.items() if text}
        leaving = _leaving(question.assuming(steps), row) if steps else ()
        if leaving:
            first = _all_of(list(steps.values()))
            text = f"{first}, then it takes the pod when {_ended(question, leaving)}"
            yield _remedy(
                question, "change-node", text, (question.obstacles.names[index],), leaving
            )
            return


def _fewer_pods(question: Question) -> Iterator[Remedy]:
    """Yield the node that must lose the fewest pods, and how to remove them."""
    best: tuple[PlacedPod, ...] = ()
    for row in question.resolvable_rows(TRIED):
        leaving = _leaving(question, row)
        if leaving and (not best or _price(question, leaving) < _price(question, best)):
            best = leaving
    if not best:
        return
    node = question.state.nodes.names[best[0].row]
    top, own = max(placed.priority for placed in best), question.pod.spec.priority or 0
    text = f"{node} takes it when {_ended(question, best)}"
    them = "them" if len(best) > 1 else "that pod"
    # Preemption respects budgets only if it finds other victims.
    anyway = " in spite of that" if budgets_against(question, best) else ""
    remedy = _remedy(question, "fewer-pods", text, (node,), best)
    # If their end relieves a quota as well, the pod does not preempt them: its quota refuses it.
    relieves = remedy.sufficient and question.obstacles.refusals
    if relieves or not _can_be_preempted(question, best):
        kind = "fewer-pods"
    elif top >= own:
        text += f"; with a priority above {top} (it has {own}) it could preempt {them}{anyway}"
        kind = "fewer-pods"
    else:
        never = question.pod.spec.preemption_policy == "Never"
        may = ", but its preemptionPolicy is Never" if never else f": it may preempt {them}{anyway}"
        text += f"; its priority is higher{may}"
        kind = "preempt"
    yield replace(remedy, kind=kind, text=text)


def _can_be_preempted(question: Question, pods: Sequence[PlacedPod]) -> bool:
    """Return whether the pod could preempt these with a priority available to users."""
    preempting = plugins_with(question.profile.post_filter, "may_preempt")
    return any(
        all(active.plugin.may_preempt(question.pod, placed) for placed in pods)
        for active in preempting
    ) and all(placed.priority < HIGHEST_OF_USERS for placed in pods)


def _reduced_amounts(question: Question) -> Iterator[Remedy]:
    """Yield the free amounts of a node that lacks nothing but amounts."""
    obstacles, shortages = question.obstacles, question.shortages
    for index in question.order[_offers_some(question)[question.order]][:TRIED].tolist():
        short = question.shortfall_of(index)
        if any(cause.reason.removeprefix(SHORT) not in short for cause in obstacles.against(index)):
            continue  # a reservation of the pod compensates, but has too little of other resources
        wanted = dict(zip(shortages.names, shortages.requested.tolist(), strict=True))
        left = {name: wanted[name] - n for name, n in short.items()}
        row = int(obstacles.rows[index])
        pod = smaller_pod(question.pod, left) if left and min(left.values()) > 0 else None
        if pod is not None and question.takes(pod, row, ()):
            yield smaller_request_remedy(question, pod, left, row)
            return


def _offers_some(question: Question) -> BoolArray:
    """Return ``(n,)``: nodes that lack only amounts and have something free of each.

    Reservations of the pod count as combined.  Resources that no node has are excluded: smaller
    requests cannot help.
    """
    obstacles, shortages = question.obstacles, question.shortages
    amounts = {(FIT, f"{SHORT}{name}") for name in shortages.names}
    others = np.array(
        [(cause.plugin, cause.reason) not in amounts for cause in obstacles.causes], bool
    )
    none_left = (shortages.amounts > 0) & (shortages.amounts >= shortages.requested)
    offers: BoolArray = ~obstacles.blocked[others].any(axis=0) & ~none_left.any(axis=1)
    return offers


def _one_node_more(question: Question) -> Iterator[Remedy]:
    """Yield a node to add a copy of: the pod fits on it when it is empty."""
    for row in question.resolvable_rows(TRIED):
        if not question.left_when_empty(row) and not question.is_blocked_cluster_wide(row):
            node = question.state.nodes.names[row]
            text = f"add a node like {node}: an empty one takes it"
            yield _remedy(question, "add-node", text, (node,))
            return


def _larger_node(question: Question) -> Iterator[Remedy]:
    """Yield the size that a node must have, if no existing one is large enough."""
    for index in question.order[:TRIED].tolist():
        row, node = int(question.obstacles.rows[index]), question.obstacles.names[index]
        sizes: dict[str, str] = {}
        for plugin in sorted({cause.plugin for cause in question.obstacles.against(index)}):
            size = question.required_size(plugin, row)
            if size:
                sizes[plugin] = size
        if (
            sizes
            and not question.assuming(sizes).left_when_empty(row)
            and not question.is_blocked_cluster_wide(row)
        ):
            text = f"add a node like {node}, but with {' and '.join(sizes.values())}"
            yield _remedy(question, "add-node", text, (node,))
            return


def _by_gate(question: Question) -> Iterator[Remedy]:
    """Yield the feature gate with which devices of a DeviceClass serve a resource.

    With the gate on, claims serve nodes without the resource.
    """
    short = {c.reason.removeprefix(SHORT) for c in question.obstacles.decisive if c.plugin == FIT}
    for column, device_class in question.pod_class.served:
        name = question.state.axis.names[column]
        if name not in short or question.state.nodes.allocatable[column].any():
            continue
        text = (
            f"enable the feature gate {DRA_EXTENDED_RESOURCE} of the API server and the "
            f"scheduler: then devices of DeviceClass {device_class} serve {name}"
        )
        yield Remedy(kind="enable-gate", text=text, tried=False)


def _more_left_by_others(question: Question) -> Iterator[Remedy]:
    """Explain the origin of batch and mid resources, which do not depend on node size."""
    short = {cause.reason.removeprefix(SHORT) for cause in question.obstacles.decisive}
    names = [name for name in (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY) if name in short]
    if not names:
        return
    state, listed = question.state, " and ".join(names)
    columns = [state.axis.index(name) for name in names]
    if not state.nodes.allocatable[columns].any():
        text = (
            f"no node offers {listed}: koord-manager computes them where colocation is enabled "
            "(ConfigMap slo-controller-config, colocation-config: enable) and koordlet reports use"
        )
    else:
        text = (
            f"{listed}: koord-manager offers what more important pods leave unused, so that there "
            "is more when those use less or end"
        )
    yield Remedy(kind=LEAVE_MORE, text=text, sufficient=False, tried=False)


def _missing_reports(question: Question) -> Iterator[Remedy]:
    """Name the nodes on which koordlet has to run; its report is not known in advance."""
    obstacles = question.obstacles
    silent: dict[str, BoolArray] = {}
    for index, cause in enumerate(obstacles.causes):
        kind = reported_in(cause.reason) if cause in obstacles.decisive else ""
        if kind:
            silent[kind] = silent.get(kind, False) | obstacles.blocked[index]
    for kind, mask in silent.items():
        nodes = [obstacles.names[place] for place in mask.nonzero()[0].tolist()]
        text = f"run koordlet on {listed(nodes, NAMED)}: it reports the {kind} of its node"
        yield Remedy(kind=REPORT, text=text, sufficient=False, tried=False)


def _remedy(
    question: Question,
    kind: str,
    text: str,
    nodes: tuple[str, ...],
    pods: Sequence[PlacedPod] = (),
) -> Remedy:
    enough, tried = not question.obstacles.refusals, True
    if not enough and pods:
        enough = question.starts(question.pod, pods[0].row, [placed.key for placed in pods])
    elif not enough and kind == "add-node":
        admitted = question.admitted_with_node(question.state.nodes.rows[nodes[0]])
        enough, tried = bool(admitted), admitted is not None
    elif not enough:  # changed nodes are not tried with all plugins
        tried = False
    return Remedy(
        kind=kind,
        text=text,
        sufficient=enough,
        tried=tried,
        nodes=nodes,
        pods=tuple(display_name(placed.pod) for placed in pods),
    )


def _leaving(question: Question, row: int) -> tuple[PlacedPod, ...]:
    """Return the fewest, least important pods of a row to remove; empty if that cannot help."""
    enough = _enough(question, row)
    budgets = list(question.state.objects.all(PodDisruptionBudget))

    def fits(removed: Sequence[PlacedPod]) -> bool:
        return _takes_without(question, row, removed)

    return minimal("", enough, budgets, fits).victims if enough else ()


def _enough(question: Question, row: int) -> list[PlacedPod]:
    """Return the least important pods of a row that suffice; empty if none do.

    Reservations of the pod are removed only if it can run without them.
    """
    wanted = dict(question.pod_class.demand)

    def size(placed: PlacedPod) -> float:
        return sum(amount / wanted[c] for c, amount in placed.pod_class.demand if wanted.get(c))

    pods = sorted(candidates(question, row), key=lambda p: (p.priority, -size(p), p.key))
    reserved = question.reserved(row)
    for kept in (reserved, *({key} for key in sorted(reserved)), ()) if reserved else ((),):
        leaving = [placed for placed in pods if placed.key not in kept]
        sufficient = _shortest(leaving, lambda removed: _takes_without(question, row, removed))
        if sufficient:
            return sufficient
    return []


def _shortest(
    pods: Sequence[PlacedPod], fits: Callable[[Sequence[PlacedPod]], bool]
) -> list[PlacedPod]:
    """Return the shortest sufficient prefix of the list, by bisection."""
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


def _takes_without(question: Question, row: int, removed: Sequence[PlacedPod]) -> bool:
    return question.takes_without(row, [placed.key for placed in removed])


def _price(question: Question, pods: Sequence[PlacedPod]) -> tuple[bool, int, int]:
    is_protected = bool(budgets_against(question, pods))
    return is_protected, max(placed.priority for placed in pods), len(pods)


def _ended(question: Question, pods: Sequence[PlacedPod]) -> str:
    """Return the condition that pods have ended, with budgets that block their eviction."""
    budgets = budgets_against(question, pods)
    return f"{_listed(pods)} {_have(pods)} ended" + (f" ({budgets})" if budgets else "")


def _listed(pods: Sequence[PlacedPod]) -> str:
    return listed([display_name(placed.pod) for placed in pods], NAMED)


def _have(pods: Sequence[PlacedPod]) -> str:
    return "has" if len(pods) == 1 else "have"
