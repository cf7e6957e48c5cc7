"""Who may go for a job, what they free, and who goes with whom.

A gang that loses so many members that fewer than it needs are left is lost as a whole, with all
gangs that started with it: then everybody of these goes, wherever they run.  Members that a gang
has beyond its least number go alone.

Source: koordinator pkg/scheduler/plugins/coscheduling/core/preemption.go.  Unlike there, gangs
count whole and disruption budgets are respected where possible.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from koordinator.api.labels import is_preemptible, is_quota_preemptible
from koordinator.api.policy import PodDisruptionBudget
from koordinator.domain.gangs import Gang, GangBook, gang_id
from koordinator.foundation.clock import to_epoch_s
from koordinator.scheduler.preemption import covers
from koordinator.scheduler.snapshot import BoolArray, ClusterState, IntArray, PlacedPod

GONE = -1  # the level of pods that are being deleted already
_VIOLATES = 1 << 33  # above every priority
_SHIFT = 1 << 31  # makes every priority positive
_FACT = "victim"  # in ``PodClass.facts``

FloatArray = npt.NDArray[np.float64]
Allows = Callable[[PlacedPod], bool]


@dataclass(frozen=True, slots=True)
class VictimJob:
    """A gang group that may be evicted as a whole."""

    id: str
    inside: IntArray  # positions in the table
    outside: tuple[PlacedPod, ...]  # members on rows that the table is not about
    gang_of: Mapping[int, str]  # position -> gang
    spare: Mapping[str, int]  # gang -> how many may go without the others


@dataclass(frozen=True, slots=True)
class VictimTable:
    """Pods that may be evicted, by row, and on each row the cheapest first."""

    pods: tuple[PlacedPod, ...]
    row: IntArray  # (n,) index into the rows of the problem, ascending
    amounts: IntArray  # (n, n_columns) what each frees
    level: IntArray  # (n,) rank of (breaks a budget, priority); ``GONE``
    price: FloatArray  # (n,) pods that go with it, shared among those of its job; singles 1
    started_s: FloatArray  # (n,) since the epoch
    priority: IntArray  # (n,)
    violating: BoolArray  # (n,) its eviction, after those of the less important, breaks a budget
    job: IntArray  # (n,) index into ``jobs``; -1 where it may go alone
    group: IntArray  # (n,) index into ``jobs``, of spare members too; -1: of no gang
    jobs: tuple[VictimJob, ...] = ()
    levels: int = 0  # number of distinct ones but ``GONE``

    @property
    def gone(self) -> BoolArray:
        """``(n,)``: it is being deleted already."""
        gone: BoolArray = self.level == GONE
        return gone


@dataclass(slots=True)
class _Found:
    """Columns of the table, in the order in which pods are found."""

    pods: list[PlacedPod] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    priority: list[int] = field(default_factory=list)
    gone: list[bool] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)  # index of the class
    of_gang: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


def victims_of(
    state: ClusterState,
    rows: IntArray,
    columns: IntArray,
    below: int,
    *,
    gangs: Sequence[GangBook],
    budgets: Sequence[PodDisruptionBudget],
    own: AbstractSet[str] = frozenset(),
    allows: Allows | None = None,
) -> VictimTable:
    """Return the pods on these rows with priority < ``below`` that may go.

    ``columns`` are the resources that the job asks for, ``own`` its gangs, whose members stay.
    ``allows`` restricts victims further.
    """

    def may_go(placed: PlacedPod) -> bool:
        priority, is_protected, gang, _ = _facts(placed)
        if priority >= below or is_protected or gang in own:
            return False
        return allows is None or allows(placed)

    found, amounts = _find(state, rows, columns, may_go)
    violating = _violating(found, budgets)
    priority = np.array(found.priority, np.int64)
    gone = np.array(found.gone, bool)
    rank = np.where(violating, _VIOLATES, 0) + priority + _SHIFT
    price = np.ones(len(rank))
    job = np.full(len(rank), -1)
    group = np.full(len(rank), -1)
    started_s = np.array([_started_s(placed) for placed in found.pods], float)
    keep = np.ones(len(rank), bool)
    jobs: list[VictimJob] = []
    for group_id, members in _groups(found, gangs).items():
        built = _Job(state, members, found.of_gang, may_go)
        spare, others = built.split(priority, started_s)
        if not built.can_go:
            keep[others] = False
            continue
        inside = np.array([*spare, *others], np.int64)
        group[inside] = len(jobs)
        job[others] = len(jobs)
        if others:
            rank[others] = max(int(rank[inside].max()), built.rank_outside(budgets))
            price[others] = len(built.alive) / max(len(others), 1)
        at = {p: g for g in members for p in found.of_gang.get(g, ())}
        jobs.append(VictimJob(group_id, inside, built.outside(found.pods, inside), at, built.spare))
    return _sorted(
        found,
        amounts=amounts,
        rank=np.where(gone, GONE, rank),
        price=price,
        started_s=started_s,
        job=job,
        group=group,
        keep=keep,
        jobs=jobs,
    )


class _Job:
    """A gang group while the table is made."""

    def __init__(
        self,
        state: ClusterState,
        gangs: Mapping[str, Gang],
        of_gang: Mapping[str, Sequence[int]],
        may_go: Allows,
    ) -> None:
        self._gangs, self._of_gang = gangs, of_gang
        placed = {
            one: [p for key in gang.members if (p := state.pods.by_key.get(key)) is not None]
            for one, gang in gangs.items()
        }
        alive = {
            one: [p for p in pods if p.pod.metadata.deletion_timestamp is None]
            for one, pods in placed.items()
        }
        self.alive = [p for pods in alive.values() for p in pods]
        self.can_go = all(may_go(p) for p in self.alive)
        self.spare = {one: max(0, len(pods) - _least(gangs[one])) for one, pods in alive.items()}

    def split(self, priority: IntArray, started_s: FloatArray) -> tuple[list[int], list[int]]:
        """Return positions of members that go first and alone, and of the others."""
        spare: list[int] = []
        others: list[int] = []
        for one in self._gangs:
            own = sorted(self._of_gang.get(one, ()), key=lambda at: (priority[at], -started_s[at]))
            count = self.spare[one]
            spare += own[:count]
            others += own[count:]
        return spare, others

    def outside(self, pods: Sequence[PlacedPod], inside: IntArray) -> tuple[PlacedPod, ...]:
        """Return the members that the table has not found."""
        there = {pods[at].key for at in inside.tolist()}
        return tuple(p for p in self.alive if p.key not in there)

    def rank_outside(self, budgets: Sequence[PodDisruptionBudget]) -> int:
        """Return the rank of the most important member, one without disruptions left included."""
        shut = [one for one in budgets if one.status.disruptions_allowed <= 0]
        return max(
            (
                (_VIOLATES if any(covers(b, p.pod) for b in shut) else 0) + p.priority + _SHIFT
                for p in self.alive
            ),
            default=0,
        )


def _find(
    state: ClusterState,
    rows: IntArray,
    columns: IntArray,
    may_go: Allows,
) -> tuple[_Found, IntArray]:
    found, demands = _Found(), []
    kinds: dict[int, int] = {}
    on_row = state.pods.on_row
    for index, row in enumerate(rows.tolist()):
        for placed in on_row[row].values():
            if not may_go(placed):
                continue
            pod_class = placed.pod_class
            priority, _, gang, is_gone = _facts(placed)
            kind = kinds.get(pod_class.id)
            if kind is None:
                kind = kinds[pod_class.id] = len(kinds)
                demands.append(dict(pod_class.demand))
            if gang and not is_gone:
                found.of_gang[gang].append(len(found.pods))
            found.pods.append(placed)
            found.row.append(index)
            found.priority.append(priority)
            found.gone.append(is_gone)
            found.kind.append(kind)
    wanted = columns.tolist()
    table = np.array([[d.get(c, 0) for c in wanted] for d in demands], np.int64)
    table = table.reshape(len(demands), len(wanted))
    return found, table[np.array(found.kind, np.int64)]


def _facts(placed: PlacedPod) -> tuple[int, bool, str, bool]:
    """Return priority, whether it is never a victim, its gang, whether it is being deleted.

    Pods of a class share them.
    """
    pod_class = placed.pod_class
    known: tuple[int, bool, str, bool] | None = pod_class.facts.get(_FACT)
    if known is None:
        meta, labels = placed.pod.metadata, pod_class.labels
        is_protected = not (is_preemptible(labels) and is_quota_preemptible(labels))
        gone = meta.deletion_timestamp is not None
        known = (placed.priority, is_protected, gang_id(meta), gone)
        pod_class.facts[_FACT] = known
    return known


def _groups(found: _Found, books: Sequence[GangBook]) -> dict[str, dict[str, Gang]]:
    """Return the gang groups that are concerned, each with its gangs by id."""
    groups: dict[str, dict[str, Gang]] = {}
    for own_id in found.of_gang:
        for book in books:
            gang = book.gangs.get(own_id)
            if gang is not None and gang.terms is not None:
                terms = gang.terms
                groups[terms.group_id] = {
                    one: known for one in terms.group if (known := book.gangs.get(one)) is not None
                }
                break
    return groups


def _least(gang: Gang) -> int:
    return gang.terms.min_member if gang.terms is not None else 1


def _violating(found: _Found, budgets: Sequence[PodDisruptionBudget]) -> BoolArray:
    """Return whose eviction breaks a budget, if the less important ones are evicted before."""
    out = np.zeros(len(found.pods), bool)
    for budget in budgets:
        by_kind: dict[int, bool] = {}
        covered = []
        for at, (placed, kind) in enumerate(zip(found.pods, found.kind, strict=True)):
            if kind not in by_kind:
                by_kind[kind] = covers(budget, placed.pod)
            name = placed.pod.metadata.name
            if by_kind[kind] and not found.gone[at] and name not in budget.status.disrupted_pods:
                covered.append(at)
        covered.sort(key=lambda at: (found.priority[at], -_started_s(found.pods[at])))
        out[covered[max(budget.status.disruptions_allowed, 0) :]] = True
    return out


def _sorted(
    found: _Found,
    *,
    amounts: IntArray,
    rank: IntArray,
    price: FloatArray,
    started_s: FloatArray,
    job: IntArray,
    group: IntArray,
    keep: BoolArray,
    jobs: Iterable[VictimJob],
) -> VictimTable:
    row = np.array(found.row, np.int64)
    order = np.lexsort((-started_s, price, rank, row))
    order = order[keep[order]]
    distinct, level = np.unique(rank[order], return_inverse=True)
    has_gone = int(len(distinct) > 0 and distinct[0] == GONE)
    place = np.full(len(row), -1)
    place[order] = np.arange(len(order))
    moved = tuple(
        VictimJob(
            one.id,
            place[one.inside],
            one.outside,
            {int(place[at]): gang for at, gang in one.gang_of.items()},
            one.spare,
        )
        for one in jobs
    )
    priority = np.array(found.priority, np.int64)[order]
    violating = rank[order] >= _VIOLATES
    return VictimTable(
        pods=tuple(found.pods[at] for at in order.tolist()),
        row=row[order],
        amounts=amounts[order],
        level=level - has_gone,
        price=price[order],
        started_s=started_s[order],
        priority=priority,
        violating=violating,
        job=job[order],
        group=group[order],
        jobs=moved,
        levels=len(distinct) - has_gone,
    )


def _started_s(placed: PlacedPod) -> float:
    """Return when the pod started; one that has not started counts as later than all others."""
    return to_epoch_s(placed.pod.status.start_time, default=inf)
