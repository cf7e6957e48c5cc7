"""How many pods of a kind there is room for, and a bound of it after small changes.

For a *linear* kind of pod the number that fits is the sum over the nodes, whatever the order.  So
it can have grown by no more than what now fits on the nodes that have changed.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from koordinator.scheduler.snapshot import ClusterState, IntArray, PodClass

#: More changed rows than this, and counting anew is as cheap as a bound.
MOST_ROWS = 1024
UNBOUNDED = 1 << 40
#: What limits every pod wherever NodeResourcesFit runs; other resources may be ignored there.
LIMITS = ("cpu", "memory", "pods")


@dataclass(frozen=True, slots=True)
class RoomCount:
    """So many pods of a kind fitted on the nodes, at these positions of the logs."""

    count: int
    usage_position: int
    node_position: int
    versions: Hashable  # of the plugins; when they differ, any node may take more


def room_now(state: ClusterState, count: int, versions: Hashable) -> RoomCount:
    """Return a count made just now."""
    return RoomCount(count, state.usage_log.position, state.node_log.position, versions)


def room_at_most(state: ClusterState, pod: PodClass, room: RoomCount, versions: Hashable) -> int:
    """Return a number that the pods which fit now don't exceed."""
    if versions != room.versions:
        return UNBOUNDED
    changed = [
        log.since(position)
        for log, position in (
            (state.usage_log, room.usage_position),
            (state.node_log, room.node_position),
        )
    ]
    rows: list[IntArray] = [found for found in changed if found is not None]
    if len(rows) < len(changed) or sum(map(len, rows)) > MOST_ROWS:
        return UNBOUNDED
    return room.count + _fitting(state, pod, np.unique(np.concatenate(rows)))


def _fitting(state: ClusterState, pod: PodClass, rows: IntArray) -> int:
    """Return how many such pods fit on these rows by what they request alone."""
    nodes, names = state.nodes, state.axis.names
    if not len(rows):
        return 0
    most = np.full(len(rows), UNBOUNDED)
    for column, amount in pod.demand:
        if names[column] in LIMITS:
            free = nodes.allocatable[column, rows] - nodes.requested[column, rows]
            most = np.minimum(most, np.maximum(free, 0) // amount)
    return int(most[nodes.alive[rows]].sum())
