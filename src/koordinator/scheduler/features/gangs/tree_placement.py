"""Placement of trees of PodGroups of scheduling.k8s.io, group by group.

A PodGroup needs enough members, a CompositePodGroup enough children; members of a group that fails
give up their nodes.

Source: kubernetes pkg/scheduler/schedule_one_podgroup.go
``compositePodGroupSchedulingPlacementAlgorithm``, ``compositePodGroupSchedulingDefaultAlgorithm``,
``completeCompositePodGroupAlgorithmResultMap``.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import field, replace

import numpy as np

from koordinator.domain.gangs import GangAttempt, GangCache, GroupTree
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Assumed, Binder
from koordinator.scheduler.cycle import ReserveRefusal, SchedulingCycle
from koordinator.scheduler.features.gangs.placement import (
    GangDecision,
    GangGroupAttempt,
    GangPlacer,
    Verdict,
    Wanted,
)
from koordinator.scheduler.features.gangs.pod_group_conditions import (
    UNSCHEDULABLE,
    placement_shortage,
    shortage,
)
from koordinator.scheduler.features.gangs.topology_placements import (
    PlacementConflict,
    PlacementPlacer,
    TopologyPlacement,
    best_placement,
)


@dataclass(slots=True)
class _Outcome:
    """Result of a group: the members with nodes, and why the others have none."""

    is_met: bool
    text: str = ""  # why the group failed, empty if it did not
    count: int = 0  # members with nodes, earlier ones included
    placed: list[Assumed] = field(default_factory=list)
    failed: list[tuple[Wanted, Verdict]] = field(default_factory=list)
    had_place: int = 0  # members that lost a node again
    #: members that lost a node because their PodGroup failed; all others without a verdict of
    #: their own, by gang id
    undone: defaultdict[str, list[Wanted]] = field(default_factory=lambda: defaultdict(list))
    untried: defaultdict[str, list[Wanted]] = field(default_factory=lambda: defaultdict(list))
    reasons: dict[str, str] = field(default_factory=dict)  # why PodGroups failed, by gang id

    def add(self, child: "_Outcome") -> None:
        """Include the result of a child."""
        self.count += child.count if child.is_met else 0
        self.had_place += child.had_place
        self.placed += child.placed
        self.failed += child.failed
        for own_id, members in child.undone.items():
            self.undone[own_id] += members
        for own_id, members in child.untried.items():
            self.untried[own_id] += members
        self.reasons |= child.reasons


class TreePlacer:
    """Placement of trees for one scheduler."""

    def __init__(self, binder: Binder, placer: GangPlacer, placements: PlacementPlacer) -> None:
        self._binder, self._placer, self._placements = binder, placer, placements

    def place(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
    ) -> GangDecision:
        """Assume the members of enough groups on nodes, or none.

        Raises PlacementConflict.
        """
        attempt = group_attempt.attempt
        tree = attempt.tree
        if tree is None:
            raise BugError(f"{group_attempt.head.key} is in no tree.")
        run = _TreeRun(self._binder, self._placer, self._placements, cycle, gangs, group_attempt)
        for wanted in members:
            run.members[attempt.members[wanted[0].key]].append(wanted)
            run.wanted[wanted[0].key] = wanted
        outcome = run.decide(tree, None)
        if not outcome.is_met or not outcome.placed:
            run.fail(tree, outcome, outcome.text or UNSCHEDULABLE)
            outcome.reasons[tree.id] = outcome.text
        return _decision(outcome, cycle.profile.gangs[0].name)

    def preemption_placements(
        self, cycle: SchedulingCycle, gangs: GangCache, tree: GroupTree
    ) -> Sequence[TopologyPlacement] | None:
        """Return the placements in which to make room; empty: anywhere, None: nowhere.

        For a tree with constraints below its topmost group see ``topology_preemption``.
        """
        if not tree.topology_key:
            return ()
        placed = gangs.places_of(tree)
        return self._placements.generate(cycle, placed, tree.topology_key) or None


@dataclass(slots=True)
class _TreeRun:
    """An attempt to place one tree."""

    binder: Binder
    placer: GangPlacer
    placements: PlacementPlacer
    cycle: SchedulingCycle
    gangs: GangCache
    group_attempt: GangGroupAttempt
    members: defaultdict[str, list[Wanted]] = field(default_factory=lambda: defaultdict(list))
    wanted: dict[str, Wanted] = field(default_factory=dict)  # the members by key of the pod

    def decide(self, group: GroupTree, mask: BoolArray | None) -> _Outcome:
        """Place a group in the best of its placements among the nodes of ``mask``."""
        if not group.topology_key:
            outcome = self._try(group, mask)
            if not outcome.is_met:
                self._name(group, outcome, placement_shortage(1, outcome.text))
            return outcome
        masks = self._masks(group, mask)
        first: _Outcome | None = None
        suitable: list[BoolArray] = []
        scores: list[list[int]] = []
        for one in masks:
            outcome = self._try(group, one)
            if outcome.is_met and outcome.count:
                suitable.append(one)
                scores.append(
                    self.placements.scores(self.cycle, np.flatnonzero(one), outcome.count)
                )
            first = first or outcome
            self._forget(outcome.placed)
        if suitable:
            return self._try(group, suitable[best_placement(self.cycle, scores)])
        if first is None:
            first = _Outcome(is_met=False, text=shortage(group.least, 0))
            self._leave(group, first)
        if first.is_met:  # without members to place
            return first
        self._name(group, first, placement_shortage(len(masks), first.text))
        return first

    def _masks(self, group: GroupTree, mask: BoolArray | None) -> list[BoolArray]:
        """Return the nodes of each placement; only of the one with members, if some have nodes."""
        placed = self.gangs.places_of(group)
        placements = self.placements.generate(self.cycle, placed, group.topology_key)
        masks = []
        for placement in placements:
            one = np.zeros(len(self.cycle.state.nodes), bool)
            one[placement.rows] = True
            masks.append(one if mask is None else one & mask)
        return [one for one in masks if one.any()]

    def _try(self, group: GroupTree, mask: BoolArray | None) -> _Outcome:
        return self._try_leaf(group, mask) if group.is_leaf else self._try_children(group, mask)

    def _try_leaf(self, leaf: GroupTree, mask: BoolArray | None) -> _Outcome:
        """Place enough members of a PodGroup, or none."""
        attempt, members = self.group_attempt.attempt, self.members[leaf.id]
        earlier = attempt.placed.get(leaf.id, 0)
        spare = len(members) - (leaf.least - earlier)
        if spare < 0:
            outcome = _Outcome(is_met=False, text=UNSCHEDULABLE)
            self._leave(leaf, outcome)
            return outcome
        outcome = _Outcome(is_met=True, count=earlier)
        if not members:
            return outcome
        leaf_of = {queued.key: leaf.id for queued, _ in members}
        own = GangAttempt(leaf.id, leaf_of, {leaf.id: spare})
        head = members[0][0]
        with nullcontext() if mask is None else self.cycle.restricted_to(mask):
            decision = self.placer.place(
                self.cycle,
                replace(self.group_attempt, attempt=own, head=head),
                members,
                merges=False,
            )
        outcome.failed += [((queued, kind), why) for queued, kind, why in decision.failed]
        if decision.is_lost:
            outcome.is_met, outcome.had_place = False, decision.had_place
            outcome.text = shortage(leaf.least, earlier + decision.had_place)
            undone = [self.wanted[queued.key] for queued in decision.others]
            outcome.undone[leaf.id] += undone[: decision.had_place]
            outcome.untried[leaf.id] += undone[decision.had_place :]
        else:
            outcome.placed += decision.placed
            outcome.count += len(decision.placed)
        return outcome

    def _try_children(self, group: GroupTree, mask: BoolArray | None) -> _Outcome:
        """Place enough children of a CompositePodGroup, or none."""
        total = _Outcome(is_met=True)
        met, remaining, left = 0, len(group.children), list(group.children)
        while left and met + remaining >= group.least:
            try:
                outcome = self.decide(left.pop(0), mask)
            except PlacementConflict:
                self._forget(total.placed)  # what earlier children have must not stay
                raise
            total.add(outcome)
            met, remaining = met + outcome.is_met, remaining - 1
        if met < group.least:
            text = f"minCount ({group.least}) cannot be satisfied: {met} scheduled, {remaining} "
            total.is_met, total.text = False, f"{text}remaining"
            self._take_back(total)
        for child in left:
            self._leave(child, total)
        return total

    def fail(self, group: GroupTree, outcome: _Outcome, text: str) -> None:
        """Take the nodes of all members back because the whole tree failed."""
        self._take_back(outcome)
        outcome.is_met = False
        self._name(group, outcome, text)

    def _take_back(self, outcome: _Outcome) -> None:
        """Take the nodes back from members whose own group would have started."""
        self._forget(outcome.placed)
        outcome.had_place += len(outcome.placed)
        for assumed in outcome.placed:
            key = assumed.queued.key
            outcome.untried[self.group_attempt.attempt.members[key]].append(self.wanted[key])
        outcome.placed = []

    def _leave(self, group: GroupTree, outcome: _Outcome) -> None:
        """Record that the members of a group were not tried."""
        for leaf in group.leaves:
            if self.members[leaf.id]:
                outcome.untried[leaf.id] += self.members[leaf.id]

    def _name(self, group: GroupTree, outcome: _Outcome, text: str) -> None:
        """Set why a group failed; its PodGroups without a reason of their own have the same."""
        outcome.text = text
        for leaf in group.leaves:
            outcome.reasons.setdefault(leaf.id, text)

    def _forget(self, placed: Sequence[Assumed]) -> None:
        for assumed in reversed(placed):
            self.binder.forget(assumed)


def has_constraint(group: GroupTree) -> bool:
    """Return whether a group of a tree has a topology constraint."""
    return bool(group.topology_key) or has_constraint_below(group)


def has_constraint_below(group: GroupTree) -> bool:
    """Return whether a group below another one has a topology constraint."""
    return any(map(has_constraint, group.children))


def _decision(outcome: _Outcome, plugin: str) -> GangDecision:
    """Return the decision; members whose group failed are refused by ``plugin``."""
    failed = [(queued, kind, why) for (queued, kind), why in outcome.failed]
    for groups, prefix in ((outcome.undone, f"{UNSCHEDULABLE}, "), (outcome.untried, "")):
        for own_id, members in groups.items():
            refusal = ReserveRefusal(plugin, prefix + outcome.reasons.get(own_id, outcome.text))
            failed += [(queued, kind, refusal) for queued, kind in members]
    return GangDecision(
        placed=outcome.placed,
        failed=failed,
        is_lost=not outcome.is_met,
        had_place=outcome.had_place,
        reasons=outcome.reasons,
    )
