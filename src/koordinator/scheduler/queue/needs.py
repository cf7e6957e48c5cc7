"""Pods that each speak for a whole gang, by the room that they wait for.

Many gangs are alike: what an event means is asked once for all of a kind, and who can be helped is
looked up by how many places it needs.  So a gang that can't be helped costs nothing.
"""

from collections.abc import Hashable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from operator import le

from koordinator.foundation.errors import BugError
from koordinator.scheduler.queue.queued_pod import QueuedPod

#: kind of pod, and the plugins that rejected them
Group = tuple[Hashable, frozenset[str]]
Counts = tuple[int, ...]


class Needs:
    """The UNSCHEDULABLE pods that have a ``need``."""

    def __init__(self) -> None:
        #: group -> numbers of places -> key -> pods that need so many; nothing is empty
        self.groups: dict[Group, dict[Counts, dict[str, QueuedPod]]] = {}
        #: groups that an event may have helped since ``take_touched``
        self.touched: dict[Group, None] = {}

    def add(self, queued: QueuedPod) -> None:
        """Take in a pod that has a need."""
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

    def helped(self, group: Group, most: Counts) -> list[QueuedPod]:
        """Return the pods of a group that need no more than so many places."""
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
        found = {
            key: (group, counts)
            for group, by_counts in self.groups.items()
            for counts, pods in by_counts.items()
            for key in pods
        }
        wanted = {queued.key: _place(queued) for queued in expected}
        if found != wanted:
            raise BugError(f"needs are {wanted}. Indexed: {found}.")
        if not self.touched.keys() <= self.groups.keys():
            raise BugError(f"touched are {list(self.touched)}, which are not all there.")

    def _example(self, group: Group) -> QueuedPod:
        return next(iter(next(iter(self.groups[group].values())).values()))


def _place(queued: QueuedPod) -> tuple[Group, Counts]:
    if queued.need is None:
        raise BugError(f"{queued.key} needs nothing.")
    return (queued.need.kind, queued.rejectors), queued.need.counts
