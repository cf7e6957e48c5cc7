"""Where a reservation itself may go.

Source: koordinator pkg/scheduler/plugins/reservation/plugin.go, ``Filter``.
"""

from typing import Final

import numpy as np

from koordinator.api.annotations.reservation import RESERVATION_NODE, RESERVE_POD
from koordinator.domain.reservations.offer import AllocatePolicy
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.snapshot import PodClass, Snapshot

OTHER_NODE: Final = "node(s) didn't match the nodeName specified by reservation"
POLICY_CONFLICT: Final = "node(s) reservation allocate policy conflict"
REASONS: Final = (OTHER_NODE, POLICY_CONFLICT)


def placing(snapshot: Snapshot, pod: PodClass, policy: AllocatePolicy) -> Rejections:
    """Reject other nodes than the one it names, and nodes with reservations of another sort."""
    n = len(snapshot)
    elsewhere, conflict = np.zeros(n, bool), np.zeros(n, bool)
    named = pod.annotations.get(RESERVATION_NODE)
    if named and RESERVE_POD in pod.annotations:
        elsewhere = np.array([name != named for name in snapshot.node_names], bool)
    is_plain = policy is AllocatePolicy.DEFAULT
    on_row = snapshot.holds.on_row
    for place, row in enumerate(snapshot.row_numbers.tolist()) if on_row else ():
        holds = on_row.get(row)
        if holds:
            conflict[place] = any(
                (hold.offer.policy is AllocatePolicy.DEFAULT) is not is_plain
                for hold in holds.values()
                if hold.is_usable
            )
    return Rejections.by_column((elsewhere, conflict), REASONS, elsewhere)
