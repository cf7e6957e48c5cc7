"""Placement of the members of a gang group: enough of them, or none.

Placement changes only the in-memory state: nothing is written until enough members have nodes.  The
result of a gang that found too little capacity is cached, so that an attempt is cheap while the
capacity cannot suffice.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from itertools import groupby
from weakref import WeakKeyDictionary

import numpy as np

from koordinator.domain.gangs import GangAttempt
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Assumed, Binder
from koordinator.scheduler.cycle import (
    NodeChoice,
    ReserveRefusal,
    SchedulingCycle,
    Scorecard,
    priority_of,
)
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import PodClass

Verdict = Diagnosis | ReserveRefusal
Wanted = tuple[QueuedPod, PodClass]

MOST_TRIES = 4  # orders of runs of different members, the failed run first
KEPT = 1 << 14  # cached failures; the cache is cleared when full


@dataclass(slots=True)
class GangDecision:
    """Decision about the members; ``placed`` is empty if the attempt failed."""

    placed: list[Assumed] = field(default_factory=list)
    failed: list[tuple[QueuedPod, PodClass, Verdict]] = field(default_factory=list)
    #: of a failed attempt: members that had a node, and members that were not tried
    others: list[QueuedPod] = field(default_factory=list)
    untried: frozenset[str] = frozenset()  # of these, the keys of those not tried
    is_lost: bool = False
    had_place: int = 0
    placements: int | None = None  # number of placements tried; None without a topology constraint
    best: tuple[str, int] = ("", 0)  # of these, the one with room for the most members
    rejectors: frozenset[str] = frozenset()  # plugins whose events may help in any placement
    reasons: dict[str, str] = field(default_factory=dict)  # why groups of a tree failed, by id


@dataclass(frozen=True, slots=True)
class GangGroupAttempt:
    """Attempt to place a gang group, with its representative and version."""

    attempt: GangAttempt
    head: QueuedPod  # the representative from the queue
    version: Hashable  # changes with every change of the group


@dataclass(frozen=True, slots=True)
class LostGang:
    """Cached failure of a gang of identical members."""

    version: Hashable  # of the gang group
    least: int  # number of members that need a node
    pod_class: PodClass
    verdict: Verdict
    below: int  # priority of the most important member
    level: int | None = None  # level of the network domain that all must share


class GangPlacer:
    """Placement of gangs for one scheduler."""

    def __init__(
        self,
        binder: Binder,
        choose: Callable[[SchedulingCycle, QueuedPod, PodClass], NodeChoice | Verdict],
        diagnose: Callable[[SchedulingCycle, QueuedPod, PodClass], Diagnosis],
        card: Callable[[SchedulingCycle, PodClass], Scorecard | None],
    ) -> None:
        self._binder, self._choose, self._diagnose, self._card = binder, choose, diagnose, card
        self._lost: dict[str, LostGang] = {}  # by gang group
        #: by run key, the verdict on further members
        self._verdicts: WeakKeyDictionary[Hashable, Verdict] = WeakKeyDictionary()

    def still_lost(
        self, cycle: SchedulingCycle, group_id: str, version: Hashable
    ) -> LostGang | None:
        """Return the cached failure of a gang if capacity still cannot suffice."""
        lost = self._lost.get(group_id)
        if lost is None or lost.version != version:
            return None
        if cycle.headroom_at_most(lost.pod_class, lost.level) >= lost.least:
            del self._lost[group_id]
            return None
        return lost

    def remember(self, group_attempt: GangGroupAttempt, lost: LostGang) -> None:
        """Cache the failure of a gang of identical members."""
        if len(self._lost) >= KEPT:
            self._lost.clear()
        self._lost[group_attempt.attempt.group_id] = lost

    def forget(self, group_id: str) -> None:
        """Drop the cached failure of a gang group that lost a member."""
        self._lost.pop(group_id, None)

    def place(
        self,
        cycle: SchedulingCycle,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        *,
        merges: bool,
    ) -> GangDecision:
        """Assume the members on their nodes; ``merges`` allows to decide runs in one step.

        If too many members fit nowhere, none is assumed.  Among identical members the head counts
        as the failed one.
        """
        attempt = group_attempt.attempt
        own_keys = {queued.key for queued, _ in members}
        missing = [key for key in attempt.members if key not in own_keys]
        decision = GangDecision(is_lost=attempt.is_lost(missing))
        runs = _runs(cycle, members)
        if merges and not decision.is_lost and not missing and len(runs) == 1:
            self._place_alike(cycle, group_attempt, runs[0], decision)
            return decision
        first: set[str] = set()  # first members of the runs that were tried first
        for _ in range(0 if decision.is_lost else MOST_TRIES):
            decision = self._place_runs(cycle, attempt, runs, missing, merges=merges)
            if not decision.is_lost:
                return decision
            first.add(runs[0][0][0].key)
            failed = {queued.key for queued, _, _ in decision.failed}
            # Other members may have taken the only nodes that fit one of these.
            places = (
                place
                for place, run in enumerate(runs)
                if run[0][0].key not in first and not failed.isdisjoint(_keys(run))
            )
            place = next(places, None)
            if place is None:
                break
            runs.insert(0, runs.pop(place))
        if not decision.failed:
            decision.others = [queued for queued, _ in members]
        return decision

    def _place_runs(
        self,
        cycle: SchedulingCycle,
        attempt: GangAttempt,
        runs: Sequence[Sequence[Wanted]],
        missing: Sequence[str],
        *,
        merges: bool,
    ) -> GangDecision:
        """Place run after run; unreserve all as soon as too many members have failed."""
        decision = GangDecision()
        for run in runs:
            rows = cycle.choose_run([pod_class for _, pod_class in run]) if merges else None
            self._place_run(cycle, run, decision, rows)
            if decision.failed and attempt.is_lost(
                [*missing, *(queued.key for queued, _, _ in decision.failed)]
            ):
                decision.is_lost = True
                self._unreserve(decision, [wanted for one in runs for wanted in one])
                break
        return decision

    def _place_alike(
        self,
        cycle: SchedulingCycle,
        group_attempt: GangGroupAttempt,
        run: Sequence[Wanted],
        decision: GangDecision,
    ) -> None:
        """Place identical members, or record that capacity is too small for them."""
        attempt, keys, pod_class = group_attempt.attempt, _keys(run), run[0][1]
        run_key = cycle.run_key(pod_class)
        known = self._verdicts.get(run_key)
        if known is not None and _is_about_all_nodes(cycle, known):
            most = cycle.headroom_at_most(pod_class)
            if most < len(run) and attempt.is_lost(keys[most:]):
                self._record_failure(group_attempt, run, decision, known, had_place=most)
                return
        rows = cycle.choose_run([one for _, one in run])
        if rows is None or len(rows) == len(run) or not attempt.is_lost(keys[len(rows) :]):
            self._place_run(cycle, run, decision, rows)
            if decision.failed and attempt.is_lost(q.key for q, _, _ in decision.failed):
                decision.is_lost = True
                self._unreserve(decision, run)
            return
        verdict: Verdict
        if cycle.limit(pod_class, len(run)) == len(rows):  # nodes may fit more than the quota
            self._place_run(cycle, run, decision, rows)
            self._unreserve(decision, run)
            verdict = decision.failed[0][2]
        else:
            verdict = cycle.diagnose_after(pod_class, rows)
            cycle.note_headroom(pod_class, np.bincount(rows, minlength=len(cycle.state.nodes)))
        self._verdicts[run_key] = verdict
        self._record_failure(group_attempt, run, decision, verdict, had_place=len(rows))

    def _record_failure(
        self,
        group_attempt: GangGroupAttempt,
        run: Sequence[Wanted],
        decision: GangDecision,
        verdict: Verdict,
        *,
        had_place: int,
    ) -> None:
        attempt, keys, head = group_attempt.attempt, _keys(run), group_attempt.head
        numbers = range(len(run) + 1)
        least = bisect_left(numbers, x=True, key=lambda n: not attempt.is_lost(keys[n:]))
        pod_class = run[0][1]
        below = max(priority_of(queued.pod) for queued, _ in run)
        self.remember(
            group_attempt, LostGang(group_attempt.version, least, pod_class, verdict, below)
        )
        decision.is_lost = True
        decision.had_place = min(had_place, len(run) - 1)
        decision.failed = [(head, pod_class, verdict)]
        decision.others = [queued for queued, _ in run if queued is not head]

    def _place_run(
        self,
        cycle: SchedulingCycle,
        run: Sequence[Wanted],
        decision: GangDecision,
        rows: IntArray | None,
    ) -> None:
        """Place a run on the given rows, or decide its members one by one."""
        if rows is None:
            for queued, pod_class in run:
                choice = self._choose(cycle, queued, pod_class)
                if isinstance(choice, NodeChoice):
                    card = self._card(cycle, pod_class)
                    assumed = self._binder.assume(queued, pod_class, choice)
                    assumed.scorecard = card
                    decision.placed.append(assumed)
                else:
                    decision.failed.append((queued, pod_class, choice))
            return
        done, left = run[: len(rows)], run[len(rows) :]
        queued_pods, classes = [q for q, _ in done], [c for _, c in done]
        decision.placed += self._binder.assume_run(queued_pods, classes, rows)
        if left:
            why = self._diagnose(cycle, *left[0])
            decision.failed += [(queued, pod_class, why) for queued, pod_class in left]

    def _unreserve(self, decision: GangDecision, members: Sequence[Wanted]) -> None:
        for assumed in reversed(decision.placed):
            self._binder.forget(assumed)
        decision.had_place = len(decision.placed)
        placed = {assumed.queued.key for assumed in decision.placed}
        decision.placed.clear()
        failed = {queued.key for queued, _, _ in decision.failed}
        keys = {queued.key for queued, _ in members}
        decision.untried = frozenset(keys - failed - placed)
        decision.others = [queued for queued, _ in members if queued.key not in failed]


def rejectors_of(verdict: Verdict) -> frozenset[str]:
    """Return the plugins that rejected a member."""
    if isinstance(verdict, ReserveRefusal):
        return frozenset((verdict.plugin,))
    return verdict.plugins


def _is_about_all_nodes(cycle: SchedulingCycle, verdict: Verdict) -> bool:
    """Return whether the number of nodes is the same as at the verdict."""
    return isinstance(verdict, ReserveRefusal) or verdict.node_count == cycle.state.nodes.count


def _keys(members: Sequence[Wanted]) -> list[str]:
    return [queued.key for queued, _ in members]


def _runs(cycle: SchedulingCycle, members: Sequence[Wanted]) -> list[list[Wanted]]:
    """Group adjacent members that can be decided as one run."""

    def run_key(member: Wanted) -> Hashable:
        return cycle.run_key(member[1])

    return [list(run) for _, run in groupby(members, run_key)]
