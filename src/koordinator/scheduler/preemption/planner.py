"""Search for the victims and places of a job: victims of the lowest level that suffices.

The levels are the priorities, and above them the priorities again for pods whose eviction violates
a disruption budget.  So a budget is violated only where there is no other way, and then the most
important victim is as unimportant as possible.

Victims are then reprieved, the most important first, whole gangs before single pods.  The result is
minimal: without any one of the single victims, or any one of the gangs, the job would not fit.

Source: koordinator pkg/scheduler/plugins/coscheduling/core/preemption.go.  Unlike there, the room
that one member takes is not offered to the next, and a gang costs all its members.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.preemption.victim_choice import (
    VictimChoice,
    choose,
    freed,
    might_fit,
    spare_left,
)
from koordinator.scheduler.preemption.victims import PreemptionProblem, VictimJob
from koordinator.scheduler.snapshot import PlacedPod

#: ``(evicted, rows)``: rows that don't fit their members after those pods are evicted.
Rejects = Callable[[BoolArray, IntArray], IntArray]

MOST_TRIES = 8  # each with the filters' results for the nodes chosen before
MOST_LEVELS = 4  # tried one by one before all pods are candidates


def broken_jobs(problem: PreemptionProblem, evicted: BoolArray) -> list[int]:
    """Return the gang groups that lose more members than they can do without."""
    victims = problem.victims
    concerned = np.unique(victims.job[evicted & (victims.job >= 0)])
    return [job for job in concerned.tolist() if victims.jobs[job].is_broken(evicted)]


def close(problem: PreemptionProblem, evicted: BoolArray) -> BoolArray:
    """Return the victims with all pods that are evicted with them."""
    out = evicted.copy()
    for job in broken_jobs(problem, evicted):
        out[problem.victims.jobs[job].inside] = True
    return out


def spare(problem: PreemptionProblem, choice: VictimChoice, rejects: Rejects | None) -> None:
    """Reprieve victims that are not needed; ``rejects`` runs filters that are not arithmetic."""
    sparing = _Sparing(problem, choice, rejects)
    victims = problem.victims
    broken = broken_jobs(problem, choice.evicted)
    broken.sort(key=lambda job: -int(victims.level[victims.jobs[job].inside].max()))
    final = np.zeros(len(victims.pods), bool)
    for job in broken:
        sparing.spare_job(victims.jobs[job])
        if victims.jobs[job].is_broken(choice.evicted):
            final[victims.jobs[job].inside] = True
    singles = np.flatnonzero(choice.evicted & ~victims.terminating & ~final)
    sparing.spare_singles(singles[_by_importance(problem, singles)])


class _Sparing:
    def __init__(
        self, problem: PreemptionProblem, choice: VictimChoice, rejects: Rejects | None
    ) -> None:
        self._problem, self._choice, self._rejects = problem, choice, rejects
        shortage = problem.shortage
        self._slack: IntArray | None = None
        if shortage is not None:
            self._slack = shortage.frees[choice.evicted].sum(axis=0) - shortage.missing

    def spare_job(self, job: VictimJob) -> None:
        """Put back members one by one; if too few can stay, all go after all."""
        choice = self._choice
        members = job.inside[choice.evicted[job.inside]]
        for at in members[_by_importance(self._problem, members)].tolist():
            self._try(at)
        if job.is_broken(choice.evicted):
            for at in job.inside[~choice.evicted[job.inside]].tolist():
                self._evict(at)

    def spare_singles(self, positions: IntArray) -> None:
        """Put back pods that go alone, on all nodes at a time."""
        if self._rejects is None:
            for at in positions.tolist():
                self._try(at)
            return
        left = [at for at in positions.tolist() if self._fits(at)]
        while left:
            this_time: dict[int, int] = {}
            later = []
            for at in left:  # one per node
                row = int(self._problem.victims.row[at])
                if row in this_time or (self._slack is not None and this_time):
                    later.append(at)
                elif self._fits(at):
                    this_time[row] = at
            for at in this_time.values():
                self._put_back(at)
            if this_time:
                rows = np.array(sorted(this_time), np.int64)
                for row in self._rejects(self._choice.evicted, rows).tolist():
                    self._evict(this_time[row])
            left = later

    def _try(self, at: int) -> None:
        if not self._fits(at):
            return
        self._put_back(at)
        if self._rejects is not None:
            row = self._problem.victims.row[at : at + 1]
            if len(self._rejects(self._choice.evicted, row)):
                self._evict(at)

    def _fits(self, at: int) -> bool:
        victims, shortage = self._problem.victims, self._problem.shortage
        row = victims.row[at]
        if (victims.amounts[at] > np.maximum(self._choice.free[row], 0)).any():
            return False
        return (
            shortage is None
            or self._slack is None
            or bool((shortage.frees[at] <= self._slack).all())
        )

    def _put_back(self, at: int) -> None:
        self._change(at, stays=True)

    def _evict(self, at: int) -> None:
        self._change(at, stays=False)

    def _change(self, at: int, *, stays: bool) -> None:
        victims, choice, shortage = self._problem.victims, self._choice, self._problem.shortage
        sign = -1 if stays else 1
        choice.evicted[at] = not stays
        choice.free[victims.row[at]] += sign * victims.amounts[at]
        if shortage is not None and self._slack is not None:
            self._slack += sign * shortage.frees[at]


def _by_importance(problem: PreemptionProblem, positions: IntArray) -> IntArray:
    """Return the order of these victims, the most important first."""
    victims = problem.victims
    return np.lexsort(
        (
            victims.started_s[positions],
            -victims.priority[positions],
            ~victims.violating[positions],
        )
    )


class PreemptionDryRun(Protocol):
    """Dry run of the real filters on a state without some pods.

    Rule R3: ``cycle``, which implements it, is above ``preemption``.
    """

    def taken(
        self, evicted: BoolArray, rows: IntArray, places: Sequence[IntArray]
    ) -> list[IntArray]:
        """Return how many of the planned members the nodes take, by shape and ``(n_rows,)``.

        ``evicted`` are victims by position; only the nodes ``rows`` (indices) are checked.
        """
        ...

    @property
    def is_local(self) -> bool:
        """Whether no answer depends on what happens on other nodes."""
        ...


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Victims and places; all members have one."""

    victims: tuple[PlacedPod, ...]  # without those that are being deleted already
    waits_for: tuple[PlacedPod, ...]  # those, on the nodes with places
    places: tuple[IntArray, ...]  # of each shape: rows of the cluster, one per member, ascending


def make_plan(
    problem: PreemptionProblem, dry_run: PreemptionDryRun | None = None
) -> PreemptionPlan | None:
    """Return the cheapest plan found; None if none was.

    That may be wrong where members differ, or where it matters which members a gang can spare.

    Without ``dry_run`` room is a matter of amounts alone.
    """
    if not might_fit(problem, problem.victims.levels - 1):
        return None
    for level in _levels(problem):
        choice = choose(problem, level)
        if choice is not None and dry_run is not None:
            choice = _tried(problem, level, choice, dry_run)
        if choice is not None:
            return _plan(problem, _without_needless_victims(problem, choice, dry_run))
    return None


def _levels(problem: PreemptionProblem) -> Iterator[int]:
    """Yield the lowest level that may be enough, some higher ones, and the highest."""
    top = problem.victims.levels - 1
    low = bisect_left(range(-1, top), x=True, key=lambda level: might_fit(problem, level)) - 1
    yield from range(low, min(low + MOST_LEVELS, top))
    yield top


def _tried(
    problem: PreemptionProblem, level: int, choice: VictimChoice, dry_run: PreemptionDryRun
) -> VictimChoice | None:
    """Confirm a choice by the real filters, or choose again with their result."""
    current: VictimChoice | None = choice
    for _ in range(MOST_TRIES):
        if current is None:
            return None
        taken = dry_run.taken(current.evicted, _used(current), current.places)
        short = _short(current, taken)
        if not len(short):
            return current
        if _evict_rows(problem, level, current, short):
            rows = _used(current) if not dry_run.is_local else short
            taken = dry_run.taken(current.evicted, rows, current.places)
            short = _short(current, taken, rows)
            if not len(short):
                return current
        shapes = []
        for shape, count in zip(problem.shapes, taken, strict=True):
            most = shape.most.copy()
            most[short] = np.minimum(most[short], count[short])
            shapes.append(replace(shape, most=most))
        problem = replace(problem, shapes=tuple(shapes))
        current = choose(problem, level)
    return None


def _used(choice: VictimChoice) -> IntArray:
    """Return the nodes on which members are planned."""
    return np.flatnonzero(sum(choice.places))


def _short(
    choice: VictimChoice, taken: Sequence[IntArray], rows: IntArray | None = None
) -> IntArray:
    """Return the nodes that take fewer members than planned."""
    pairs = zip(choice.places, taken, strict=True)
    is_short = np.logical_or.reduce([count < planned for planned, count in pairs])
    if rows is not None:
        selected = np.zeros(len(is_short), bool)
        selected[rows] = True
        is_short &= selected
    return np.flatnonzero(is_short)


def _evict_rows(
    problem: PreemptionProblem, level: int, choice: VictimChoice, rows: IntArray
) -> bool:
    """Evict all pods up to a level from these nodes; False if they all were already."""
    victims = problem.victims
    is_evicted = np.zeros(len(problem.rows), bool)
    is_evicted[rows] = True
    more = ~choice.evicted & (victims.level <= level) & is_evicted[victims.row]
    kept = more & (victims.gang >= 0) & (victims.whole_level > level)
    if kept.any():  # of jobs that may not go, no more than they can spare
        left = spare_left(victims, choice.evicted)
        for at in np.flatnonzero(kept).tolist():
            gang = victims.gang[at]
            more[at] = left[gang] > 0
            left[gang] -= 1
    if not more.any():
        return False
    evicted = close(problem, choice.evicted | more)
    choice.free += freed(victims, evicted & ~choice.evicted, len(problem.rows))
    choice.evicted = evicted
    return True


def _without_needless_victims(
    problem: PreemptionProblem, choice: VictimChoice, dry_run: PreemptionDryRun | None
) -> VictimChoice:
    """Return the choice without the victims that need not go."""
    spared = VictimChoice(choice.evicted.copy(), choice.free.copy(), choice.places)
    if dry_run is None:
        spare(problem, spared, None)
        return spared
    bound_run = dry_run

    def rejects(evicted: BoolArray, rows: IntArray) -> IntArray:
        rows = np.intersect1d(rows, used)
        return _short(choice, bound_run.taken(evicted, rows, choice.places), rows)

    used = _used(choice)
    spare(problem, spared, rejects)
    if not dry_run.is_local and len(
        _short(choice, dry_run.taken(spared.evicted, used, choice.places))
    ):
        return choice  # a reprieved pod is in the way on another node
    return spared


def _plan(problem: PreemptionProblem, choice: VictimChoice) -> PreemptionPlan:
    victims = problem.victims
    evicted = np.flatnonzero(choice.evicted & ~victims.terminating)
    chosen = [victims.pods[at] for at in evicted.tolist()]
    for job in broken_jobs(problem, choice.evicted):
        chosen += victims.jobs[job].outside
    used = np.zeros(len(problem.rows), bool)
    used[_used(choice)] = True
    leaving = np.flatnonzero(victims.terminating & used[victims.row])
    return PreemptionPlan(
        tuple(chosen),
        tuple(victims.pods[at] for at in leaving.tolist()),
        tuple(np.repeat(problem.rows, count) for count in choice.places),
    )
