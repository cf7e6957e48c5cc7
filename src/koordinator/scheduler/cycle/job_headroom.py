"""Places for all members of a job, and the victims, with dry runs on states without them.

Unresolvable rejections exclude nodes at once.  Resource amounts are planned in arrays.  All other
filters run in a dry run on the chosen nodes.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from koordinator.api.policy import PodDisruptionBudget
from koordinator.domain.gangs import GangCache
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract import ActivePlugin, AllocationResult, Profile, Reads, Refusal
from koordinator.scheduler.cycle.evaluation import NominatedPods, view_for
from koordinator.scheduler.cycle.program import compared, compile_program
from koordinator.scheduler.cycle.reserve import reserve
from koordinator.scheduler.post_filter import (
    Allows,
    ClassedPod,
    PostFilterResult,
    Shortfall,
)
from koordinator.scheduler.preemption import (
    PreemptionPlan,
    PreemptionProblem,
    QuotaShortage,
    Shape,
    VictimTable,
    make_plan,
    victims_of,
)
from koordinator.scheduler.preemption.victims import NO_LIMIT
from koordinator.scheduler.snapshot import ClusterState, Hold, PodClass, Snapshot
from koordinator.scheduler.transaction import Transaction


class StateDryRun:
    """Implements ``preemption.PreemptionDryRun``: the state is changed and changed back."""

    def __init__(
        self,
        profile: Profile,
        state: ClusterState,
        problem: PreemptionProblem,
        nominated_pods: NominatedPods,
    ) -> None:
        self._profile, self._state = profile, state
        self._problem, self._nominated = problem, nominated_pods
        self._filters = {
            shape.pod_class.id: applicable(profile, state, shape.pod_class)
            for shape in problem.shapes
        }

    @property
    def is_local(self) -> bool:
        """Whether no filter looks at other nodes."""
        return not any(_is_cluster_scoped(filters) for filters in self._filters.values())

    def taken(
        self, evicted: BoolArray, rows: IntArray, places: Sequence[IntArray]
    ) -> list[IntArray]:
        """Return how many of the planned members the nodes take: see ``PreemptionDryRun``."""
        victims = self._problem.victims
        taken = [np.zeros_like(planned) for planned in places]
        selected = np.zeros(len(self._problem.rows), bool)
        selected[rows] = True
        is_selected = selected[victims.row] if self.is_local else np.ones(len(evicted), bool)
        with Transaction(self._state) as transaction:
            for at in np.flatnonzero(evicted & is_selected).tolist():
                transaction.displace(victims.pods[at])
            self._place_nominated_pods(transaction, rows)
            later = np.sum(places, axis=0)
            for shape, planned, count in zip(self._problem.shapes, places, taken, strict=True):
                later = later - planned
                wanted = np.where(selected, planned, 0)
                for number in range(int(wanted.max(initial=0))):
                    these = np.flatnonzero((wanted > number) & (count == number))
                    is_last = wanted[these] + later[these] == number + 1
                    count[self._fill(transaction, shape, these, is_last)] += 1
        return taken

    def _fill(
        self, transaction: Transaction, shape: Shape, these: IntArray, is_last: BoolArray
    ) -> IntArray:
        """Put one more member on each of these nodes; return the nodes that take it.

        The last one of a node need not be put there unless it takes more than amounts.
        """
        rows, filters = self._problem.rows[these], self._filters[shape.pod_class.id]
        if _is_cluster_scoped(filters):
            return np.array(
                [
                    index
                    for index, row in zip(these.tolist(), rows.tolist(), strict=True)
                    if self._accepts(filters, shape.pod_class, row)
                    and self._put(transaction, shape, row)
                ],
                np.int64,
            )
        view, fits = self._view(shape.pod_class)[rows], np.ones(len(rows), bool)
        with view.restoring():
            for active in filters:
                fits &= active.plugin.filter(view, shape.pod_class).codes == 0
        put = fits & ~is_last if not self._reserves(shape.pod_class) else fits.copy()
        for index in np.flatnonzero(put).tolist():
            fits[index] = self._put(transaction, shape, int(rows[index]))
        return these[fits]

    def _reserves(self, pod_class: PodClass) -> bool:
        whole = self._view(pod_class)
        return any(active.hints.filters(whole, pod_class) for active in self._profile.reserve)

    def _view(self, pod_class: PodClass) -> Snapshot:
        return view_for(self._profile, self._state, pod_class)

    def _accepts(self, filters: Iterable[ActivePlugin], pod_class: PodClass, row: int) -> bool:
        view = self._view(pod_class)[np.array([row])]
        with view.restoring():
            return all(not active.plugin.filter(view, pod_class).codes[0] for active in filters)

    def _put(self, transaction: Transaction, shape: Shape, row: int) -> bool:
        """Put a member on a node with all that it takes there."""
        reserved = reserve(self._profile, self._view(shape.pod_class), shape.pod_class, row)
        if not isinstance(reserved, AllocationResult):
            return False
        key = f"member:{len(self._state.pods.by_key)}"
        transaction.assume(key, shape.pod, shape.pod_class, row, reserved)
        return True

    def _place_nominated_pods(self, transaction: Transaction, rows: IntArray) -> None:
        names = self._state.nodes.names
        for row in self._problem.rows[rows].tolist() if self._nominated else ():
            for other, other_class in self._nominated.get(names[row], ()):
                transaction.place(f"nominated:{other.key}", other, other_class, row)


def applicable(profile: Profile, state: ClusterState, pod_class: PodClass) -> list[ActivePlugin]:
    """Return the filters that may reject some node for such a pod."""
    whole = view_for(profile, state, pod_class)
    return [active for active in profile.filter if active.hints.filters(whole, pod_class)]


def reads_other_nodes(profile: Profile, state: ClusterState, pod_class: PodClass) -> bool:
    """Return whether pods on other nodes may keep such a pod off a node."""
    return _is_cluster_scoped(applicable(profile, state, pod_class))


def _is_cluster_scoped(filters: Iterable[ActivePlugin]) -> bool:
    return any(active.plugin.reads is Reads.CLUSTER for active in filters)


def free_headroom(
    profile: Profile,
    state: ClusterState,
    nominated_pods: NominatedPods,
    members: Sequence[ClassedPod],
    *,
    rows: IntArray | None = None,
    allows: Allows | None = None,
) -> PostFilterResult:
    """Return places on these rows (all, if None) and victims; without places, why there are none.

    ``allows`` restricts the victims.
    """
    below = min(pod.spec.priority or 0 for pod, _ in members)
    alive = np.flatnonzero(state.nodes.alive[: len(state.nodes)])
    if not len(alive) or int(state.pods.lowest_priority[alive].min()) >= below:
        return PostFilterResult()
    kinds = _kinds(profile, state, members)
    shortfall = _cluster_shortfall(profile, state, [pod_class for _, pod_class in members], kinds)
    if isinstance(shortfall, Refusal):
        return PostFilterResult(shortfall.reason)
    problem = _problem(
        profile,
        state,
        nominated_pods,
        kinds,
        below=below,
        rows=rows,
        allows=_both(allows, shortfall),
        shortfall=shortfall,
    )
    if not len(problem.victims.pods):
        return PostFilterResult("no pod of lower priority may be evicted")
    dry_run = (
        StateDryRun(profile, state, problem, nominated_pods)
        if _needs_dry_run(profile, state, kinds)
        else None
    )
    plan = make_plan(problem, dry_run)
    if plan is None:
        return PostFilterResult(
            f"no room for {len(members)} members even without the {len(problem.victims.pods)} "
            "pods that may be evicted"
        )
    return _result(state, problem, kinds, plan)


_Kinds = Mapping[Hashable, Sequence[ClassedPod]]


def _kinds(profile: Profile, state: ClusterState, members: Sequence[ClassedPod]) -> _Kinds:
    """Return the members grouped by what filters can distinguish."""
    kinds: dict[Hashable, list[ClassedPod]] = defaultdict(list)
    known: dict[int, Hashable] = {}
    for pod, pod_class in members:
        key = known.get(pod_class.id)
        if key is None:
            program = compile_program(profile, view_for(profile, state, pod_class), pod_class)
            around = reads_other_nodes(profile, state, pod_class)
            key = known[pod_class.id] = (
                program.key,
                pod_class.demand,
                pod_class.id if around else None,
            )
        kinds[key].append((pod, pod_class))
    return kinds


def _cluster_shortfall(
    profile: Profile, state: ClusterState, pods: Sequence[PodClass], kinds: _Kinds
) -> Shortfall | Refusal | None:
    """Return the shortfall or refusal that is independent of the node, if preemption can help."""
    whole, shortfall = Snapshot(state), None
    for active in profile.pre_filter:
        if "shortfall" in active.has:
            answer = active.plugin.shortfall(whole, pods)
            if isinstance(answer, Refusal):
                return answer
            shortfall = shortfall or answer
            continue
        for members in kinds.values():
            pod_class = members[0][1]
            view = view_for(profile, state, pod_class)
            refusal = active.plugin.prefilter(view, pod_class)
            if isinstance(refusal, Refusal):
                return refusal
    result: Shortfall | None = shortfall
    return result


def _both(allows: Allows | None, shortfall: Shortfall | None) -> Allows | None:
    if shortfall is None or allows is None:
        return allows if shortfall is None else shortfall.allows
    first, second = allows, shortfall.allows
    return lambda placed: first(placed) and second(placed)


def _problem(
    profile: Profile,
    state: ClusterState,
    nominated_pods: NominatedPods,
    kinds: _Kinds,
    *,
    below: int,
    rows: IntArray | None,
    allows: Allows | None,
    shortfall: Shortfall | None,
) -> PreemptionProblem:
    """Return the problem in arrays; victims of a quota may be anywhere, places may not."""
    nodes = state.nodes
    alive = np.flatnonzero(nodes.alive[: len(nodes)])
    usable = alive if rows is None else np.intersect1d(rows, alive)
    usable_rows = usable if shortfall is None else alive
    requests = {key: compared(profile, state, members[0][1]) for key, members in kinds.items()}
    columns = np.flatnonzero(np.any(list(requests.values()), axis=0))
    free = (
        nodes.allocatable[columns][:, usable_rows] - nodes.requested[columns][:, usable_rows]
    ).T.copy()
    index_of = {int(row): index for index, row in enumerate(usable_rows.tolist())}
    for name, pods in nominated_pods.items():
        index = index_of.get(nodes.rows.get(name, -1))
        for _, pod_class in pods if index is not None else ():
            free[index] -= [pod_class.amount(column) for column in columns.tolist()]
    lent = _lent(profile, state, kinds)
    for hold in lent:
        index = index_of.get(hold.row)
        for column, amount in hold.left.demand if index is not None else ():
            free[index, columns == column] += amount
    is_usable = np.isin(usable_rows, usable)
    largest = np.maximum(nodes.allocatable[columns][:, alive].max(axis=1), 1)
    shapes = [
        Shape(
            members[0][0],
            members[0][1],
            len(members),
            requests[key][columns],
            _most(profile, state, members[0][1])[usable_rows] * is_usable,
        )
        for key, members in kinds.items()
    ]
    shapes.sort(key=lambda shape: -float((shape.amounts / largest).max(initial=0)))
    caches = [active.plugin.gangs for active in profile.gangs]
    victims = victims_of(
        state,
        usable_rows,
        columns,
        below,
        gangs=caches,
        budgets=list(state.objects.all(PodDisruptionBudget)),
        own=_own_gangs(caches, kinds),
        allows=allows,
        lent=lent,
    )
    shortage = None if shortfall is None else _shortage(shortfall, victims)
    return PreemptionProblem(usable_rows, free, tuple(shapes), victims, shortage)


def _lent(profile: Profile, state: ClusterState, kinds: _Kinds) -> list[Hold]:
    """Return the holds that some of the members may use.

    The real attempt checks each member again, and gives no amount twice.
    """
    holds: dict[int, Hold] = {}
    for members in kinds.values():
        restorable = view_for(profile, state, members[0][1]).restorable
        holds |= {} if restorable is None else restorable.by_slot
    return list(holds.values())


def _most(profile: Profile, state: ClusterState, pod_class: PodClass) -> IntArray:
    """Return ``(n,)``: 0 where a filter rejects the node without any pods, else no limit."""
    whole = view_for(profile, state, pod_class)
    never = np.zeros(len(whole), bool)
    with whole.restoring():
        for active in applicable(profile, state, pod_class):
            rejections = active.plugin.filter(whole, pod_class)
            rejected = rejections.codes != 0
            if active.plugin.reads is not Reads.NODE and rejected.any():
                rejected &= rejections.unresolvable
            never |= rejected
    return np.where(never, 0, NO_LIMIT)


def _needs_dry_run(profile: Profile, state: ClusterState, kinds: _Kinds) -> bool:
    """Return whether a filter or reserve plugin depends on more than amounts and node facts."""
    return any(
        active.plugin.reads is not Reads.NODE and active.hints.compares is None
        for members in kinds.values()
        for active in applicable(profile, state, members[0][1])
    )


def _own_gangs(caches: Sequence[GangCache], kinds: _Kinds) -> frozenset[str]:
    """Return the gangs that the members start with."""
    own: set[str] = set()
    for members in kinds.values():
        for pod, _ in members:
            for cache in caches:
                gang = cache.gang_of(pod)
                if gang is not None and gang.terms is not None:
                    own.update((gang.id, *gang.terms.group))
    return frozenset(own)


def _shortage(shortfall: Shortfall, victims: VictimTable) -> QuotaShortage:
    names = list(shortfall.missing)
    frees = np.zeros((len(victims.pods), len(names)), np.int64)
    for at, placed in enumerate(victims.pods):
        freed = shortfall.frees(placed)
        frees[at] = [freed.get(name, 0) for name in names]
    return QuotaShortage(np.array([shortfall.missing[name] for name in names], np.int64), frees)


def _result(
    state: ClusterState, problem: PreemptionProblem, kinds: _Kinds, plan: PreemptionPlan
) -> PostFilterResult:
    names = state.nodes.names
    by_class: dict[int, Sequence[ClassedPod]] = {m[0][1].id: m for m in kinds.values()}
    places = {
        pod.key: names[row]
        for shape, rows in zip(problem.shapes, plan.places, strict=True)
        for (pod, _), row in zip(by_class[shape.pod_class.id], rows.tolist(), strict=True)
    }
    if not plan.victims and not plan.waits_for:
        return PostFilterResult("no pod need be evicted: there is room as it is")
    return PostFilterResult(victims=plan.victims, places=places)
