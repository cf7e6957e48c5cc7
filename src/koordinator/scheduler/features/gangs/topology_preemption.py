"""Preemption for gangs with network demands, domain by domain.

A plan of the PostFilter plugins counts only if the gang then fits: that is verified on the state,
which is restored afterwards.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from koordinator.domain.gangs import GangAttempt, GangCache
from koordinator.domain.network import OUTSIDE
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.binding import Binder
from koordinator.scheduler.cycle import Nominations, SchedulingCycle, priority_of
from koordinator.scheduler.cycle.what_if import MOST_MEMBERS, MOST_PODS
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.features.gangs.placement import GangDecision, GangGroupAttempt, Wanted
from koordinator.scheduler.features.gangs.preemption import GangHeadroom, GangPreemption
from koordinator.scheduler.features.gangs.topology import TopologyDemand, TopologyPlacer
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.transaction import Transaction

MOST_DOMAINS = 32  # candidates tried, most free CPU first


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
        nominations: Nominations,
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
    here = {queued.key: cycle.run_key(pod_class) for queued, pod_class in members}
    if here.keys() != attempt.members.keys():
        return enough  # other members have nodes or are tried later
    classes = {cycle.run_key(pod_class): pod_class for _, pod_class in members}
    below = max(priority_of(queued.pod) for queued, _ in members)
    for run_key, count in attempt.least(here).items():
        bound = cycle.bound(classes[run_key])
        if bound is not None:
            enough &= bound.in_domains(below, of_row) >= count
    return enough
