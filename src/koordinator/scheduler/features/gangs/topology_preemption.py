"""Preemption for gangs with network demands, and for trees of PodGroups with topology constraints.

A plan of the PostFilter plugins counts only if the gang then fits: that is verified on the state,
which is restored afterwards.

The tree is placed in a state without pods of lower priority.  Then these pods are added back one by
one; a pod that would take the place of a member is a victim.

Source: kubernetes pkg/scheduler/framework/preemption/podgrouppreemption.go.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from koordinator.api.labels import is_preemptible, is_quota_preemptible
from koordinator.api.policy import PodDisruptionBudget
from koordinator.domain.gangs import GangAttempt, GangCache
from koordinator.domain.network import OUTSIDE
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.binding import Assumed, Binder
from koordinator.scheduler.cycle import NominatedPods, SchedulingCycle, priority_of
from koordinator.scheduler.cycle.job_headroom import reads_other_nodes
from koordinator.scheduler.cycle.what_if import MOST_MEMBERS, MOST_PODS, rejection
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.features.gangs.placement import GangDecision, GangGroupAttempt, Wanted
from koordinator.scheduler.features.gangs.preemption import GangHeadroom, GangPreemption
from koordinator.scheduler.features.gangs.topology import TopologyDemand, TopologyPlacer
from koordinator.scheduler.features.gangs.topology_placements import PlacementConflict
from koordinator.scheduler.features.gangs.tree_placement import TreePlacer
from koordinator.scheduler.preemption import broken_gangs
from koordinator.scheduler.preemption.single_node import (
    PREEMPT_NEVER,
    by_importance,
    split_by_budget,
)
from koordinator.scheduler.snapshot import ClusterState, PlacedPod
from koordinator.scheduler.transaction import Transaction

MOST_DOMAINS = 32  # candidates tried, most free CPU first

log = logging.getLogger(__name__)

#: Checks of members whose filters read other nodes, in one attempt; no pod is decided meanwhile.
MOST_CHECKS: Final = MOST_MEMBERS * MOST_PODS


class TopologyPreemption:
    """Preemption by network domain for one scheduler."""

    def __init__(
        self,
        state: ClusterState,
        binder: Binder,
        headrooms: GangPreemption,
        topology_placer: TopologyPlacer,
    ) -> None:
        self._state, self._binder, self._headrooms, self._topology_placer = (
            state,
            binder,
            headrooms,
            topology_placer,
        )

    def find(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        *,
        demand: TopologyDemand,
        decision: GangDecision,
        nominations: NominatedPods,
    ) -> GangHeadroom:
        """Return the headroom of the first domain that suffices."""
        if demand.refusal:
            return GangHeadroom()
        headroom = GangHeadroom()
        for rows in self._domains(cycle, group_attempt.attempt, demand, gangs, members):
            headroom = self._headrooms.find(
                cycle, group_attempt.attempt, decision, members, nominations, rows=rows
            )
            if headroom.pods and self._starts(
                cycle, gangs, group_attempt, members, demand=demand, headroom=headroom
            ):
                return headroom
        message = (
            self._why_not(cycle, gangs, group_attempt, members, demand=demand) or headroom.message
        )
        return GangHeadroom(message=message, was_tried=headroom.was_tried)

    def _why_not(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        *,
        demand: TopologyDemand,
    ) -> str:
        """Return the headroom of domains without pods of lower priority.

        Return an empty text if the gang would fit then, if jobs do not preempt, or for very large
        jobs.
        """
        below = min(priority_of(queued.pod) for queued, _ in members)
        lower = [p for p in self._state.pods.by_key.values() if p.priority < below]
        preempts = any("job_refusal" in a.has for a in cycle.profile.post_filter)
        if not preempts or len(members) > MOST_MEMBERS or len(lower) > MOST_PODS:
            return ""
        with Transaction(self._state) as transaction:
            for victim in lower:
                transaction.displace(victim)
            decision = self._topology_placer.place(
                cycle, gangs, group_attempt, members, demand, nominated={}, merges=False
            )
            for assumed in reversed(decision.placed):
                self._binder.forget(assumed)
        verdict = decision.failed[0][2] if decision.is_lost and decision.failed else None
        return f"preemption: {verdict.refusal}" if isinstance(verdict, Diagnosis) else ""

    def _domains(
        self,
        cycle: SchedulingCycle,
        attempt: GangAttempt,
        demand: TopologyDemand,
        gangs: GangCache,
        members: Sequence[Wanted],
    ) -> Iterator[IntArray | None]:
        """Yield the rows of each domain that may fit the gang; None means all nodes."""
        tree = self._state.network.tree
        if tree is None or not demand.must:
            yield None
            return
        count, nodes = len(self._state.nodes), self._state.nodes
        of_row = tree.of_row(demand.must, count)
        existing = self._topology_placer.surroundings(gangs, members, {}).existing
        inside = (of_row != OUTSIDE) & nodes.alive[:count]
        if existing.any():
            inside &= np.isin(of_row, of_row[existing > 0])
        free = np.maximum(nodes.allocatable[0, :count] - nodes.requested[0, :count], 0)
        total = np.bincount(of_row[inside], free[inside])
        domains = np.unique(of_row[inside])
        domains = domains[_may_fit(cycle, attempt, members, of_row)[domains]]
        for domain in domains[np.argsort(-total[domains], kind="stable")][:MOST_DOMAINS].tolist():
            yield np.flatnonzero(inside & (of_row == domain))

    def _starts(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        *,
        demand: TopologyDemand,
        headroom: GangHeadroom,
    ) -> bool:
        """Return whether the gang fits without the victims."""
        with Transaction(self._state) as transaction:
            for victim in headroom.victims:
                transaction.displace(victim)
            decision = self._topology_placer.place(
                cycle, gangs, group_attempt, members, demand, nominated={}, merges=False
            )
            for assumed in reversed(decision.placed):
                self._binder.forget(assumed)
        return not decision.is_lost


def _may_fit(
    cycle: SchedulingCycle, attempt: GangAttempt, members: Sequence[Wanted], of_row: IntArray
) -> BoolArray:
    """Return ``(n_domains,)``: all may fit without pods of lower priority."""
    enough = np.ones(int(of_row.max(initial=-1)) + 1, bool)
    run_keys = {queued.key: cycle.run_key(pod_class) for queued, pod_class in members}
    if run_keys.keys() != attempt.members.keys():
        return enough  # other members have nodes or are tried later
    classes = {cycle.run_key(pod_class): pod_class for _, pod_class in members}
    below = max(priority_of(queued.pod) for queued, _ in members)
    for run_key, count in attempt.least(run_keys).items():
        bound = cycle.bound(classes[run_key])
        if bound is not None:
            enough &= bound.in_domains(below, of_row) >= count
    return enough


class TreePreemption:
    """Preemption for trees of one scheduler."""

    def __init__(self, state: ClusterState, binder: Binder, trees: TreePlacer) -> None:
        self._state, self._binder, self._trees = state, binder, trees

    def find(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
    ) -> GangHeadroom:
        """Return places for enough members of a tree, and the victims."""
        if any(queued.pod.spec.preemption_policy == PREEMPT_NEVER for queued, _ in members):
            return GangHeadroom()
        below = min(priority_of(queued.pod) for queued, _ in members)
        own = group_attempt.attempt.group_id.split(",")
        lower = [
            placed
            for placed in self._state.pods.by_key.values()
            if placed.row >= 0
            and placed.priority < below
            and is_preemptible(placed.pod_class.labels)
            and is_quota_preemptible(placed.pod_class.labels)
            and gangs.id_of(placed.pod) not in own
        ]
        leaving = [one for one in lower if one.pod.metadata.deletion_timestamp is not None]
        lower = [one for one in lower if one.pod.metadata.deletion_timestamp is None]
        caches = [active.plugin.gangs for active in cycle.profile.gangs]
        if len(members) * len(lower) > MOST_CHECKS and any(
            reads_other_nodes(cycle.profile, self._state, kind)
            for kind in {kind for _, kind in members}
        ):
            counts = {"members": len(members), "pods": len(lower)}
            log.info("preemption for a tree of PodGroups would take too long", extra=counts)
            return GangHeadroom()
        # Victims may break gangs, all of whose members must go then.  A gang with a member that may
        # not be preempted is spared, and the search starts again without it; each round spares at
        # least one pod, so the loop ends.
        while lower or leaving:
            if len(lower) > MOST_PODS:
                break
            headroom = self._try(cycle, gangs, group_attempt, members, leaving=leaving, lower=lower)
            if not headroom.pods:
                break
            broken = [*broken_gangs(self._state, caches, headroom.victims)]
            spared = {
                one.key
                for gang in broken
                if any(member.priority >= below for member in gang)
                for one in gang
            }
            if not spared:
                mates = {one.key: one for gang in broken for one in gang}
                victims = {one.key: one for one in headroom.victims} | mates
                return GangHeadroom(headroom.pods, tuple(victims.values()), was_tried=True)
            lower = [one for one in lower if one.key not in spared]
        return GangHeadroom(was_tried=bool(lower))

    def _try(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        *,
        leaving: Sequence[PlacedPod],
        lower: Sequence[PlacedPod],
    ) -> GangHeadroom:
        """Place the tree without some pods, and keep away only those that must go.

        The state is restored.
        """
        state, assumed = self._state, list[Assumed]()
        away = {placed.key: placed for placed in (*leaving, *lower)}
        for key in away:
            state.displace(key)
        try:
            decision = self._trees.place(cycle, gangs, group_attempt, members)
            assumed += decision.placed
            if decision.is_lost or not assumed:
                return GangHeadroom()
            # Reprieve the pods one by one, the most important first, as long as all members fit.
            for placed in self._order(lower):
                state.put_back(placed)
                del away[placed.key]
                if not self._all_fit(cycle, assumed, placed.row):
                    state.displace(placed.key)
                    away[placed.key] = placed
            victims = tuple(placed for placed in lower if placed.key in away)
            pods = {one.queued.key: (one.queued.pod, one.node) for one in assumed}
            return GangHeadroom(pods, victims)
        except PlacementConflict:
            return GangHeadroom()
        finally:
            for one in reversed(assumed):
                self._binder.forget(one)
            for placed in reversed(away.values()):
                state.put_back(placed)

    def _order(self, lower: Iterable[PlacedPod]) -> list[PlacedPod]:
        """Return pods in the order in which they come back: those with a budget first."""
        important = sorted(lower, key=by_importance)
        by_key = {placed.key: placed for placed in important}
        budgets = sorted(self._state.objects.all(PodDisruptionBudget), key=lambda one: one.key)
        pods = [placed.pod for placed in important]
        violating, others = split_by_budget(pods, budgets, to_first_exhausted=True)
        return [by_key[pod.key] for pod in (*violating, *others)]

    def _all_fit(self, cycle: SchedulingCycle, assumed: Sequence[Assumed], row: int) -> bool:
        """Return whether members keep their places with one more pod on a row.

        Only members whose filters read other nodes are checked elsewhere.
        """
        state, profile = self._state, cycle.profile
        assumed_on_other_rows = {one.placed.pod_class for one in assumed if one.placed.row != row}
        checked = {
            kind for kind in assumed_on_other_rows if reads_other_nodes(profile, state, kind)
        }
        for one in assumed:
            placed = one.placed
            if placed.row != row and placed.pod_class not in checked:
                continue
            state.displace(placed.key)
            try:
                refused, _ = rejection(profile, state, placed.pod_class, placed.row)
            finally:
                state.put_back(placed)
            if refused:
                return False
        return True
