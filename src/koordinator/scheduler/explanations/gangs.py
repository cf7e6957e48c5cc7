"""Explanations of gangs."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from koordinator.api.core import ResourceRequirements
from koordinator.api.labels import HOSTNAME
from koordinator.api.pod import Pod
from koordinator.domain.amounts import add, to_quantities
from koordinator.domain.gangs import Gang, GangCache, GroupTree
from koordinator.domain.gangs.gang import MemberState
from koordinator.domain.pod_requests import Requests, add_overhead, pod_requests
from koordinator.foundation.text import listed
from koordinator.scheduler.contract import AllocationResult
from koordinator.scheduler.cycle.evaluation import view_for
from koordinator.scheduler.cycle.reserve import reserve
from koordinator.scheduler.explanations.explanation import Remedy
from koordinator.scheduler.explanations.question import Question
from koordinator.scheduler.explanations.victims import is_pinned
from koordinator.scheduler.post_filter import ClassedPod
from koordinator.scheduler.transaction import Transaction

TRIED = 3  # kinds of nodes
MOST = 64  # members placed one by one

NAMED = 5  # members


def together(members: Sequence[ClassedPod]) -> Pod:
    """Return one pod that requests what all members hold together.

    The overheads are apart from the rest, as some quotas do not count them.
    """
    first = members[0][0]
    requests: Requests = {}
    overhead: Requests = {}
    for pod, _ in members:
        add(requests, pod_requests(pod.spec, overhead=False))
        add_overhead(overhead, pod.spec)
    whole = replace(
        first.spec.containers[0],
        resources=ResourceRequirements(requests=to_quantities(requests)),
    )
    spec = replace(
        first.spec,
        containers=(whole,),
        init_containers=(),
        overhead=to_quantities(overhead),
        resources=None,
    )
    return replace(first, spec=spec)


def nodes_for_all(question: Question, members: Sequence[ClassedPod]) -> Iterator[Remedy]:
    """Yield the number of additional nodes that the unplaced members need."""
    if any(map(_is_cluster_scoped, (pod for pod, _ in members))):
        return
    if any(is_pinned(pod_class, question.state.objects) for _, pod_class in members):
        return
    for row in question.resolvable_rows(TRIED):
        count = 0 if question.is_blocked_cluster_wide(row) else _nodes_like(question, members, row)
        if count == 1 or (count and not _share_claims(members)):
            node = question.state.nodes.names[row]
            nodes_text = f"a node like {node}" if count == 1 else f"{count} nodes like {node}"
            text = (
                f"add {nodes_text}: empty ones take the {len(members)} members that find no place"
            )
            enough = not question.obstacles.refusals
            yield Remedy(kind="add-node", text=text, sufficient=enough, nodes=(node,))
            return


def all_fit(question: Question, members: Sequence[ClassedPod]) -> bool:
    """Return whether nodes fit all members, ignoring refusals of the whole gang."""
    rows = question.nearest(question.obstacles.rows[~question.obstacles.rejected], MOST)
    with Transaction(question.state) as transaction:
        for number, (pod, pod_class) in enumerate(members[:MOST]):
            while rows and not _place(question, transaction, (pod, pod_class), rows[0], number):
                rows.pop(0)
    return bool(rows) and len(members) <= MOST


def _nodes_like(question: Question, members: Sequence[ClassedPod], row: int) -> int:
    """Return how many empty nodes like this one hold all members; 0 if it fits none."""
    alike = all(pod_class is members[0][1] for _, pod_class in members)
    if not alike and len(members) > MOST:
        return 0
    left, nodes = list(enumerate(members)), 0
    with Transaction(question.state) as transaction:
        for placed in list(question.state.pods.on_row[row].values()):
            transaction.displace(placed)
        while left:
            emptied, count = transaction.mark(), 0
            for number, member in left:
                if not _place(question, transaction, member, row, number):
                    break
                count += 1
            if not count:
                return 0
            if alike:
                return -(-len(members) // count)
            nodes += 1
            left = left[count:]
            transaction.rollback(emptied)
    return nodes


def _place(
    question: Question, transaction: Transaction, member: ClassedPod, row: int, number: int
) -> bool:
    """Place a member on a node if it fits."""
    pod, pod_class = member
    other = question.about(pod, pod_class)
    if not other.takes_without(row, ()):
        return False
    snapshot = view_for(other.active_profile, question.state, pod_class)
    reserved = reserve(other.active_profile, snapshot, pod_class, row)
    if not isinstance(reserved, AllocationResult):
        return False
    transaction.assume(f"\0member/{number}", pod, pod_class, row, reserved)
    return True


def _share_claims(members: Sequence[ClassedPod]) -> bool:
    """Return whether some members name the same ResourceClaim, whose devices are on one node."""
    names = [
        claim.resource_claim_name
        for pod, _ in members
        for claim in pod.spec.resource_claims
        if claim.resource_claim_name
    ]
    return len(set(names)) < len(names)


def _is_cluster_scoped(pod: Pod) -> bool:
    """Return whether the pod has rules about other nodes, which new nodes would change."""
    spec = pod.spec
    return (
        any(c.when_unsatisfiable == "DoNotSchedule" for c in spec.topology_spread_constraints)
        or bool(spec.required_pod_affinity)
        or any(term.topology_key != HOSTNAME for term in spec.required_pod_anti_affinity)
    )


#: Whether pods, by key, can start together with numbers of copies of some pods, by key.
StartTogether = Callable[[Sequence[str], Mapping[str, int]], bool]


def short_gang(cache: GangCache, pod: Pod, start_together: StartTogether) -> Iterator[Remedy]:
    """Yield remedies that complete the gang of a gated pod."""
    own = cache.gang_of(pod)
    if own is None or own.terms is None:
        yield _stated_number(own, pod)
        return
    if own.terms.problem:
        fix = own.terms.problem.partition(" of scheduling.k8s.io does not exist")
        text = f"create the {fix[0]}" if fix[1] else f"change its groups: {own.terms.problem}"
        yield Remedy(kind="gang", text=text, sufficient=False, tried=False)
        return
    if own.terms.tree is not None:
        yield from _short_tree(cache, own.terms.tree)
        return
    gangs = [cache.gangs.get(name) for name in own.terms.group]
    short: list[Gang] = []
    for name, gang in zip(own.terms.group, gangs, strict=True):
        if gang is None or gang.terms is None:
            text = f"create the gang {name}, which must start with its own"
            yield Remedy(kind="gang", text=text, sufficient=False, tried=False)
        elif gang.present < gang.terms.min_member:
            short.append(gang)
    # More members can only be tried on the state if the sizes of all gangs of the group are known.
    is_known = all(gang is not None and gang.terms is not None for gang in gangs)
    unblocked = [key for gang in gangs if gang is not None for key in _unblocked(gang)]
    for gang in short:
        alone = is_known and len(short) == 1
        yield from _more_members(gang, pod.key, unblocked, start_together, alone=alone)
    if is_known and len(short) > 1:
        copies = {_example(gang, pod.key): _missing_count(gang) for gang in short}
        if len(copies) == len(short) and start_together(unblocked, copies):
            steps = " and ".join(
                f"{_missing_count(gang)} more {_members_of(_missing_count(gang), gang)}"
                for gang in short
            )
            yield Remedy(kind="together", text=f"together: create {steps}")


def _stated_number(own: Gang | None, pod: Pod) -> Remedy:
    """Return the remedy for a gang that does not state how many members it needs."""
    text = "set the number of members that its gang needs"
    if own is not None:
        subject = f"Workload {own.workload}" if own.workload else f"PodGroup {own.id}"
        if own.pod_group:
            subject = f"PodGroup {own.pod_group} of scheduling.k8s.io"
        text += f": create the {subject}"
    ref = pod.spec.workload_ref
    if own is not None and own.workload and ref is not None:
        text += f", with a podGroup {ref.pod_group}"
    return Remedy(kind="gang", text=text, sufficient=False, tried=False)


def _short_tree(cache: GangCache, tree: GroupTree) -> Iterator[Remedy]:
    """Yield remedies that complete PodGroups of a tree, one by one."""

    def present(leaf: GroupTree) -> int:
        gang = cache.gangs.get(leaf.id)
        return gang.present if gang is not None else 0

    for group in tree.unmet(lambda leaf: present(leaf) >= leaf.least):
        if group.is_leaf:
            missing = group.least - present(group)
            many = "member" if missing == 1 else "members"
            text = f"create {missing} more {many} of PodGroup {group.key}"
        elif len(group.children) < group.least:
            missing = group.least - len(group.children)
            many = "group" if missing == 1 else "groups"
            text = f"create {missing} more {many} below CompositePodGroup {group.key}"
        else:
            continue
        yield Remedy(kind="gang", text=text, sufficient=False, tried=False)


def smaller_gang(gang: Gang | None, count: int) -> Iterator[Remedy]:
    """Yield the lower minimum with which ``count`` placed members could start."""
    if gang is None or gang.terms is None or not gang.bound < count < gang.terms.min_member:
        return
    text = f"set {gang.minimum_setting} to {count}: that many members find a place"
    yield Remedy(kind="gang", text=text)


def _more_members(
    gang: Gang,
    explained: str,
    created: Sequence[str],
    start_together: StartTogether,
    *,
    alone: bool,
) -> Iterator[Remedy]:
    """Yield remedies for one short gang; ``created`` are all ungated members of its group."""
    blocked = sorted(k for k, one in gang.members.items() if one.state is MemberState.BLOCKED)
    own, missing = _unblocked(gang), _missing_count(gang)
    present = listed(own, NAMED) or "none"
    if blocked:
        text = f"remove the scheduling gates of {', '.join(blocked[:NAMED])}, members of {gang.id}"
        enough = alone and len(blocked) >= missing and start_together([*created, *blocked], {})
        yield Remedy(kind="open-gates", text=text, sufficient=enough)
    verb = "is" if len(own) == 1 else "are"
    text = f"create {missing} more {_members_of(missing, gang)}: there {verb} {present}"
    copies = {_example(gang, explained): missing}
    yield Remedy(kind="gang", text=text, sufficient=alone and start_together(created, copies))
    if alone and gang.present and start_together(created, {}):
        text = f"set {gang.minimum_setting} to {gang.present}: that many members exist"
        yield Remedy(kind="gang", text=text)


def _unblocked(gang: Gang) -> list[str]:
    return sorted(k for k, one in gang.members.items() if one.state is not MemberState.BLOCKED)


def _missing_count(gang: Gang) -> int:
    assert gang.terms is not None  # noqa: S101 -- callers pass gangs with terms
    return gang.terms.min_member - gang.present


def _members_of(count: int, gang: Gang) -> str:
    return f"{'member' if count == 1 else 'members'} of gang {gang.id}"


def _example(gang: Gang, explained: str) -> str:
    """Return the pod that missing members resemble: the first of the gang, if it has any."""
    return min(gang.pending, default=explained)
