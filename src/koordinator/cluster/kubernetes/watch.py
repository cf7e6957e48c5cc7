"""Several kinds in one watch: the caller's side, where objects are decoded."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from koordinator.api.meta import KubeObject
from koordinator.cluster.kubernetes.background import Background
from koordinator.cluster.kubernetes.follower import Follower
from koordinator.cluster.kubernetes.mailbox import Mailbox
from koordinator.cluster.kubernetes.view import View
from koordinator.cluster.port import EventType, WatchEvent

KindT = TypeVar("KindT", bound=KubeObject)

_BOOKMARK = WatchEvent(EventType.BOOKMARK, KubeObject())


class KubernetesWatch:
    """Implements ``port.Watch``.  ``channels`` has the mailbox of each view and its follower.

    Until all kinds are listed, only the first one that is not is read, so that the start comes
    kind after kind; what the others have received waits.
    """

    def __init__(
        self,
        background: Background,
        views: Mapping[type[KubeObject], View],
        channels: Sequence[tuple[Mailbox, Follower]],
    ) -> None:
        self.is_open = True
        self._background = background
        self._views = views
        self._pairs = [
            (view, mailbox)
            for view, (mailbox, _) in zip(self._views.values(), channels, strict=True)
        ]
        self._followers = [follower for _, follower in channels]
        self._is_started = False
        self._refreshes = 0  # requested
        self._refreshed = 0  # done

    @property
    def has_changes(self) -> bool:
        """Whether ``poll`` would return or raise something."""
        return self.is_open and any(len(mailbox) for _, mailbox in self._readable())

    def poll(self) -> list[WatchEvent]:
        events: list[WatchEvent] = []
        if not self.is_open:
            return events
        if not self._is_started:
            for view, mailbox in self._pairs:
                _read(view, mailbox, events, until_listed=True)
                if not view.is_listed:
                    return events
            self._is_started = True
            events.append(_BOOKMARK)
        for view, mailbox in self._pairs:
            _read(view, mailbox, events)
        if self._refreshed < self._refreshes:
            done = min(view.refresh for view in self._views.values())
            events += [_BOOKMARK] * (done - self._refreshed)
            self._refreshed = done
        return events

    def refresh(self) -> None:
        self._refreshes += 1
        for follower in self._followers:
            self._background.soon(follower.refresh)

    def known(self, kind_type: type[KindT], key: str) -> KindT | None:
        """Return the last delivered state of an object; None if it is unknown or deleted."""
        view = self._views.get(kind_type)
        obj = view.objects.get(key) if view is not None else None
        return obj if isinstance(obj, kind_type) else None

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        for follower in self._followers:
            self._background.soon(follower.stop)

    def _readable(self) -> Sequence[tuple[View, Mailbox]]:
        if self._is_started:
            return self._pairs
        return next(([pair] for pair in self._pairs if not pair[0].is_listed), self._pairs)


def _read(
    view: View, mailbox: Mailbox, events: list[WatchEvent], *, until_listed: bool = False
) -> None:
    for _ in range(len(mailbox)):  # what comes meanwhile is for the next time
        item = mailbox.take()
        if item is not None:
            events.extend(view.apply(item))
        if until_listed and view.is_listed:
            return
