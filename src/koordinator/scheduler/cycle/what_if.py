"""States without some pods, for preemption.  The state is changed and changed back.

Reasons why nodes do not take all members of a job have the original's text.

Source: koordinator pkg/scheduler/plugins/coscheduling/core/preemption.go, ``dryRunPreemption``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract import Profile, Reads
from koordinator.scheduler.cycle.evaluation import NominatedPods, view_for
from koordinator.scheduler.cycle.job_headroom import free_headroom
from koordinator.scheduler.cycle.scorecard import scorecard
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.post_filter import Allows, ClassedPod, PostFilterResult
from koordinator.scheduler.preemption import breaks_gang
from koordinator.scheduler.snapshot import ClusterState, PlacedPod, PodClass, Snapshot
from koordinator.scheduler.transaction import Transaction

NO_POTENTIAL_VICTIMS: Final = "no potential victims"
MOST_MEMBERS, MOST_PODS = 64, 2048  # a larger job, or more victims, gets no reasons


class StateWhatIf:
    """Implements ``contract.WhatIf`` on the state itself, for one attempt."""

    def __init__(
        self, profile: Profile, state: ClusterState, nominated_pods: NominatedPods
    ) -> None:
        self._profile = profile
        self._state = state
        self._nominated = nominated_pods
        self.snapshot = Snapshot(state)

    def why_not(self, pod: PodClass, row: int, without: Sequence[PlacedPod]) -> tuple[str, ...]:
        """Return why the node would not take the pod even without those pods; empty: it would."""
        with Transaction(self._state) as transaction:
            for placed in without:
                transaction.displace(placed)
            return self._rejection(transaction, pod, row)[1]

    def rejection(self, pod: PodClass, row: int) -> tuple[str, tuple[str, ...]]:
        """Return the plugin that rejects the row, and its reasons; empty if none does."""
        with Transaction(self._state) as transaction:
            return self._rejection(transaction, pod, row)

    def _rejection(
        self, transaction: Transaction, pod: PodClass, row: int
    ) -> tuple[str, tuple[str, ...]]:
        alone = rejection(self._profile, self._state, pod, row)
        nominated_pods = self._nominated.get(self._state.nodes.names[row])
        if alone[0] or not nominated_pods:
            return alone
        for other, other_class in nominated_pods:
            transaction.place(f"nominated:{other.key}", other, other_class, row)
        return rejection(self._profile, self._state, pod, row)

    def breaks_gang(self, victims: Sequence[PlacedPod]) -> bool:
        """Return whether a gang would be left with too few members without those, but with some."""
        caches = [active.plugin.gangs for active in self._profile.gangs]
        return breaks_gang(self._state, caches, victims)

    def free_headroom(
        self,
        members: Sequence[ClassedPod],
        rows: IntArray | None = None,
        allows: Allows | None = None,
    ) -> PostFilterResult:
        """Return places for all members of a job, and the victims."""
        return free_headroom(
            self._profile, self._state, self._nominated, members, rows=rows, allows=allows
        )

    def job_reasons(
        self, members: Sequence[ClassedPod], rows: IntArray | None = None
    ) -> Mapping[str, int]:
        """Return what keeps a member of a job away without pods of lower priority: node counts."""
        return job_reasons(self._profile, self._state, members, rows)

    def fit_without(self, pod: PodClass, rows: IntArray, below: int) -> BoolArray:
        """Return ``(n,)``: the row takes the pod without all pods of priority < ``below``.

        Node-local filters run on all rows at a time, the others on each remaining row.
        """
        on_row = self._state.pods.on_row
        fit = np.ones(len(rows), bool)
        if not len(rows):
            return fit
        with Transaction(self._state) as transaction:
            for row in rows.tolist():
                for placed in lower_priority(on_row[row].values(), below):
                    transaction.displace(placed)
            snapshot = view_for(self._profile, self._state, pod)
            view = snapshot[rows]
            with view.restoring():
                for active in self._profile.filter:
                    local = active.plugin.reads is not Reads.CLUSTER
                    if local and active.hints.filters(snapshot, pod):
                        fit &= active.plugin.filter(view, pod).codes == 0
        for index in np.flatnonzero(fit).tolist():
            row = int(rows[index])
            fit[index] = not self.why_not(pod, row, lower_priority(on_row[row].values(), below))
        return fit


def lower_priority(pods: Iterable[PlacedPod], below: int) -> list[PlacedPod]:
    """Return the pods of priority < ``below``."""
    return [placed for placed in pods if placed.priority < below]


def rejection(
    profile: Profile, state: ClusterState, pod: PodClass, row: int
) -> tuple[str, tuple[str, ...]]:
    """Return the first filter that rejects the row as the state is now, and its reasons."""
    snapshot = view_for(profile, state, pod)
    view = snapshot[np.array([row])]
    with view.restoring():
        for active in profile.filter:
            if active.hints.filters(snapshot, pod):
                rejections = active.plugin.filter(view, pod)
                if rejections.codes[0]:
                    return active.name, tuple(reasons_of(rejections, 0))
    return "", ()


def job_reasons(
    profile: Profile, state: ClusterState, members: Sequence[ClassedPod], rows: IntArray | None
) -> Counter[str]:
    """Return on how many nodes each reason keeps a member away; the state is as before then.

    ``rows`` are where the members may be; None: anywhere.  Empty if all of them have places, or if
    it would take too long to find out.
    """
    below = min(pod.spec.priority or 0 for pod, _ in members)
    victims = [placed for placed in state.pods.by_key.values() if placed.priority < below]
    if len(members) > MOST_MEMBERS or len(victims) > MOST_PODS:
        return Counter()
    usable = np.ones(len(state.nodes), bool) if rows is None else np.zeros(len(state.nodes), bool)
    if rows is not None:
        usable[rows] = True
    with_victims = {victim.row for victim in victims}
    with Transaction(state) as transaction:
        for victim in victims:
            transaction.displace(victim)
        for number, (pod, pod_class) in enumerate(members):
            card = scorecard(profile, state, pod_class)
            feasible = card.feasible[usable[card.feasible]]
            if len(feasible):
                transaction.place(f"member:{number}", pod, pod_class, int(feasible[0]))
                continue
            counts: Counter[str] = Counter()
            for row in np.flatnonzero(usable & (card.rejected_by >= 0)).tolist():
                rejections = card.filters[card.rejected_by[row]][1]
                if row in with_victims:
                    counts.update(reasons_of(rejections, row))
                elif not np.broadcast_to(rejections.unresolvable, usable.shape)[row]:
                    counts[NO_POTENTIAL_VICTIMS] += 1
            return counts
    return Counter()
