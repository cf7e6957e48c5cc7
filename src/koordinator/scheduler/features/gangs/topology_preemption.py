"""Room for a gang that wants to be near to itself: looked for domain by domain of the network.

A plan of the PostFilter plugins counts only if the gang would really start once the victims are
gone: that is tried in the state, and taken back.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from koordinator.domain.gangs import GangAttempt, GangBook
from koordinator.domain.network import OUTSIDE
from koordinator.scheduler.binding import Binder
from koordinator.scheduler.cycle import Cycle, Nominations, priority_of
from koordinator.scheduler.cycle.job_reasons import MOST_MEMBERS, MOST_PODS
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.features.gangs.placement import GangDecision, GangTurn, Wanted
from koordinator.scheduler.features.gangs.preemption import GangRooms, Room
from koordinator.scheduler.features.gangs.topology import Demand, Gatherer
from koordinator.scheduler.snapshot import BoolArray, ClusterState, IntArray
from koordinator.scheduler.transaction import Transaction

MOST_DOMAINS = 32  # of those that may be large enough; the most free cpu first


class GatheredRooms:
    """Asks for one scheduler."""

    def __init__(
        self, state: ClusterState, binder: Binder, rooms: GangRooms, gatherer: Gatherer
    ) -> None:
        self._state, self._binder, self._rooms, self._gatherer = state, binder, rooms, gatherer

    def find(
        self,
        cycle: Cycle,
        gangs: GangBook,
        turn: GangTurn,
        members: Sequence[Wanted],
        *,
        demand: Demand,
        decision: GangDecision,
        nominations: Nominations,
    ) -> Room:
        """Return room in the first domain that is found to be enough."""
        if demand.refusal:
            return Room()
        room = Room()
        for rows in self._domains(cycle, turn.attempt, demand, gangs, members):
            room = self._rooms.find(cycle, turn.attempt, decision, members, nominations, rows=rows)
            if room.pods and self._starts(cycle, gangs, turn, members, demand=demand, room=room):
                return room
        message = self._why_not(cycle, gangs, turn, members, demand=demand) or room.message
        return Room(message=message, is_asked=room.is_asked)

    def _why_not(
        self,
        cycle: Cycle,
        gangs: GangBook,
        turn: GangTurn,
        members: Sequence[Wanted],
        *,
        demand: Demand,
    ) -> str:
        """Return which domains would have how much room without anybody of lower priority.

        Empty if only that keeps nobody away, if jobs preempt nobody, or for very large jobs.
        """
        below = min(priority_of(queued.pod) for queued, _ in members)
        lower = [p for p in self._state.pods.by_key.values() if p.priority < below]
        preempts = any(hasattr(a.plugin, "job_refusal") for a in cycle.profile.post_filter)
        if not preempts or len(members) > MOST_MEMBERS or len(lower) > MOST_PODS:
            return ""
        with Transaction(self._state) as transaction:
            for victim in lower:
                transaction.displace(victim)
            decision = self._gatherer.place(
                cycle, gangs, turn, members, demand, nominated={}, merges=False
            )
            for assumed in reversed(decision.placed):
                self._binder.forget(assumed)
        verdict = decision.failed[0][2] if decision.is_lost and decision.failed else None
        return f"preemption: {verdict.refusal}" if isinstance(verdict, Diagnosis) else ""

    def _domains(
        self,
        cycle: Cycle,
        attempt: GangAttempt,
        demand: Demand,
        gangs: GangBook,
        members: Sequence[Wanted],
    ) -> Iterator[IntArray | None]:
        """Yield the rows of each domain that could take the gang; None: of all nodes."""
        tree = self._state.network.tree
        if tree is None or not demand.must:
            yield None
            return
        count, nodes = len(self._state.nodes), self._state.nodes
        of_row = tree.of_row(demand.must, count)
        held = self._gatherer.surroundings(gangs, members, {}).held
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
        cycle: Cycle,
        gangs: GangBook,
        turn: GangTurn,
        members: Sequence[Wanted],
        *,
        demand: Demand,
        room: Room,
    ) -> bool:
        """Return whether the gang finds places without the victims."""
        with Transaction(self._state) as transaction:
            for victim in room.victims:
                transaction.displace(victim)
            decision = self._gatherer.place(
                cycle, gangs, turn, members, demand, nominated={}, merges=False
            )
            for assumed in reversed(decision.placed):
                self._binder.forget(assumed)
        return not decision.is_lost


def _may_do(
    cycle: Cycle, attempt: GangAttempt, members: Sequence[Wanted], of_row: IntArray
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
