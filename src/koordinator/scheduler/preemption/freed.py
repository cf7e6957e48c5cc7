"""Amounts that evictions free where reservations, or pods that offer their amounts, hold some.

What a user takes of a hold goes back to the hold when the user is evicted, and is of use to those
who may use the hold; what it takes beyond the hold is free for all.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.snapshot import ClusterState, Hold, PlacedPod
from koordinator.scheduler.snapshot.axis import PODS


def correct_for_holds(
    amounts: IntArray,
    pods: Sequence[PlacedPod],
    columns: IntArray,
    state: ClusterState,
    lent: Iterable[Hold],
) -> None:
    """Lower the amounts ``(n_pods, n_columns)``, the demand of each pod, to what evictions free.

    The amounts of some pods add up to no more than evicting all of these frees.  ``lent`` are holds
    whose amounts are counted as free already.
    """
    # Evicting a reservation frees only what its users left of it, and evicting a user frees only
    # what it takes beyond its reservation.
    at_hand = {hold.placed.key for hold in lent}
    users: dict[str, list[int]] = defaultdict(list)
    for at, placed in enumerate(pods):
        allocation = placed.pod_allocation
        if allocation.offer is not None or placed.key in at_hand:
            hold = state.holds.by_uid.get(allocation.offer.uid) if allocation.offer else None
            left = {} if hold is None or placed.key in at_hand else dict(hold.left.demand)
            for index, column in enumerate(columns.tolist()):
                if column != PODS:
                    amounts[at, index] = min(int(amounts[at, index]), left.get(column, 0))
        if allocation.uses:
            users[allocation.uses].append(at)
    for uid, positions in users.items():
        hold = state.holds.by_uid.get(uid)
        if hold is not None and hold.placed.key not in at_hand:
            using = [at for at in positions if hold.users.get(pods[at].key) is pods[at]]
            _keep_beyond(amounts, using, columns, hold)


def _keep_beyond(
    amounts: IntArray, positions: Sequence[int], columns: IntArray, hold: Hold
) -> None:
    """Share among some users of a hold what all its users take beyond it."""
    has, left = dict(hold.placed.pod_class.demand), dict(hold.left.demand)
    for index, column in enumerate(columns.tolist()):
        if column == PODS:
            continue
        inside = has.get(column, 0) - left.get(column, 0)
        beyond = max(hold.taken.get(column, 0) - inside, 0)
        for at in positions:
            amounts[at, index] = min(int(amounts[at, index]), beyond)
            beyond -= int(amounts[at, index])
