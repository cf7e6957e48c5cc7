"""Eviction candidates for a job, with the amounts that they free, and the job as input.

A gang that keeps fewer members than it needs is evicted as a whole, with all gangs of its group,
wherever their pods run.  Members beyond the minimum of a gang are evicted alone.

A job has kinds of members, nodes, and the shortfall of its quota.

Source: koordinator pkg/scheduler/plugins/coscheduling/core/preemption.go.  Unlike there, gangs
count as a whole and disruption budgets are respected where possible.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field

import numpy as np

from koordinator.api.labels import is_preemptible, is_quota_preemptible
from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.domain.gangs import Gang, GangCache
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.post_filter import Allows
from koordinator.scheduler.preemption.freed import correct_for_holds
from koordinator.scheduler.preemption.single_node import covers
from koordinator.scheduler.snapshot import ClusterState, Hold, PlacedPod, PodClass

NO_LIMIT = 1 << 40
TERMINATING = -1  # the level of pods that are being deleted already
_VIOLATES = 1 << 33  # above every priority
_SHIFT = 1 << 31  # makes every priority positive
_NEVER = 1 << 40


@dataclass(frozen=True, slots=True)
class VictimJob:
    """Gang group, and the number of its members that may be evicted."""

    id: str
    gangs: tuple[
        tuple[IntArray, int], ...
    ]  # positions in the table; number that may be evicted alone
    outside: tuple[PlacedPod, ...]  # members on rows that the table is not about
    can_go: bool  # as a whole; else no gang of it may lose more than it can spare

    @property
    def inside(self) -> IntArray:
        """Positions in the table of all members."""
        return np.concatenate([positions for positions, _ in self.gangs])

    def is_broken(self, evicted: BoolArray) -> bool:
        """Return whether a gang loses more members than it can do without."""
        return any(int(evicted[positions].sum()) > spare for positions, spare in self.gangs)


@dataclass(frozen=True, slots=True)
class VictimTable:
    """Pods that may be evicted, by row, and on each row the cheapest first."""

    pods: tuple[PlacedPod, ...]
    row: IntArray  # (n,) index into the rows of the problem, ascending
    amounts: IntArray  # (n, n_columns) what each frees
    level: IntArray  # (n,) rank of (breaks a budget, priority); ``TERMINATING``
    whole_level: IntArray  # (n,) the same of its job, if it can't go alone; ``levels``: never
    price: FloatArray  # (n,) pods that go with it then, shared among the members; without job 1
    started_s: FloatArray  # (n,) since the epoch
    priority: IntArray  # (n,)
    violating: BoolArray  # (n,) its eviction, after the less important ones, violates a budget
    job: IntArray  # (n,) index into ``jobs``; -1: of none
    gang: IntArray  # (n,) index into ``spare``; -1: of none
    spare: IntArray  # (n_gangs,) number of members that may be evicted without the others
    jobs: tuple[VictimJob, ...] = ()
    levels: int = 0  # number of distinct ones but ``TERMINATING``

    @property
    def terminating(self) -> BoolArray:
        """``(n,)``: it is being deleted already."""
        terminating: BoolArray = self.level == TERMINATING
        return terminating


@dataclass(slots=True)
class _PlacedPods:
    """Pods that may be evicted, in the order of the rows, with facts about their classes."""

    pods: list[PlacedPod] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)  # index of the class
    of_gang: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    kinds: list[PodClass] = field(default_factory=list)
    examples: list[Pod] = field(default_factory=list)  # one of each class
    terminating_kinds: list[bool] = field(default_factory=list)  # being deleted

    @property
    def priority(self) -> IntArray:
        """``(n,)``."""
        of_kind = np.array([kind.spec.priority or 0 for kind in self.kinds], np.int64)
        return of_kind[self.kind]

    @property
    def terminating(self) -> BoolArray:
        """``(n,)``."""
        return np.array(self.terminating_kinds, bool)[self.kind]

    def amounts(self, columns: IntArray) -> IntArray:
        """Return ``(n, n_columns)``: what each demands."""
        wanted, demands = columns.tolist(), [dict(kind.demand) for kind in self.kinds]
        table = np.array([[d.get(c, 0) for c in wanted] for d in demands], np.int64)
        demanded: IntArray = table.reshape(len(demands), len(wanted))[self.kind]
        return demanded


class _EvictionRules:
    """Rules for pods that may be evicted; all but ``allows`` are equal for the pods of a class."""

    def __init__(
        self,
        below: int,
        own: AbstractSet[str],
        allows: Allows | None,
        gangs: Sequence[GangCache],
    ) -> None:
        self.below, self._own, self._allows, self._gangs = below, own, allows, gangs
        self._known: dict[PodClass, tuple[int, str, bool] | None] = {}
        self.placed_pods = _PlacedPods()

    def of(self, placed: PlacedPod) -> tuple[int, str, bool] | None:
        """Return index of its class, gang, and whether it is being deleted; None: it stays."""
        pod_class = placed.pod_class
        try:
            known = self._known[pod_class]
        except KeyError:
            known = self._known[pod_class] = self._learn(placed)
        if known is None or self._allows is None or self._allows(placed):
            return known
        return None

    def _learn(self, placed: PlacedPod) -> tuple[int, str, bool] | None:
        pod_class = placed.pod_class
        labels, gang = pod_class.labels, _gang_id(placed, self._gangs)
        is_protected = not (is_preemptible(labels) and is_quota_preemptible(labels))
        if placed.priority >= self.below or is_protected or gang in self._own:
            return None
        terminating = placed.pod.metadata.deletion_timestamp is not None
        placed_pods = self.placed_pods
        placed_pods.kinds.append(pod_class)
        placed_pods.examples.append(placed.pod)
        placed_pods.terminating_kinds.append(terminating)
        return len(placed_pods.kinds) - 1, gang, terminating


def victims_of(
    state: ClusterState,
    rows: IntArray,
    columns: IntArray,
    below: int,
    *,
    gangs: Sequence[GangCache],
    budgets: Sequence[PodDisruptionBudget],
    own: AbstractSet[str] = frozenset(),
    allows: Allows | None = None,
    lent: Iterable[Hold] = (),
) -> VictimTable:
    """Return the pods on these rows with priority < ``below`` that may be evicted.

    ``columns`` are the requested resources of the job, ``own`` its gangs, whose members stay.
    ``allows`` restricts victims further.  ``lent`` are holds that the job may use.
    """
    rules = _EvictionRules(below, own, allows, gangs)
    placed_pods = _find(state, rows, rules)
    terminating, violating = placed_pods.terminating, _violating(placed_pods, budgets)
    rank = np.where(violating, _VIOLATES, 0) + placed_pods.priority + _SHIFT
    columns_of = _VictimColumns(placed_pods, np.where(terminating, TERMINATING, rank), violating)
    jobs: list[VictimJob] = []
    for group_id, members in _groups(placed_pods.of_gang, gangs).items():
        job = _VictimGroup(state, members, rules)
        jobs.append(columns_of.add(group_id, len(jobs), job, budgets))
    amounts = placed_pods.amounts(columns)
    if state.holds.by_uid or lent:
        correct_for_holds(amounts, placed_pods.pods, columns, state, lent)
    return columns_of.table(amounts, jobs)


class _VictimGroup:
    """A gang group while the table is made."""

    def __init__(
        self, state: ClusterState, gangs: Mapping[str, Gang], rules: _EvictionRules
    ) -> None:
        placed_pods, by_key = rules.placed_pods, state.pods.by_key
        self.inside = {one: placed_pods.of_gang.get(one, []) for one in gangs}
        self.alive = sum(map(len, self.inside.values()))
        self.outside: list[PlacedPod] = []
        self.spare: dict[str, int] = {}
        for one, gang in gangs.items():
            inside = self.inside[one]
            count = len(inside)
            if count < len(gang.members):
                known = {placed_pods.pods[at].key for at in inside}
                others = [by_key[key] for key in gang.members if key not in known and key in by_key]
                alive = [p for p in others if p.pod.metadata.deletion_timestamp is None]
                self.outside += alive
                count += len(alive)
            self.spare[one] = max(0, count - _least(gang))
        self.alive += len(self.outside)
        self.can_go = all(rules.of(placed) is not None for placed in self.outside)

    def rank_outside(self, budgets: Sequence[PodDisruptionBudget]) -> int:
        """Return the rank of the most important member outside, by budgets without disruptions."""
        shut = [one for one in budgets if one.status.disruptions_allowed <= 0]
        ranks = [
            (_VIOLATES if any(covers(b, p.pod) for b in shut) else 0) + p.priority + _SHIFT
            for p in self.outside
        ]
        return max(ranks, default=0)


class _VictimColumns:
    """Columns of the table in the order in which pods were found."""

    def __init__(self, placed_pods: _PlacedPods, rank: IntArray, violating: BoolArray) -> None:
        self._placed_pods, self.rank, self.violating = placed_pods, rank, violating
        self.priority = placed_pods.priority
        self.started_s = np.array([placed.started_s for placed in placed_pods.pods], float)
        self.price = np.ones(len(rank))
        self.whole = rank.copy()
        self.job = np.full(len(rank), -1)
        self.gang = np.full(len(rank), -1)
        self.spare: list[int] = []

    def add(
        self, group_id: str, number: int, job: _VictimGroup, budgets: Sequence[PodDisruptionBudget]
    ) -> VictimJob:
        """Add a gang group."""
        inside = [at for positions in job.inside.values() for at in positions]
        self.job[inside] = number
        self.price[inside] = job.alive / len(inside)
        rank = max(int(self.rank[inside].max()), job.rank_outside(budgets))
        self.whole[inside] = rank if job.can_go else _NEVER
        gangs = []
        for one, positions in job.inside.items():
            self.gang[positions] = len(self.spare)
            self.spare.append(job.spare[one])
            if not job.spare[one]:
                self.rank[positions] = self.whole[positions]
            gangs.append((np.array(positions, np.int64), job.spare[one]))
        return VictimJob(group_id, tuple(gangs), tuple(job.outside), job.can_go)

    def table(self, amounts: IntArray, jobs: Sequence[VictimJob]) -> VictimTable:
        """Return the table, by row and then the cheapest first."""
        row = np.array(self._placed_pods.row, np.int64)
        order = np.lexsort((-self.started_s, -_shares(amounts), self.price, self.rank, row))
        rank, whole = self.rank[order], self.whole[order]
        distinct = np.unique(np.concatenate([rank, whole]))
        distinct = distinct[(distinct != TERMINATING) & (distinct != _NEVER)]
        place = np.full(len(row), -1)
        place[order] = np.arange(len(order))
        return VictimTable(
            pods=tuple(self._placed_pods.pods[at] for at in order.tolist()),
            row=row[order],
            amounts=amounts[order],
            level=np.where(rank == TERMINATING, TERMINATING, np.searchsorted(distinct, rank)),
            whole_level=np.searchsorted(distinct, whole),
            price=self.price[order],
            started_s=self.started_s[order],
            priority=self.priority[order],
            violating=self.violating[order],
            job=self.job[order],
            gang=self.gang[order],
            spare=np.array(self.spare, np.int64),
            jobs=tuple(
                VictimJob(
                    one.id,
                    tuple((place[positions], spare) for positions, spare in one.gangs),
                    one.outside,
                    one.can_go,
                )
                for one in jobs
            ),
            levels=len(distinct),
        )


def _find(state: ClusterState, rows: IntArray, rules: _EvictionRules) -> _PlacedPods:
    placed_pods, of = rules.placed_pods, rules.of
    on_row, of_gang = state.pods.on_row, rules.placed_pods.of_gang
    pods, kinds = placed_pods.pods, placed_pods.kind
    concerned = np.flatnonzero(state.pods.lowest_priority[rows] < rules.below)
    for index, row in zip(concerned.tolist(), rows[concerned].tolist(), strict=True):
        before = len(pods)
        for placed in on_row[row].values():
            known = of(placed)
            if known is not None:
                kind, gang, is_terminating = known
                if gang and not is_terminating:
                    of_gang[gang].append(len(pods))
                pods.append(placed)
                kinds.append(kind)
        placed_pods.row += [index] * (len(pods) - before)
    return placed_pods


def breaks_gang(
    state: ClusterState, caches: Sequence[GangCache], victims: Sequence[PlacedPod]
) -> bool:
    """Return whether a gang would be left with fewer members than it needs, but with some."""
    return next(broken_gangs(state, caches, victims), None) is not None


def broken_gangs(
    state: ClusterState, caches: Sequence[GangCache], victims: Sequence[PlacedPod]
) -> Iterator[list[PlacedPod]]:
    """Yield the running members of each gang, with its partners, that would be left with too few.

    A gang that is left without any member is not broken.
    """
    going = {placed.key: _gang_id(placed, caches) for placed in victims}
    for gangs in _groups(filter(None, going.values()), caches).values():
        alive = {one: _alive(state, gang) for one, gang in gangs.items()}
        left = {one: keys - going.keys() for one, keys in alive.items()}
        is_short = any(
            len(left[one]) < min(_least(gang), len(alive[one])) for one, gang in gangs.items()
        )
        if is_short and any(left.values()):
            yield [state.pods.by_key[key] for keys in alive.values() for key in sorted(keys)]


def _gang_id(placed: PlacedPod, caches: Sequence[GangCache]) -> str:
    """Return the id of a pod's gang; empty if it is in none that is kept."""
    return next((own_id for cache in caches if (own_id := cache.id_of(placed.pod))), "")


def _alive(state: ClusterState, gang: Gang) -> set[str]:
    """Return the members, by key, that have nodes and are not being deleted."""
    placed = {key: state.pods.by_key.get(key) for key in gang.members}
    return {
        key
        for key, one in placed.items()
        if one is not None and one.pod.metadata.deletion_timestamp is None
    }


def _groups(ids: Iterable[str], caches: Sequence[GangCache]) -> dict[str, dict[str, Gang]]:
    """Return the groups that are evicted as a whole with these gangs, with their gangs by id."""
    groups: dict[str, dict[str, Gang]] = {}
    for own_id in ids:
        for cache in caches:
            gang = cache.gangs.get(own_id)
            if gang is not None and gang.terms is not None:
                terms = gang.terms
                groups[",".join(terms.unit)] = {
                    one: known for one in terms.unit if (known := cache.gangs.get(one)) is not None
                }
                break
    return groups


def _least(gang: Gang) -> int:
    """Return how many members must be left so that the gang is not broken.

    Pods of a PodGroup of scheduling.k8s.io go all together, or one by one, whatever its minimum.
    """
    if gang.terms is None:
        return 1
    if gang.terms.pod_group is not None:
        return len(gang.members) if gang.terms.pod_group.goes_as_whole else 0
    return gang.terms.min_member


def _shares(amounts: IntArray) -> FloatArray:
    """Return ``(n,)``: how much each frees, of all resources together."""
    most = np.maximum(amounts.max(axis=0, initial=1), 1)
    return np.asarray((amounts / most).sum(axis=1))


def _violating(placed_pods: _PlacedPods, budgets: Sequence[PodDisruptionBudget]) -> BoolArray:
    """Return whose eviction breaks a budget, if the less important ones are evicted before."""
    out = np.zeros(len(placed_pods.pods), bool)
    if not budgets:
        return out
    terminating, priority, kinds = (
        placed_pods.terminating,
        placed_pods.priority,
        np.array(placed_pods.kind, np.int64),
    )
    for budget in budgets:
        of_kind = np.array([covers(budget, pod) for pod in placed_pods.examples], bool)
        covered = [
            at
            for at in np.flatnonzero(of_kind[kinds] & ~terminating).tolist()
            if placed_pods.pods[at].pod.metadata.name not in budget.status.disrupted_pods
        ]
        covered.sort(key=lambda at: (priority[at], -placed_pods.pods[at].started_s))
        out[covered[max(budget.status.disruptions_allowed, 0) :]] = True
    return out


@dataclass(frozen=True, slots=True)
class Shape:
    """Members with equal requests, each with a need for a place."""

    pod: Pod  # one of them
    pod_class: PodClass
    count: int
    amounts: IntArray  # (n_columns,) of each member, in the columns of the problem
    most: IntArray  # (n_rows,) how many the row takes at most, whatever its room; 0: it never does


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """Amounts that victims must free in the quota of the job, besides room on nodes."""

    missing: IntArray  # (n_missing,) > 0, by resource
    frees: IntArray  # (n_victims, n_missing)


@dataclass(frozen=True, slots=True)
class PreemptionProblem:
    """A job and the nodes that it may use."""

    rows: IntArray  # (n_rows,) numbers of the rows in the cluster, ascending
    free: IntArray  # (n_rows, n_columns) what no pod has taken; negative where there is too little
    shapes: tuple[Shape, ...]  # largest requests first
    victims: VictimTable
    shortage: QuotaShortage | None = None
