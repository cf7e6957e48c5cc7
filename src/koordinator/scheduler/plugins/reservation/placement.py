"""Nodes for a reservation itself.

Source: koordinator pkg/scheduler/plugins/reservation/plugin.go, ``Filter``.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from koordinator.api.annotations.reservation import RESERVATION_NODE, RESERVE_POD
from koordinator.domain.reserve_pod import is_for_others
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.rules.reservations.offer import AllocatePolicy
from koordinator.scheduler.snapshot import PodClass, Snapshot

OTHER_NODE: Final = "node(s) didn't match the nodeName specified by reservation"
POLICY_CONFLICT: Final = "node(s) reservation allocate policy conflict"
REASONS: Final = (OTHER_NODE, POLICY_CONFLICT)


def placing(snapshot: Snapshot, pod: PodClass, policy: AllocatePolicy) -> Rejections:
    """Reject nodes other than the named one, and nodes with an incompatible allocate policy."""
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
    return Rejections.by_column((elsewhere, conflict), REASONS, elsewhere | conflict)


def reserves(pod: PodClass) -> bool:
    """Return whether such a pod reserves its requests for other pods."""
    return RESERVE_POD in pod.annotations or is_for_others(pod.labels)


def together(first: Rejections, then: Rejections) -> Rejections:
    """Return the combined rejections; the first takes precedence on a node."""
    shift = len(first.reasons)
    codes = np.where(first.codes > 0, first.codes, then.codes << shift)

    def explain(place: int) -> Sequence[str]:
        return reasons_of(first if first.codes[place] else then, place)

    unresolvable = np.where(first.codes > 0, first.unresolvable, then.unresolvable)
    return Rejections(codes, (*first.reasons, *then.reasons), unresolvable, explain)
