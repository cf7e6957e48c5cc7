"""The pods of each state and every index over them.  The one place that writes ``QueuedPod.state``.

Events that come while pods are in flight are kept: one may help a pod that is then rejected.

Source: kubernetes v1.35 pkg/scheduler/backend/queue/backoff_queue.go and unschedulable_pods.go;
kubernetes pkg/scheduler/backend/queue/active_queue.go ``inFlightEvents``; the bound is ours.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import floor, inf, ldexp

from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import ClusterEvent
from koordinator.scheduler.queue.queued_groups import QueuedGroups
from koordinator.scheduler.queue.queued_pod import MOVES, HeapEntry, Needs, QueuedPod, QueueState

CAPACITY = 1 << 14
#: An event, and the key of the only pod that it concerns; None: all pods
LogEntry = tuple[ClusterEvent, str | None]
WINDOW_S = 1.0  # backoffs end together at whole seconds, so that priority decides who is first
MAX_DOUBLINGS = 62
SLACK = 64  # stale entries that are never worth a rebuild

WAITING = frozenset({QueueState.UNSCHEDULABLE, QueueState.GATED})


@dataclass(frozen=True, slots=True)
class Delays:
    """Durations for which pods wait."""

    initial_backoff_s: float
    max_backoff_s: float  # 0: no backoff at all
    max_unschedulable_s: float

    def ready_at_s(self, queued: QueuedPod) -> float:
        """Return the first whole second after the backoff, which doubles with every failure."""
        failures = queued.error_count or queued.unschedulable_count
        if failures == 0 or self.max_backoff_s == 0:
            return -inf
        doubled_s = ldexp(self.initial_backoff_s, min(failures - 1, MAX_DOUBLINGS))
        return floor(queued.queued_at_s + min(doubled_s, self.max_backoff_s)) + WINDOW_S

    def due_s(self, queued: QueuedPod) -> float:
        """Return when the pod leaves its state without an event; 0 if it may leave at any time."""
        match queued.state:
            case QueueState.BACKOFF:
                return self.ready_at_s(queued)
            case QueueState.UNSCHEDULABLE:
                return queued.queued_at_s + self.max_unschedulable_s
            case _:
                return 0.0


class PodHeap:
    """Pods in the order of due time, priority (highest first), queueing time, sequence.

    A binary heap.  A pod that leaves early forgets its entry, which is dropped on surfacing.
    """

    def __init__(self) -> None:
        self._entries: list[HeapEntry] = []
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
        """Remove a pod of this heap; its entry stays until it surfaces or the heap is rebuilt."""
        queued.entry = None
        self._live -= 1
        if not self._live:  # stale entries keep their pods in memory
            self._entries.clear()
        elif len(self._entries) > 2 * self._live + SLACK:
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
        """Pop the first pod and, up to ``limit``, the following ones with the same run key."""
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
        """Raise BugError if a live entry is outdated or ranked wrongly."""
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

    def _first(self) -> HeapEntry | None:
        entries = self._entries
        while entries and entries[0][4].entry is not entries[0]:
            heappop(entries)
        return entries[0] if entries else None


def _continues(head: QueuedPod, queued: QueuedPod) -> bool:
    if head.run_key is None or queued.priority != head.priority:
        return False
    return queued.run_key is head.run_key or queued.run_key == head.run_key


class Pools:
    """Every pod of the queue, in exactly one state."""

    def __init__(self, delays: Delays, groups: QueuedGroups | None) -> None:
        self.delays = delays
        self.groups = groups
        self.pods: dict[str, QueuedPod] = {}
        self.counts = dict.fromkeys(QueueState, 0)
        self.active = PodHeap()
        self.backoff = PodHeap()  # after a rejection
        self.error_backoff = PodHeap()
        self.unschedulable = PodHeap()
        #: plugin -> key -> pods that it rejected (UNSCHEDULABLE) or gates (GATED), without a need
        self.waiting: dict[str, dict[str, QueuedPod]] = {}
        self.needs = Needs()
        self.log = EventLog()  # its readers are the pods IN_FLIGHT

    def enter(self, queued: QueuedPod, state: QueueState) -> None:
        """Put the pod, which just left its state, into another one."""
        self._check_move(queued, state)
        queued.state = state
        self.counts[state] += 1
        if self.groups is not None:
            self.groups.move(queued, None, state)
        heap = self._heap(queued)
        if heap is not None:
            heap.push(queued, self.delays.due_s(queued))
        if queued.need is not None:
            self.needs.add(queued)
        elif state in WAITING:
            for plugin in queued.rejectors:
                self.waiting.setdefault(plugin, {})[queued.key] = queued
        elif state is QueueState.IN_FLIGHT:
            queued.log_position = self.log.open()

    def enter_active(self, queued: QueuedPod) -> None:
        """Put a pod that was in no state among the active ones."""
        queued.state = QueueState.ACTIVE
        self.counts[QueueState.ACTIVE] += 1
        if self.groups is not None:
            self.groups.move(queued, None, QueueState.ACTIVE)
        self.active.push(queued, 0.0)

    def leave(self, queued: QueuedPod) -> None:
        """Remove the pod from every index; its ``state`` is still the one that it left."""
        if queued.state is None:
            return
        self.counts[queued.state] -= 1
        if self.groups is not None:
            self.groups.move(queued, queued.state, None)
        heap = self._heap(queued)
        if heap is not None:
            heap.discard(queued)
        if queued.need is not None:
            self.needs.discard(queued)
            queued.need = None
        elif queued.state in WAITING:
            for plugin in queued.rejectors:
                del self.waiting[plugin][queued.key]
        elif queued.state is QueueState.IN_FLIGHT:
            self.log.close(queued.log_position)

    def take_off(self, source: PodHeap, limit: int) -> list[QueuedPod]:
        """Put the first pods of a heap in flight, all at once; see ``PodHeap.take_run``."""
        run = source.take_run(limit)
        if not run:
            return run
        self._check_move(run[0], QueueState.IN_FLIGHT)
        if run[0].state is not None:
            self.counts[run[0].state] -= len(run)
        self.counts[QueueState.IN_FLIGHT] += len(run)
        position = self.log.open(len(run))
        if self.groups is not None:
            for queued in run:
                self.groups.move(queued, queued.state, QueueState.IN_FLIGHT)
        for queued in run:
            queued.state = QueueState.IN_FLIGHT
            queued.log_position = position
        return run

    def end_flights(self, pods: Sequence[QueuedPod]) -> None:
        """Forget pods in flight."""
        self.counts[QueueState.IN_FLIGHT] -= len(pods)
        if self.groups is not None:
            for queued in pods:
                self.groups.move(queued, QueueState.IN_FLIGHT, None)
                self.groups.forget(queued)
        for queued in pods:
            del self.pods[queued.key]
            queued.state = None
        for position, readers in Counter([queued.log_position for queued in pods]).items():
            self.log.close(position, readers)

    def rerank(self, queued: QueuedPod, priority: int, sequence: int) -> None:
        """Change the priority.  A new sequence keeps its rank apart from that of a stale entry."""
        heap = self._heap(queued)
        if heap is not None:
            heap.discard(queued)
        queued.priority = priority
        queued.sequence = sequence
        if heap is not None:
            heap.push(queued, self.delays.due_s(queued))

    def validate(self) -> None:
        """Recompute every index from the pods, and raise BugError where one differs."""
        self._validate_heaps()
        waiting: dict[str, set[str]] = {}
        for key, queued in self.pods.items():
            if key != queued.key or key != queued.pod.key or queued.state is None:
                raise BugError(f"{queued.key} is filed as {key}, state {queued.state}.")
            if bool(queued.gated_by) != (queued.state is QueueState.GATED):
                raise BugError(f"{key} is {queued.state}, gated by {queued.gated_by!r}.")
            if queued.need is not None and queued.state is not QueueState.UNSCHEDULABLE:
                raise BugError(f"{key} is {queued.state} and needs {queued.need}.")
            if queued.state in WAITING and queued.need is None:
                for plugin in queued.rejectors:
                    waiting.setdefault(plugin, set()).add(key)
        self.needs.validate(one for one in self.pods.values() if one.need is not None)
        indexed = {plugin: set(pods) for plugin, pods in self.waiting.items() if pods}
        if waiting != indexed:
            raise BugError(f"pods by rejector are {waiting}. Indexed: {indexed}.")
        counts = Counter(queued.state for queued in self.pods.values())
        if any(counts[state] != self.counts[state] for state in QueueState):
            raise BugError(f"there are {counts} pods. Counted {self.counts}.")
        if self.groups is not None:
            self.groups.validate(self.pods.values())
        in_flight = (q for q in self.pods.values() if q.state is QueueState.IN_FLIGHT)
        self.log.validate(queued.log_position for queued in in_flight)

    def _validate_heaps(self) -> None:
        heaps = (self.active, self.backoff, self.error_backoff, self.unschedulable)
        for heap in heaps:
            heap.validate()
        filed = [(queued, heap) for heap in heaps for queued in heap]
        for queued, heap in filed:
            if self.pods.get(queued.key) is not queued or self._heap(queued) is not heap:
                raise BugError(f"{queued.key} is {queued.state} and in a heap of other pods.")
            if queued.entry is not None and queued.entry[0] != self.delays.due_s(queued):
                raise BugError(f"{queued.key} is due at another time than {queued.entry[0]}.")
        expected = sum(self._heap(queued) is not None for queued in self.pods.values())
        if len(filed) != expected:
            raise BugError(f"{len(filed)} pods are in heaps. {expected} should be.")

    def _heap(self, queued: QueuedPod) -> PodHeap | None:
        match queued.state:
            case QueueState.ACTIVE:
                return self.active
            case QueueState.BACKOFF:
                return self.backoff if queued.rejectors else self.error_backoff
            case QueueState.UNSCHEDULABLE:
                return self.unschedulable
            case _:
                return None

    @staticmethod
    def _check_move(queued: QueuedPod, state: QueueState) -> None:
        if state not in MOVES[queued.state]:
            raise BugError(f"{queued.key} cannot go from {queued.state} to {state}.")


class EventLog:
    """The log of all attempts.  A reader keeps its position; unreadable entries are dropped."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._entries: list[LogEntry] = []
        self._start = 0  # position of _entries[0]
        self._capacity = capacity
        self._readers: OrderedDict[int, int] = OrderedDict()  # position -> how many, ascending

    def __len__(self) -> int:
        return len(self._entries)

    def counts(self) -> Counter[str]:
        """Return the number of recorded events, by their name in metrics."""
        return Counter(event.label for event, _ in list(self._entries))

    def open(self, readers: int = 1) -> int:
        """Add readers at the current position, and return it."""
        position = self._start + len(self._entries)
        self._readers[position] = self._readers.get(position, 0) + readers
        return position

    def close(self, position: int, readers: int = 1) -> None:
        """Remove readers of a position."""
        self._readers[position] -= readers
        if self._readers[position] == 0:
            del self._readers[position]
            first = next(iter(self._readers), self._start + len(self._entries))
            self._drop_before(first)

    def append(self, event: ClusterEvent, target: str | None = None) -> None:
        """Record an event if there are readers.  A full log drops its older half."""
        if not self._readers:
            return
        if len(self._entries) == self._capacity:
            self._drop_before(self._start + self._capacity // 2)
        self._entries.append((event, target))

    def since(self, position: int) -> list[LogEntry] | None:
        """Return the events after a position; None if some of them were dropped."""
        if position < self._start:
            return None
        return self._entries[position - self._start :]

    def validate(self, positions: Iterable[int]) -> None:
        """Raise BugError unless these are the readers, and no event is kept without a reader."""
        readers = Counter(positions)
        if readers != self._readers:
            raise BugError(f"event log has readers {dict(self._readers)}. Counted {dict(readers)}.")
        if self._entries and self._start < min(readers, default=self._start + 1):
            raise BugError(f"event log keeps {len(self._entries)} events that no pod can need.")

    def _drop_before(self, position: int) -> None:
        if position > self._start:
            del self._entries[: position - self._start]
            self._start = position
