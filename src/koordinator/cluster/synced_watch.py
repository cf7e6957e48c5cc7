"""A watch that knows whether it has told everything that existed when it was last asked."""

from collections.abc import Callable, Iterator

from koordinator.cluster.port import EventType, Watch, WatchEvent


class SyncedWatch:
    """Belongs to one loop, which decides nothing while ``is_synced`` is false."""

    def __init__(self, open_watch: Callable[[], Watch]) -> None:
        self.is_synced = False
        self._open_watch = open_watch
        self._watch: Watch | None = None
        self._bookmarks_due = 0

    @property
    def is_open(self) -> bool:
        """Whether anything has been asked for."""
        return self._watch is not None

    def ask(self) -> None:
        """Ask for all that exists, once; from then on for what a slow stream still owes."""
        self._asked()

    def events(self) -> Iterator[WatchEvent]:
        """Yield what has arrived since the last call, bookmarks left out; never waits."""
        watch = self._watch or self._asked()
        for event in watch.poll():
            if event.type is EventType.BOOKMARK:
                self._bookmarks_due -= 1
                self.is_synced = not self._bookmarks_due
            else:
                yield event

    def _asked(self) -> Watch:
        self.is_synced = False
        self._bookmarks_due += 1
        if self._watch is None:
            self._watch = self._open_watch()
        else:
            self._watch.refresh()
        return self._watch
