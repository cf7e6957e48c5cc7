"""Room for a gang that wants to be near to itself: looked for domain by domain of the network.

A plan of the PostFilter plugins counts only if the gang would really start once the victims are
gone: that is tried in the state, and taken back.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from koordinator.domain.gangs import GangAttempt, GangCache
from koordinator.domain.network import OUTSIDE
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.binding import Binder
from koordinator.scheduler.cycle import Nominations, SchedulingCycle, priority_of
from koordinator.scheduler.cycle.job_reasons import MOST_MEMBERS, MOST_PODS
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.features.gangs.placement import GangDecision, GangGroupAttempt, Wanted
from koordinator.scheduler.features.gangs.preemption import GangHeadroom, GangPreemption
from koordinator.scheduler.features.gangs.topology import TopologyDemand, TopologyPlacer
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.transaction import Transaction

MOST_DOMAINS = 32  # of those that may be large enough; the most free cpu first


class TopologyPreemption:
    """Asks for one scheduler."""

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
        """Return room in the first domain that is found to be enough."""
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
        return GangHeadroom(message=message, is_asked=headroom.is_asked)

    def _why_not(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        *,
        demand: TopologyDemand,
    ) -> str:
        """Return which domains would have how much room without anybody of lower priority.

        Empty if only that keeps nobody away, if jobs preempt nobody, or for very large jobs.
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
        """Yield the rows of each domain that could take the gang; None: of all nodes."""
        tree = self._state.network.tree
        if tree is None or not demand.must:
            yield None
            return
        count, nodes = len(self._state.nodes), self._state.nodes
        of_row = tree.of_row(demand.must, count)
        held = self._topology_placer.surroundings(gangs, members, {}).held
        inside = (of_row != OUTSIDE) & nodes.alive[:count]
        if held.any():
            inside &= np.isin(of_row, of_row[held > 0])
        free = np.maximum(nodes.allocatable[0, :count] - nodes.requested[0, :count], 0)
        total = np.bincount(of_row[inside], free[inside])
        domains = np.unique(of_row[inside])
        domains = domains[_may_do(cycle, attempt, members, of_row)[domains]]
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
        """Return whether the gang finds places without the victims."""
        with Transaction(self._state) as transaction:
            for victim in headroom.victims:
                transaction.displace(victim)
            decision = self._topology_placer.place(
                cycle, gangs, group_attempt, members, demand, nominated={}, merges=False
            )
            for assumed in reversed(decision.placed):
                self._binder.forget(assumed)
        return not decision.is_lost


def _may_do(
    cycle: SchedulingCycle, attempt: GangAttempt, members: Sequence[Wanted], of_row: IntArray
) -> BoolArray:
    """Return ``(n_domains,)``: there may be room for all, if whoever is less important goes."""
    enough = np.ones(int(of_row.max(initial=-1)) + 1, bool)
    here = {queued.key: cycle.run_key(pod_class) for queued, pod_class in members}
    if here.keys() != attempt.members.keys():
        return enough  # others of them have places, or will ask another time
    classes = {cycle.run_key(pod_class): pod_class for _, pod_class in members}
    below = max(priority_of(queued.pod) for queued, _ in members)
    for run_key, count in attempt.least(here).items():
        bound = cycle.bound(classes[run_key])
        if bound is not None:
            enough &= bound.in_domains(below, of_row) >= count
    return enough
