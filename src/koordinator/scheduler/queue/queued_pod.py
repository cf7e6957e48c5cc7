"""A waiting pod, the states it can be in and the moves between them.

Source: kubernetes pkg/scheduler/framework/types.go ``QueuedPodInfo``.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from koordinator.api.pod import Pod


class QueueState(StrEnum):
    """Where a pod waits, and for what."""

    ACTIVE = "active"  # its turn
    BACKOFF = "backoff"  # the time after a failed attempt
    UNSCHEDULABLE = "unschedulable"  # an event that helps
    GATED = "gated"  # an event that opens its gate
    IN_FLIGHT = "in_flight"  # the outcome of the attempt that is under way


#: From (None: not in the queue) -> to.  A pod may be removed in any state.
MOVES: Mapping[QueueState | None, frozenset[QueueState]] = {
    None: frozenset({QueueState.ACTIVE, QueueState.GATED}),
    QueueState.ACTIVE: frozenset({QueueState.IN_FLIGHT}),
    QueueState.BACKOFF: frozenset({QueueState.ACTIVE, QueueState.IN_FLIGHT}),
    QueueState.UNSCHEDULABLE: frozenset(
        {QueueState.ACTIVE, QueueState.BACKOFF, QueueState.GATED, QueueState.IN_FLIGHT},
    ),
    QueueState.GATED: frozenset(
        {QueueState.ACTIVE, QueueState.BACKOFF, QueueState.GATED, QueueState.IN_FLIGHT},
    ),
    QueueState.IN_FLIGHT: frozenset(
        {QueueState.ACTIVE, QueueState.BACKOFF, QueueState.UNSCHEDULABLE, QueueState.GATED},
    ),
}


@dataclass(frozen=True, slots=True)
class Need:
    """What a pod that speaks for a gang waits for: places for so many pods of some kinds."""

    kind: Hashable  # what makes an event mean the same to different gangs
    counts: tuple[int, ...]  # as many numbers for all needs of a kind


#: (due, -priority, queued at, sequence, pod).  The sequence is unique, so pods are never compared.
Entry = tuple[float, int, float, int, "QueuedPod"]


class QueuedPod(Struct, eq=False):  # a struct: one is made per pod
    """A pod and what happened to it so far.  Only the queue writes to it; others read."""

    key: str
    pod: Pod  # the newest version, also while in flight
    run_key: Hashable  # pods of one key, other than None, are interchangeable
    priority: int
    queued_at_s: float  # of the last add, reject or fail
    sequence: int  # order of those; breaks ties of time
    state: QueueState | None = None  # None: not in the queue (any more)
    first_attempt_s: float | None = None  # when it first became active
    attempts: int = 0
    unschedulable_count: int = 0  # attempts that ended in a rejection
    was_flushed: bool = (
        False  # waited too long for an event; until an attempt fails or a gate closes
    )
    error_count: int = 0  # attempts since the last one that did not end in an error
    #: plugins that rejected the pod last time, or the one that gates it; empty after an error
    rejected_by: frozenset[str] = frozenset()
    pending_on: frozenset[str] = (
        frozenset()
    )  # plugins that answered Pending: no backoff once they accept
    gated_by: str = ""  # not empty iff GATED
    #: only while UNSCHEDULABLE: no event that leaves less room than this can help
    need: Need | None = None
    message: str = ""  # why it is not running, as of the last attempt or gate
    entry: Entry | None = None  # its place in a heap; an older one is stale
    log_position: int = 0  # while IN_FLIGHT: what was in the event log when it was popped

    @property
    def rejectors(self) -> frozenset[str]:
        """The plugins whose events could wake the pod."""
        return self.rejected_by | self.pending_on if self.pending_on else self.rejected_by
