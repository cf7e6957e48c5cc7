"""Reports about one pod: causes, nearest nodes and the empty cluster."""

from collections.abc import Iterator, Sequence

from koordinator.scheduler.diagnosis import quantity, spoken
from koordinator.scheduler.explain.explanation import CauseReport, EmptyCluster, NearNode
from koordinator.scheduler.explain.obstacles import Cause
from koordinator.scheduler.explain.question import Question
from koordinator.scheduler.explain.reserved_room import ReservedRoom
from koordinator.scheduler.explain.sentences import sentence

NAMED = 100  # nodes listed per cause
NEAREST = 5  # nodes described
HOMES_TRIED = 8  # nodes tried without their pods
FIT, SHORT = "NodeResourcesFit", "Insufficient "
NO_NODES = "there are no nodes"


def causes(question: Question, gates: Sequence[Cause] = ()) -> Iterator[CauseReport]:
    """Yield all causes: independent of nodes first, then decisive ones, then the rest.

    ``gates`` are causes that keep the pod out of the queue.
    """
    found = question.found
    for cause in (*gates, *found.refusals):
        detail = question.refusal_detail(cause.plugins)
        words = sentence(cause.reason)
        yield CauseReport(plugin=cause.plugin, reason=cause.reason, sentence=words, detail=detail)
    if not len(found.rows):
        yield CauseReport(plugin="", reason=NO_NODES, sentence=NO_NODES)
    if not found.rejected.all():
        return  # a node takes the pod, so rejections by others are no cause
    decisive = found.decisive
    alone = found.blocked & (found.blocked.sum(axis=0) == 1)
    reports = []
    room = ReservedRoom(question)
    for index, cause in enumerate(found.causes):
        mask = found.blocked[index]
        detail = question.detail(cause.plugin, int(found.rows[mask.argmax()]))
        words, kept = _reserved(room, cause, mask.nonzero()[0].tolist())
        reports.append(
            CauseReport(
                plugin=cause.plugin,
                reason=cause.reason,
                sentence=words or sentence(cause.reason),
                nodes=int(mask.sum()),
                alone=int(alone[index].sum()),
                decisive=cause in decisive,
                on=tuple(found.names[i] for i in mask.nonzero()[0][:NAMED].tolist()),
                resolvable=bool((mask & ~found.never).any()),
                detail="; ".join(filter(None, (detail, kept))),
            )
        )
    yield from sorted(
        reports, key=lambda one: (not one.decisive, -one.nodes, one.plugin, one.reason)
    )


def _reserved(room: ReservedRoom, cause: Cause, indices: Sequence[int]) -> tuple[str, str]:
    """Return the sentence about reservations as cause of a shortage, and their amounts."""
    if cause.plugin != FIT or not cause.reason.startswith(SHORT):
        return "", ""
    resource = cause.reason.removeprefix(SHORT)
    kept = room.text(indices[0], resource)
    if not kept or not all(room.is_decisive(index, resource) for index in indices[:NAMED]):
        return "", kept
    return f"the {resource} that it needs is kept by reservations for other pods", kept


def nearest_nodes(question: Question) -> Iterator[NearNode]:
    """Yield the nodes that lack the least."""
    found, order = question.found, question.order
    for index in order[:NEAREST].tolist() if found.rejected.all() else ():
        against = found.against(index)
        row = int(found.rows[index])
        details = (question.detail(cause.plugin, row) or cause.reason for cause in against)
        yield NearNode(
            node=found.names[index],
            reasons=tuple(cause.reason for cause in against),
            lacks={n: quantity(n, amount) for n, amount in question.lacking(index).items()},
            hopeless=bool(found.never[index]),
            details=tuple(dict.fromkeys(details)),
        )


def empty_cluster(question: Question) -> EmptyCluster | None:
    """Return whether the pod fits on a node without other pods.

    Return None if too many nodes would have to be tried, if pods on other nodes matter (one node is
    emptied at a time), or if measured usage matters, to which pods contribute.
    """
    question = question.undisturbed()
    found, nodes = question.found, question.state.nodes
    if found.lasting:
        return EmptyCluster(fits=False, why=", ".join(c.reason for c in found.lasting))
    if not len(found.rows):
        return EmptyCluster(fits=False, why=NO_NODES)
    row = question.empty_home(HOMES_TRIED)
    if row is not None:
        return (
            None
            if question.has_required_pod_affinity
            else EmptyCluster(fits=True, node=nodes.names[row])
        )
    served = {column for column, _ in question.pod_class.served}
    for column, amount in question.pod_class.demand:
        if column in served:
            continue
        name = question.state.axis.names[column]
        most = int(nodes.allocatable[column, found.rows].max())
        if amount > most:
            request, there = spoken(name, amount), spoken(name, most)
            why = f"it requests {request} of {name}; the most that a node has is {there}"
            return EmptyCluster(fits=False, why=why)
    hopeful = question.hopeful_rows(HOMES_TRIED + 1)
    decisive = found.decisive
    if len(hopeful) > HOMES_TRIED or question.depends_on_others(decisive):
        return None
    lasting = {
        cause.reason
        for index, cause in enumerate(found.causes)
        if found.hopeless[index].any() and cause in decisive
    }
    lasting.update(reason for row in hopeful for reason in question.left_without_others(row))
    return EmptyCluster(fits=False, why=", ".join(sorted(lasting)))
