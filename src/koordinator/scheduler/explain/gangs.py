"""What a gang as a whole would need, of which one member is explained."""

from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from koordinator.api.labels import HOSTNAME
from koordinator.api.pod import Pod
from koordinator.scheduler.contract import AllocationResult
from koordinator.scheduler.cycle.evaluation import view_for
from koordinator.scheduler.cycle.reserve import reserve
from koordinator.scheduler.explain.explanation import Remedy
from koordinator.scheduler.explain.pinned import is_pinned
from koordinator.scheduler.explain.question import Question
from koordinator.scheduler.snapshot import PodClass
from koordinator.scheduler.transaction import Transaction

TRIED = 3  # kinds of nodes
MOST = 64  # members of different kinds that are placed one by one

Member = tuple[Pod, PodClass]


def together(members: Sequence[Member]) -> Pod:
    """Return one pod that asks for what all the members ask for together."""
    first = members[0][0]
    containers = chain.from_iterable(
        [replace(c, name=f"{c.name}-{n}") for c in pod.spec.containers]
        for n, (pod, _) in enumerate(members)
    )
    return replace(first, spec=replace(first.spec, containers=tuple(containers)))


def nodes_for_all(asked: Question, members: Sequence[Member]) -> Iterator[Remedy]:
    """Say how many nodes more the members would need that find no place."""
    if any(map(_looks_beyond_its_node, (pod for pod, _ in members))):
        return
    if any(is_pinned(pod_class, asked.state.objects) for _, pod_class in members):
        return
    for row in asked.hopeful_rows(TRIED):
        count = 0 if asked.is_blocked_cluster_wide(row) else _nodes_like(asked, members, row)
        if count:
            node = asked.state.nodes.names[row]
            what = f"a node like {node}" if count == 1 else f"{count} nodes like {node}"
            text = f"add {what}: empty ones take the {len(members)} members that find no place"
            enough = not asked.found.refusals
            yield Remedy(kind="add-node", text=text, sufficient=enough, nodes=(node,))
            return


def all_fit(asked: Question, members: Sequence[Member]) -> bool:
    """Return whether nodes would take all the members, but for what refuses them as a whole."""
    rows = asked.nearest(asked.found.rows[~asked.found.rejected], MOST)
    with Transaction(asked.state) as transaction:
        for number, (pod, pod_class) in enumerate(members[:MOST]):
            while rows and not _place(asked, transaction, (pod, pod_class), rows[0], number):
                rows.pop(0)
    return bool(rows) and len(members) <= MOST


def _nodes_like(asked: Question, members: Sequence[Member], row: int) -> int:
    """Return how many empty nodes like this one hold all the members; 0: it holds none of them."""
    alike = all(pod_class is members[0][1] for _, pod_class in members)
    if not alike and len(members) > MOST:
        return 0
    left, nodes = list(enumerate(members)), 0
    with Transaction(asked.state) as transaction:
        for placed in list(asked.state.pods.on_row[row].values()):
            transaction.displace(placed)
        while left:
            here = []
            while left and _place(asked, transaction, left[0][1], row, left[0][0]):
                here.append(left.pop(0))
            if not here:
                return 0
            if alike:
                return -(-len(members) // len(here))
            nodes += 1
            for number, _ in here:
                transaction.displace(asked.state.pods.by_key[_key(number)])
    return nodes


def _place(
    asked: Question, transaction: Transaction, member: Member, row: int, number: int
) -> bool:
    """Put a member on a node if that takes it."""
    pod, pod_class = member
    other = asked.about(pod, pod_class)
    if not other.takes_without(row, ()):
        return False
    snapshot = view_for(other.asking, asked.state, pod_class)
    held = reserve(other.asking, snapshot, pod_class, row)
    if not isinstance(held, AllocationResult):
        return False
    transaction.place(_key(number), pod, pod_class, row, held.pod_allocation)
    return True


def _key(number: int) -> str:
    return f"\0member/{number}"


def _looks_beyond_its_node(pod: Pod) -> bool:
    """Return whether other nodes matter to the pod: they are not the ones that would be there."""
    affinity = pod.spec.affinity
    near = affinity.pod_affinity if affinity is not None else None
    apart = affinity.pod_anti_affinity if affinity is not None else None
    terms = apart.required_during_scheduling_ignored_during_execution if apart is not None else ()
    return (
        any(c.when_unsatisfiable == "DoNotSchedule" for c in pod.spec.topology_spread_constraints)
        or (near is not None and bool(near.required_during_scheduling_ignored_during_execution))
        or any(term.topology_key != HOSTNAME for term in terms)
    )
