"""Reasons why nodes do not take all members of a job without pods of lower priority.

For the message, which is the original's. Source: koordinator
pkg/scheduler/plugins/coscheduling/core/preemption.go, ``dryRunPreemption``.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import Profile
from koordinator.scheduler.cycle.scorecard import scorecard
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.post_filter import Member
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.transaction import Transaction

NO_POTENTIAL_VICTIMS: Final = "no potential victims"
MOST_MEMBERS, MOST_PODS = 64, 2048  # a larger job, or more victims, gets no reasons


def job_reasons(
    profile: Profile, state: ClusterState, members: Sequence[Member], rows: IntArray | None
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
            found: Counter[str] = Counter()
            for row in np.flatnonzero(usable & (card.rejected_by >= 0)).tolist():
                rejections = card.filters[card.rejected_by[row]][1]
                if row in with_victims:
                    found.update(reasons_of(rejections, row))
                elif not np.broadcast_to(rejections.unresolvable, usable.shape)[row]:
                    found[NO_POTENTIAL_VICTIMS] += 1
            return found
    return Counter()
