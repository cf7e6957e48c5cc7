"""Waiting pods: their states, the moves between them, and the room that gangs wait for.

Many gangs are alike, so the effect of an event is computed once per kind, and the gangs that it may
help are looked up by the number of places that they need.  An event costs nothing for the others.

Source: kubernetes pkg/scheduler/framework/types.go ``QueuedPodInfo``.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from operator import le

from msgspec import Struct

from koordinator.api.pod import Pod
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass

#: kind of pod, and the plugins that rejected them
Group = tuple[Hashable, frozenset[str]]
PlaceCounts = tuple[int, ...]


class QueueState(StrEnum):
    """State of a pod in the queue."""

    ACTIVE = "active"  # its turn
    BACKOFF = "backoff"  # the time after a failed attempt
    UNSCHEDULABLE = "unschedulable"  # an event that helps
    GATED = "gated"  # an event that opens its gate
    IN_FLIGHT = "in_flight"  # outcome of the current attempt


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
    """Places that the representative of a gang waits for: numbers of pods of some kinds."""

    kind: Hashable  # what makes an event mean the same to different gangs
    counts: tuple[int, ...]  # as many numbers for all needs of a kind


#: (due, -priority, queued at, sequence, pod).  The sequence is unique, so pods are never compared.
HeapEntry = tuple[float, int, float, int, "QueuedPod"]


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
    entry: HeapEntry | None = None  # its place in a heap; an older one is stale
    log_position: int = 0  # while IN_FLIGHT: the position in the event log when it was popped

    @property
    def rejectors(self) -> frozenset[str]:
        """The plugins whose events could wake the pod."""
        return self.rejected_by | self.pending_on if self.pending_on else self.rejected_by


class Needs:
    """The UNSCHEDULABLE pods that have a ``need``."""

    def __init__(self) -> None:
        #: group -> numbers of places -> key -> pods that need so many; nothing is empty
        self.groups: dict[Group, dict[PlaceCounts, dict[str, QueuedPod]]] = {}
        #: groups that an event may have helped since ``take_touched``
        self.touched: dict[Group, None] = {}

    def add(self, queued: QueuedPod) -> None:
        """Add a pod that has a need."""
        group, counts = _place(queued)
        self.groups.setdefault(group, {}).setdefault(counts, {})[queued.key] = queued

    def discard(self, queued: QueuedPod) -> None:
        """Forget a pod that is here."""
        group, counts = _place(queued)
        by_counts = self.groups[group]
        del by_counts[counts][queued.key]
        if not by_counts[counts]:
            del by_counts[counts]
        if not by_counts:
            del self.groups[group]
            self.touched.pop(group, None)

    def rejected_by(self, plugins: AbstractSet[str]) -> Iterator[tuple[Group, QueuedPod]]:
        """Yield a pod of each group that one of the plugins rejected and that is not touched."""
        for group in list(self.groups):
            if group not in self.touched and not group[1].isdisjoint(plugins):
                yield group, self._example(group)

    def touch(self, group: Group) -> None:
        """Note that something has happened that may help."""
        self.touched[group] = None

    def take_touched(self) -> list[tuple[Group, QueuedPod]]:
        """Return the groups that may be helped, each with one of its pods; none is touched then."""
        touched, self.touched = self.touched, {}
        return [(group, self._example(group)) for group in touched]

    def helped(self, group: Group, most: PlaceCounts) -> list[QueuedPod]:
        """Return the pods of a group that need at most ``most`` places."""
        return [
            one
            for counts, pods in self.groups.get(group, {}).items()
            if all(map(le, counts, most))
            for one in pods.values()
        ]

    def __iter__(self) -> Iterator[QueuedPod]:
        """Yield every pod."""
        for by_counts in list(self.groups.values()):
            for pods in list(by_counts.values()):
                yield from list(pods.values())

    def validate(self, expected: Iterable[QueuedPod]) -> None:
        """Raise BugError if others than these are here, or are filed wrongly."""
        indexed = {
            key: (group, counts)
            for group, by_counts in self.groups.items()
            for counts, pods in by_counts.items()
            for key in pods
        }
        wanted = {queued.key: _place(queued) for queued in expected}
        if indexed != wanted:
            raise BugError(f"needs are {wanted}. Indexed: {indexed}.")
        if not self.touched.keys() <= self.groups.keys():
            raise BugError(f"touched are {list(self.touched)}, which are not all there.")

    def _example(self, group: Group) -> QueuedPod:
        return next(iter(next(iter(self.groups[group].values())).values()))


def _place(queued: QueuedPod) -> tuple[Group, PlaceCounts]:
    if queued.need is None:
        raise BugError(f"{queued.key} needs nothing.")
    return (queued.need.kind, queued.rejectors), queued.need.counts
