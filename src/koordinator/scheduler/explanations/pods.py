"""Pods as questions: changed, smaller, without constraints."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from koordinator.api.pod import Pod
from koordinator.domain.pod_requests import pod_requests
from koordinator.scheduler.diagnosis import amount_text, quantity
from koordinator.scheduler.explanations.explanation import (
    CauseReport,
    EmptyCluster,
    NearNode,
    Remedy,
)
from koordinator.scheduler.explanations.obstacles import Cause, Way
from koordinator.scheduler.explanations.question import Question
from koordinator.scheduler.explanations.sentences import sentence
from koordinator.scheduler.explanations.victims import ReservedRoom, pending_resizes
from koordinator.scheduler.rules.smaller_pods import asking_at_most, overhead_of

NAMED = 100  # nodes listed per cause
NEAREST = 5  # nodes described
HOMES_TRIED = 8  # nodes tried without their pods
FIT, SHORT = "NodeResourcesFit", "Insufficient "
NO_NODES = "there are no nodes"

TRIED = 3  # nodes per set of causes
MOST = 2  # remedies, nearest nodes first
CANDIDATES = 8  # amounts tried on one node


def causes(question: Question, gates: Sequence[Cause] = ()) -> Iterator[CauseReport]:
    """Yield all causes: independent of nodes first, then decisive ones, then the rest.

    ``gates`` are causes that keep the pod out of the queue.
    """
    obstacles = question.obstacles
    for cause in (*gates, *obstacles.refusals):
        detail = question.refusal_detail(cause.plugins)
        words = sentence(cause.reason)
        yield CauseReport(plugin=cause.plugin, reason=cause.reason, sentence=words, detail=detail)
    if not len(obstacles.rows):
        yield CauseReport(plugin="", reason=NO_NODES, sentence=NO_NODES)
    if not obstacles.rejected.all():
        return  # a node takes the pod, so rejections by others are no cause
    decisive = obstacles.decisive
    alone = obstacles.blocked & (obstacles.blocked.sum(axis=0) == 1)
    reports = []
    room = ReservedRoom(question)
    for index, cause in enumerate(obstacles.causes):
        mask = obstacles.blocked[index]
        detail = question.detail(cause.plugin, int(obstacles.rows[mask.argmax()]))
        words, kept = _reserved(room, cause, mask.nonzero()[0].tolist())
        reports.append(
            CauseReport(
                plugin=cause.plugin,
                reason=cause.reason,
                sentence=words or sentence(cause.reason),
                nodes=int(mask.sum()),
                alone=int(alone[index].sum()),
                decisive=cause in decisive,
                on=tuple(obstacles.names[i] for i in mask.nonzero()[0][:NAMED].tolist()),
                resolvable=bool((mask & ~obstacles.never).any()),
                detail="; ".join(
                    filter(None, (detail, kept, _resizing(question, cause, int(mask.argmax()))))
                ),
            )
        )
    yield from sorted(
        reports, key=lambda one: (not one.decisive, -one.nodes, one.plugin, one.reason)
    )


def _resizing(question: Question, cause: Cause, index: int) -> str:
    """Return the pods that hold more of a short resource because of their resizes."""
    if cause.plugin != FIT or not cause.reason.startswith(SHORT):
        return ""
    row = int(question.obstacles.rows[index])
    return pending_resizes(question, row, cause.reason.removeprefix(SHORT))


def _reserved(room: ReservedRoom, cause: Cause, indices: Sequence[int]) -> tuple[str, str]:
    """Return the sentence about reservations as cause of a shortage, and their amounts."""
    if cause.plugin != FIT or not cause.reason.startswith(SHORT):
        return "", ""
    resource = cause.reason.removeprefix(SHORT)
    kept = room.text(indices[0], resource)
    if not kept or not all(room.is_decisive(index, resource) for index in indices[:NAMED]):
        return "", kept
    if all(room.is_own_unusable(index, resource) for index in indices[:NAMED]):
        return f"the {resource} that it needs is kept by reservations that it may not use", kept
    return f"the {resource} that it needs is kept by reservations for other pods", kept


def nearest_nodes(question: Question) -> Iterator[NearNode]:
    """Yield the nodes that lack the least."""
    obstacles, order = question.obstacles, question.order
    for index in order[:NEAREST].tolist() if obstacles.rejected.all() else ():
        against = obstacles.against(index)
        row = int(obstacles.rows[index])
        details = (question.detail(cause.plugin, row) or cause.reason for cause in against)
        yield NearNode(
            node=obstacles.names[index],
            reasons=tuple(cause.reason for cause in against),
            lacks={n: quantity(n, amount) for n, amount in question.shortfall_of(index).items()},
            hopeless=bool(obstacles.never[index]),
            details=tuple(dict.fromkeys(details)),
        )


def empty_cluster(question: Question) -> EmptyCluster | None:
    """Return whether the pod fits on a node without other pods.

    Return None if too many nodes would have to be tried, if pods on other nodes matter (one node is
    emptied at a time), or if measured usage matters, to which pods contribute.
    """
    question = question.without_nominated_pods()
    obstacles, nodes = question.obstacles, question.state.nodes
    if obstacles.lasting:
        return EmptyCluster(fits=False, why=", ".join(c.reason for c in obstacles.lasting))
    if not len(obstacles.rows):
        return EmptyCluster(fits=False, why=NO_NODES)
    row = question.first_row_when_empty(HOMES_TRIED)
    if row is not None:
        return (
            None
            if question.has_required_pod_affinity
            else EmptyCluster(fits=True, node=nodes.names[row])
        )
    # A demand above the largest allocatable amount explains more than the filters' reasons, which
    # speak of what is free.
    served = {column for column, _ in question.pod_class.served}
    for column, amount in question.pod_class.demand:
        if column in served:
            continue
        name = question.state.axis.names[column]
        most = int(nodes.allocatable[column, obstacles.rows].max())
        if amount > most:
            request, largest = amount_text(name, amount), amount_text(name, most)
            why = f"it requests {request} of {name}; the most that a node has is {largest}"
            return EmptyCluster(fits=False, why=why)
    hopeful = question.resolvable_rows(HOMES_TRIED + 1)
    decisive = obstacles.decisive
    if len(hopeful) > HOMES_TRIED or question.depends_on_others(decisive):
        return None
    lasting = {
        cause.reason
        for index, cause in enumerate(obstacles.causes)
        if obstacles.hopeless[index].any() and cause in decisive
    }
    lasting.update(reason for row in hopeful for reason in question.left_without_others(row))
    return EmptyCluster(fits=False, why=", ".join(sorted(lasting)))


def changed_pods(question: Question, ways: Sequence[Way]) -> Iterator[Remedy]:
    """Yield changes of the pod with which a node rejected for such causes would take it."""
    by_change: dict[str, Remedy] = {}
    for remedy in _by_ways(question, ways):
        by_change.setdefault(remedy.text.rpartition(": ")[0], remedy)
        if len(by_change) == MOST:
            break
    yield from by_change.values()


def pods_using_holds(question: Question) -> Iterator[Remedy]:
    """Yield a change of the pod with which it may use a reservation that it owns."""
    for index in question.order[:TRIED].tolist():
        row = int(question.obstacles.rows[index])
        for text, pod in question.hold_remedies(row):
            if question.takes(pod, row, ()):
                yield _remedy(question, text, row, enough=question.starts(pod, row))
                return


def changed_for_refusals(question: Question) -> Iterator[Remedy]:
    """Yield changes of the pod that satisfy the plugin that refuses it everywhere."""
    refusals, obstacles = question.obstacles.refusals, question.obstacles
    if len(refusals) != 1:
        return
    accepting = obstacles.rows[~obstacles.rejected]
    for plugin in refusals[0].plugins:
        seen: set[str] = set()
        for row in question.nearest(accepting, TRIED):
            for text, pod in question.pod_remedies(plugin, row, question.pod):
                if text not in seen and question.takes(pod, row, {plugin}):
                    seen.add(text)
                    yield _remedy(question, text, row, enough=True)


def smaller_requests(question: Question) -> Iterator[Remedy]:
    """Yield smaller requests with which a node takes the pod, if partitioned amounts are short."""
    for way in question.obstacles.ways:
        plugins = sorted({cause.plugin for cause in way})
        for row in question.nearest(question.obstacles.only(way), TRIED):
            offers = [question.reduced_requests(plugin, row) for plugin in plugins]
            if not all(offers):
                continue
            for amounts in _merged(offers):
                pod = smaller_pod(question.pod, amounts)
                if pod is not None and question.takes(pod, row, plugins):
                    yield smaller_request_remedy(question, pod, amounts, row)
                    return


def smaller_request_remedy(
    question: Question, pod: Pod, amounts: Mapping[str, int], row: int
) -> Remedy:
    """Return the remedy of requesting at most these amounts, as ``pod`` does."""
    spec = question.pod.spec
    wanted = pod_requests(spec)
    reduced = {name: most for name, most in amounts.items() if most < wanted.get(name, 0)}
    overhead = {name: overhead_of(spec, name) for name in reduced}
    listed = " and ".join(
        f"{amount_text(name, most - overhead[name])} of {name}" for name, most in reduced.items()
    )
    besides = " and ".join(f"{amount_text(name, n)} of {name}" for name, n in overhead.items() if n)
    node = question.state.nodes.names[row]
    text = f"request at most {listed}"
    if len(spec.containers) + len(spec.init_containers) > 1:
        text += " in all"
    if besides:
        text += f" beside the overhead of {besides}"
    text += f": {node} has that free"
    return Remedy(kind="ask-less", text=text, sufficient=question.starts(pod, row), nodes=(node,))


def smaller_pod(pod: Pod, amounts: Mapping[str, int]) -> Pod | None:
    """Return the pod with at most these requests; None if impossible or not smaller."""
    spec = asking_at_most(pod.spec, amounts)
    return None if spec is None or spec == pod.spec else replace(pod, spec=spec)


def _by_ways(question: Question, ways: Sequence[Way]) -> Iterator[Remedy]:
    for way in sorted(ways, key=len):
        plugins = sorted({cause.plugin for cause in way})
        for row in question.nearest(question.obstacles.only(way), TRIED):
            for text, pod in _changes(question, plugins, row):
                if question.takes(pod, row, plugins):
                    yield _remedy(question, text, row, enough=question.starts(pod, row))


def _changes(question: Question, plugins: Sequence[str], row: int) -> list[tuple[str, Pod]]:
    """Return changes that all plugins accept, each on top of the previous one."""
    changes = [("", question.pod)]
    for plugin in plugins:
        changes = [
            (f"{before} and {text}" if before else text, changed)
            for before, pod in changes
            for text, changed in question.pod_remedies(plugin, row, pod)
        ]
    return changes


def _remedy(question: Question, text: str, row: int, *, enough: bool) -> Remedy:
    node = question.state.nodes.names[row]
    text = f"{text}: {node} takes it then"
    return Remedy(kind="change-pod", text=text, sufficient=enough, nodes=(node,))


def _merged(offers: Sequence[Sequence[Mapping[str, int]]]) -> Iterator[dict[str, int]]:
    """Yield amounts that all offers allow, largest first."""
    for index in range(min(max(map(len, offers)), CANDIDATES)):
        amounts: dict[str, int] = {}
        for offer in offers:
            for name, most in offer[min(index, len(offer) - 1)].items():
                amounts[name] = min(amounts.get(name, most), most)
        yield amounts
