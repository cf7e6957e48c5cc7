"""Level-based reconciliation: work queue, and a watch that has listed every kind.

A key names an object, not an event: however often it is added, it is reconciled once, in the order
of its first addition.  A failed key is retried with exponential backoff.

Source: client-go util/workqueue/default_rate_limiters.go, ``ItemExponentialFailureRateLimiter``;
controller-runtime pkg/reconcile.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from koordinator.cluster.port import EventType, Watch, WatchEvent
from koordinator.foundation.clock import Clock

KeyT = TypeVar("KeyT", bound=Hashable)

FIRST_DELAY_S = 0.005
LONGEST_DELAY_S = 1000.0
_LONGEST_EXPONENT = 30  # beyond it every delay is the longest


class ReconcileQueue(Generic[KeyT]):
    """Queue of keys that are due now or later.  All times are seconds of one clock."""

    def __init__(self) -> None:
        self._due: OrderedDict[KeyT, None] = OrderedDict()
        self._later: list[tuple[float, int, KeyT]] = []  # a heap; the number keeps equals in order
        self._when: dict[KeyT, float] = {}  # when a key that is not due will be
        self._placed: dict[KeyT, float] = {}  # its first time in the heap: not later than that
        self._added = 0
        self._failures: dict[KeyT, int] = {}

    def __len__(self) -> int:
        """Return the number of keys that were due at the last ``pop``."""
        return len(self._due)

    def add(self, key: KeyT) -> None:
        """Queue a key, to be reconciled as soon as possible."""
        self._due.setdefault(key)

    def add_at(self, key: KeyT, when_s: float) -> None:
        """Queue a key for a time; of several times the earliest counts."""
        known = self._when.get(key)
        if known is not None and known <= when_s:
            return
        self._when[key] = when_s
        if self._placed.get(key, when_s + 1) > when_s:
            self._place(key, when_s)

    def pop(self, now_s: float) -> KeyT | None:
        """Remove and return the next key that is due, None if there is none."""
        self._mature(now_s)
        if not self._due:
            return None
        key, _ = self._due.popitem(last=False)
        return key

    def reconcile_due(
        self, clock: Clock, reconcile: Callable[[KeyT], object], limit: int | None = None
    ) -> int:
        """Reconcile keys that are due, at most ``limit``; return their number."""
        done = 0
        while limit is None or done < limit:
            key = self.pop(clock.now_s())
            if key is None:
                break
            reconcile(key)
            done += 1
        return done

    def succeeded(self, key: KeyT, again_s: float | None = None) -> None:
        """Clear the failures and the time of a key; requeue it for ``again_s`` if that is given."""
        self._failures.pop(key, None)
        self._when.pop(key, None)
        if again_s is not None:
            self.add_at(key, again_s)

    def failed(self, key: KeyT, now_s: float) -> float:
        """Requeue a key with exponential backoff; return the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s: float = min(FIRST_DELAY_S * 2 ** min(failures, _LONGEST_EXPONENT), LONGEST_DELAY_S)
        self.add_at(key, now_s + delay_s)
        return delay_s

    def forget(self, key: KeyT) -> None:
        """Remove a key until it is added again."""
        self._due.pop(key, None)
        self._when.pop(key, None)
        self._failures.pop(key, None)

    def next_s(self) -> float | None:
        """Return the time at which the next key is due; 0 if one is due, None without keys."""
        if self._due:
            return 0.0
        while self._later:
            when_s, _, key = self._later[0]
            if self._when.get(key) == when_s:
                return when_s
            self._withdraw()
        return None

    def _mature(self, now_s: float) -> None:
        while self._later and self._later[0][0] <= now_s:
            when_s, _, key = self._later[0]
            is_due = self._when.get(key) == when_s
            self._withdraw()
            if is_due:
                del self._when[key]
                self._due.setdefault(key)

    def _place(self, key: KeyT, when_s: float) -> None:
        self._placed[key] = when_s
        self._added += 1
        heapq.heappush(self._later, (when_s, self._added, key))

    def _withdraw(self) -> None:
        """Remove the first key from the heap; insert it again if it was postponed."""
        placed_s, _, key = heapq.heappop(self._later)
        if self._placed.get(key) != placed_s:
            return
        del self._placed[key]
        when_s = self._when.get(key)
        if when_s is not None and when_s > placed_s:
            self._place(key, when_s)


class SyncedWatch:
    """Watch of one loop, which must not act while ``is_synced`` is false."""

    def __init__(self, open_watch: Callable[[], Watch]) -> None:
        self.is_synced = False
        self._open_watch = open_watch
        self._watch: Watch | None = None
        self._bookmarks_due = 0

    @property
    def is_open(self) -> bool:
        """Return whether the watch has been started."""
        return self._watch is not None

    def list_or_resync(self) -> None:
        """List all objects at the first call; later, request a resync of the watch."""
        self._refresh()

    def events(self) -> Iterable[WatchEvent]:
        """Return the events since the last call, without bookmarks and without waiting."""
        watch = self._watch or self._refresh()
        events = watch.poll()
        return self._until_bookmarks(events) if self._bookmarks_due else events

    def _until_bookmarks(self, events: Iterable[WatchEvent]) -> Iterator[WatchEvent]:
        """Yield events; a bookmark takes effect once the events before it have been applied."""
        for event in events:
            if event.type is EventType.BOOKMARK:
                self._bookmarks_due -= 1
                self.is_synced = not self._bookmarks_due
            else:
                yield event

    def _refresh(self) -> Watch:
        self.is_synced = False
        self._bookmarks_due += 1
        if self._watch is None:
            self._watch = self._open_watch()
        else:
            self._watch.refresh()
        return self._watch
