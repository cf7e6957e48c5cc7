"""Watch that knows whether it has delivered all objects that existed at the last request."""

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
        """Return whether the watch has been started."""
        return self._watch is not None

    def ask(self) -> None:
        """List all objects at the first call; later, catch up with a slow stream."""
        self._refresh()

    def events(self) -> Iterator[WatchEvent]:
        """Yield what has arrived since the last call, bookmarks left out; never waits."""
        watch = self._watch or self._refresh()
        for event in watch.poll():
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
