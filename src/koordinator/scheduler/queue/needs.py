"""Pods that each speak for a whole gang, by the room that they wait for.

Many gangs are alike: what an event means is asked once for all of a kind, and who can be helped is
looked up by how many places it needs.  So a gang that can't be helped costs nothing.
"""

from collections.abc import Hashable, Iterable, Iterator
from collections.abc import Set as AbstractSet

from koordinator.foundation.errors import BugError
from koordinator.scheduler.queue.queued_pod import QueuedPod

#: kind of pod, and the plugins that rejected them
Group = tuple[tuple[Hashable, int], frozenset[str]]


class Needs:
    """The UNSCHEDULABLE pods that have a ``need``."""

    def __init__(self) -> None:
        #: group -> number of places -> key -> pods that need so many; nothing is empty
        self._groups: dict[Group, dict[int, dict[str, QueuedPod]]] = {}
        self._touched: dict[Group, None] = {}

    def add(self, queued: QueuedPod) -> None:
        """Take in a pod that has a need."""
        group, count = _place(queued)
        self._groups.setdefault(group, {}).setdefault(count, {})[queued.key] = queued

    def discard(self, queued: QueuedPod) -> None:
        """Forget a pod that is here."""
        group, count = _place(queued)
        by_count = self._groups[group]
        del by_count[count][queued.key]
        if not by_count[count]:
            del by_count[count]
        if not by_count:
            del self._groups[group]
            self._touched.pop(group, None)

    def rejected_by(self, plugins: AbstractSet[str]) -> Iterator[tuple[Group, QueuedPod]]:
        """Yield a pod of each group that one of the plugins rejected and that is not touched."""
        for group in list(self._groups):
            if group not in self._touched and not group[1].isdisjoint(plugins):
                yield group, self._example(group)

    def touch(self, group: Group) -> None:
        """Note that something has happened that may help."""
        self._touched[group] = None

    @property
    def is_touched(self) -> bool:
        """Whether there is something to look at."""
        return bool(self._touched)

    def take_touched(self) -> list[tuple[Group, QueuedPod]]:
        """Return the groups that may be helped, each with one of its pods; none is touched then."""
        touched, self._touched = self._touched, {}
        return [(group, self._example(group)) for group in touched]

    def helped(self, group: Group, most: int) -> list[QueuedPod]:
        """Return the pods of a group that need no more than so many places."""
        by_count = self._groups.get(group, {})
        return [one for count, pods in by_count.items() if count <= most for one in pods.values()]

    def __iter__(self) -> Iterator[QueuedPod]:
        """Yield every pod."""
        for by_count in list(self._groups.values()):
            for pods in list(by_count.values()):
                yield from list(pods.values())

    def validate(self, expected: Iterable[QueuedPod]) -> None:
        """Raise BugError if others than these are here, or are filed wrongly."""
        found = {
            key: (group, count)
            for group, by_count in self._groups.items()
            for count, pods in by_count.items()
            for key in pods
        }
        wanted = {queued.key: _place(queued) for queued in expected}
        if found != wanted:
            raise BugError(f"needs are {wanted}. Indexed: {found}.")
        if not self._touched.keys() <= self._groups.keys():
            raise BugError(f"touched are {list(self._touched)}, which are not all there.")

    def _example(self, group: Group) -> QueuedPod:
        return next(iter(next(iter(self._groups[group].values())).values()))


def _place(queued: QueuedPod) -> tuple[Group, int]:
    if queued.need is None:
        raise BugError(f"{queued.key} needs nothing.")
    return (queued.need.kind, queued.rejectors), queued.need.count
