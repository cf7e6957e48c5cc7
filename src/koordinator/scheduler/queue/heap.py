"""Pods in the order of due time, priority (highest first), queueing time, sequence."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from koordinator.foundation.errors import BugError
from koordinator.scheduler.queue.queued_pod import Entry, QueuedPod

SLACK = 64  # stale entries that are never worth a rebuild


class PodHeap:
    """A binary heap.  A pod that leaves early forgets its entry, which is dropped on surfacing."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._live = 0  # entries that are their pod's current one

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[QueuedPod]:
        """Yield the pods in no useful order."""
        return (entry[4] for entry in self._entries if entry[4].entry is entry)

    def push(self, queued: QueuedPod, due_s: float) -> None:
        entry = (due_s, -queued.priority, queued.queued_at_s, queued.sequence, queued)
        queued.entry = entry
        self._live += 1
        heappush(self._entries, entry)

    def discard(self, queued: QueuedPod) -> None:
        """Take out a pod that is in this heap, wherever it stands."""
        queued.entry = None
        self._live -= 1
        if len(self._entries) > 2 * self._live + SLACK:
            self._entries = [entry for entry in self._entries if entry[4].entry is entry]
            heapify(self._entries)

    def due_s(self) -> float | None:
        """Return when the first pod is due."""
        first = self._first()
        return None if first is None else first[0]

    def first_due(self, now_s: float) -> QueuedPod | None:
        """Return the first pod, if it is due."""
        first = self._first()
        return None if first is None or first[0] > now_s else first[4]

    def take_run(self, limit: int) -> list[QueuedPod]:
        """Take the first pod and, up to ``limit``, those right behind it that equal it."""
        entries = self._entries
        run: list[QueuedPod] = []
        while entries and len(run) < limit:
            entry = entries[0]
            queued = entry[4]
            if queued.entry is entry:
                if run and not _continues(run[0], queued):
                    break
                queued.entry = None
                run.append(queued)
            heappop(entries)
        self._live -= len(run)
        return run

    def validate(self) -> None:
        """Raise BugError unless every live entry tells the truth and is ranked right."""
        live = [entry for entry in self._entries if entry[4].entry is entry]
        if len(live) != self._live:
            raise BugError(f"heap holds {len(live)} pods. Counted {self._live}.")
        for entry in live:
            queued = entry[4]
            if entry[1:4] != (-queued.priority, queued.queued_at_s, queued.sequence):
                raise BugError(f"{queued.key} is ranked by outdated facts {entry[:4]}.")
        for child in range(1, len(self._entries)):
            if self._entries[child] < self._entries[(child - 1) // 2]:
                raise BugError(f"heap order is broken at {self._entries[child][4].key}.")

    def _first(self) -> Entry | None:
        entries = self._entries
        while entries and entries[0][4].entry is not entries[0]:
            heappop(entries)
        return entries[0] if entries else None


def _continues(head: QueuedPod, queued: QueuedPod) -> bool:
    if head.run_key is None or queued.priority != head.priority:
        return False
    return queued.run_key is head.run_key or queued.run_key == head.run_key
