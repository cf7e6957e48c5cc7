"""Watch of several kinds, with the view of each kind.

Proof that a view has caught up with the API server.

A new leader must have seen every change made before it became the leader.  A list of all objects
would prove that.  A list of their metadata proves it at a fraction of the cost: the watch has
nearly always delivered every change already, so nothing is decoded and no watch is interrupted.

Watch of one object, for a reader that polls it and wants to read it earlier.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Generic, TypeVar

import msgspec

from koordinator.api.codec import decode
from koordinator.api.meta import KubeObject, is_newer_version
from koordinator.api.nesting import cut_nesting
from koordinator.cluster.kubernetes.background import EventLoopThread
from koordinator.cluster.kubernetes.failures import ForbiddenError
from koordinator.cluster.kubernetes.mailbox import Follower, Item, Lines, Mailbox, WatchRefusal
from koordinator.cluster.kubernetes.pages import (
    ListPage,
    ObjectVersion,
    UndecodedName,
    VersionList,
    decode_named,
    decode_page,
)
from koordinator.cluster.kubernetes.resources import collection_path, with_query
from koordinator.cluster.kubernetes.transport import Request, Transport
from koordinator.cluster.port import EventType, Transform, WatchEvent
from koordinator.foundation.errors import ClusterError, InputError

_TIMEOUT_S: Final = 300  # for which the server keeps a stream open
_RETRY_S: Final = 2.0
_FORBIDDEN_RETRY_S: Final = 60.0  # a role may be extended while the process runs

#: From the comparison on; a stream that is slower is replaced by a list.
PATIENCE_S: Final = 1.0

ObjectT = TypeVar("ObjectT")

log = logging.getLogger(__name__)

_BOOKMARK = WatchEvent(EventType.BOOKMARK, KubeObject())


class VersionComparison:
    """Comparison of a view with the versions of a list; begins before the list is requested.

    The versions may come at any time later.  Where they differ, the view has to receive events
    first.  An object that is newer than the list, or that was removed since the beginning,
    counts as received.
    """

    def __init__(self, refresh: int) -> None:
        self.refresh = refresh  # number of the request
        self._removed: set[str] = set()  # UIDs, since the beginning
        self._list_version = ""
        self._missing: dict[str, ObjectVersion] | None = None  # by key; None before the comparison
        self._stale: set[str] = set()  # keys of objects that the list does not have
        self._deadline_s = 0.0

    def note_removed(self, uid: str) -> None:
        """Remember that the view has received the removal of an object."""
        self._removed.add(uid)

    def compare(
        self,
        listed: VersionList,
        objects: Mapping[str, KubeObject],
        key_of: Callable[[ObjectVersion], str],
        now_s: float,
    ) -> None:
        """Find the differences between a list and the objects of the view."""
        self._list_version, self._deadline_s = listed.resource_version, now_s + PATIENCE_S
        self._missing = {key_of(each): each for each in listed.objects}
        self._stale = objects.keys() - self._missing.keys()

    def is_done(self, objects: Mapping[str, KubeObject]) -> bool:
        """Return whether the view has everything that was listed, and nothing that was not."""
        if self._missing is None:
            return False
        self._missing = {
            key: wanted
            for key, wanted in self._missing.items()
            if not self._has(objects.get(key), wanted)
        }
        self._stale = {key for key in self._stale if self._is_stale(objects.get(key))}
        return not (self._missing or self._stale)

    def is_overdue(self, now_s: float) -> bool:
        """Return whether the stream has not delivered the differences in time."""
        return self._missing is not None and now_s >= self._deadline_s

    def _has(self, known: KubeObject | None, wanted: ObjectVersion) -> bool:
        if wanted.uid in self._removed:
            return True
        if known is None:
            return False
        version = known.metadata.resource_version
        return version == wanted.resource_version or is_newer_version(
            version, wanted.resource_version
        )

    def _is_stale(self, known: KubeObject | None) -> bool:
        return known is not None and not is_newer_version(
            known.metadata.resource_version, self._list_version
        )


class _Line(msgspec.Struct, Generic[ObjectT]):
    type: str
    object: ObjectT


class View:
    """Objects as they were delivered last, by key.

    Every list is a difference to it, the first one too.  An object that can't be decoded any more
    stays as it was delivered.  ``transform`` makes of an object what is delivered.
    """

    def __init__(self, kind_type: type[KubeObject], transform: Transform | None = None) -> None:
        self.objects: dict[str, KubeObject] = {}
        self.is_listed = False  # once, to its end
        self.refresh = 0  # the newest one that is done
        self._kind_type, self._transform = kind_type, transform
        self._line_type: type[_Line[KubeObject]] = _Line[kind_type]  # type: ignore[valid-type]  # at run time
        self._unseen: set[str] = set()  # by the list under way
        self._requested = 0  # refreshes
        self._catch_up: VersionComparison | None = None  # during a refresh

    def apply(self, item: Item) -> Iterator[WatchEvent]:
        """Yield the events of one item.  Raises ClusterError if it cannot be used."""
        match item:
            case ListPage():
                yield from self._apply_page(item)
            case VersionList(refresh=refresh):
                if self._catch_up is not None and refresh == self._requested:
                    self._catch_up.compare(item, self.objects, self._key_of, time.monotonic())
            case Lines(texts=texts):
                for text in texts:
                    yield from self._apply_line(text)
            case WatchRefusal(error=error):
                raise error
        if self._catch_up is not None and self._catch_up.is_done(self.objects):
            self._end_refresh(self._catch_up.refresh)

    def begin_refresh(self) -> None:
        """Begin to compare with the next list of versions, or with the next list."""
        self._requested += 1
        self._catch_up = VersionComparison(self._requested)

    def give_up_overdue(self) -> bool:
        """Return whether the stream is too slow for a refresh, which then needs a list."""
        is_overdue = self._catch_up is not None and self._catch_up.is_overdue(time.monotonic())
        if is_overdue:
            self._catch_up = None
        return is_overdue

    def _end_refresh(self, number: int) -> None:
        self.refresh = number
        if number >= self._requested:
            self._catch_up = None

    def _apply_page(self, page: ListPage) -> Iterator[WatchEvent]:
        if page.is_first:
            self._unseen = set(self.objects)
        is_repeated = page.versioned and bool(self.objects)
        objects, names = decode_page(
            page, self._kind_type, self._is_current if is_repeated else None
        )
        for obj in objects:
            self._unseen.discard(obj.key)
            yield from self._updated(obj, is_versioned=page.versioned)
        self._unseen.difference_update(map(self._key_of, names))
        if not page.next_page:
            for key in sorted(self._unseen):
                if self.objects[key].metadata.uid not in page.kept:
                    yield from self._removed(key)
            self._unseen.clear()
            self.is_listed = True
            self._end_refresh(page.refresh)

    def _is_current(self, version: ObjectVersion) -> bool:
        known = self.objects.get(self._key_of(UndecodedName(version.namespace, version.name)))
        return known is not None and (
            (known.metadata.uid, known.metadata.resource_version)
            == (version.uid, version.resource_version)
        )

    def _apply_line(self, text: bytes) -> Iterator[WatchEvent]:
        kind, decoded = self._decode(text)
        if isinstance(decoded, UndecodedName):
            if kind == EventType.DELETED:
                yield from self._removed(self._key_of(decoded))
        elif decoded is not None:
            yield from (
                self._removed(decoded.key, decoded)
                if kind == EventType.DELETED
                else (self._updated(decoded))
            )

    def _decode(self, text: bytes) -> tuple[str, KubeObject | UndecodedName | None]:
        try:
            line = decode(text, self._line_type)
        except InputError:
            return self._decode_step_by_step(text)
        return line.type, line.object

    def _decode_step_by_step(self, text: bytes) -> tuple[str, KubeObject | UndecodedName | None]:
        try:
            raw = decode(cut_nesting(text), _Line[msgspec.Raw])
        except InputError as error:
            extra = {"kind": self._kind_type.KIND, "error": str(error)}
            log.warning("line of a watch left out: it is no event", extra=extra)
            return "", None
        return raw.type, decode_named(raw.object, self._kind_type)

    def _updated(self, obj: KubeObject, *, is_versioned: bool = True) -> Iterator[WatchEvent]:
        key, meta = obj.key, obj.metadata
        old = self.objects.get(key)
        if old is not None and old.metadata.uid != meta.uid:
            yield from self._removed(key)
            old = None
        if old is not None and (
            old.metadata.resource_version == meta.resource_version if is_versioned else old == obj
        ):
            return
        if self._transform is not None:
            obj = self._transform(obj)
        self.objects[key] = obj
        kind = EventType.ADDED if old is None else EventType.MODIFIED
        yield WatchEvent(kind, obj, old)

    def _removed(self, key: str, last: KubeObject | None = None) -> Iterator[WatchEvent]:
        old = self.objects.pop(key, None)
        if old is not None:
            if self._catch_up is not None:
                self._catch_up.note_removed(old.metadata.uid)
            if last is not None and self._transform is not None:
                last = self._transform(last)
            yield WatchEvent(EventType.DELETED, last or old, old)

    def _key_of(self, name: UndecodedName | ObjectVersion) -> str:
        return f"{name.namespace}/{name.name}" if self._kind_type.NAMESPACED else name.name


KindT = TypeVar("KindT", bound=KubeObject)


class KubernetesWatch:
    """Implements ``port.Watch``.  ``channels`` has the mailbox of each view and its follower.

    Until all kinds are listed, only the first one that is not is read, so that the start comes
    kind after kind; what the others have received waits.
    """

    def __init__(
        self,
        background: EventLoopThread,
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
        for (view, mailbox), follower in zip(self._pairs, self._followers, strict=True):
            _read(view, mailbox, events)
            if view.give_up_overdue():
                self._background.call_soon(follower.relist)
        if self._refreshed < self._refreshes:
            done = min(view.refresh for view in self._views.values())
            events += [_BOOKMARK] * (done - self._refreshed)
            self._refreshed = done
        return events

    def refresh(self) -> None:
        self._refreshes += 1
        # In reverse, since pods come last, and take the longest.
        pairs = zip(self._pairs, self._followers, strict=True)
        for (view, _), follower in reversed(list(pairs)):
            view.begin_refresh()
            self._background.call_soon(follower.refresh)

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
            self._background.call_soon(follower.stop)

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


async def watch_object(
    transport: Transport,
    kind_type: type[KubeObject],
    name: str,
    namespace: str,
    on_change: Callable[[], None],
    *,
    silence_s: float,
) -> None:
    """Call ``on_change`` after every event of an object, and when the watch begins.

    It ends when it is cancelled.  Nothing is decoded, and a failure is not raised: the caller reads
    the object also without this.
    """
    path = with_query(
        collection_path(kind_type, namespace),
        watch="true",
        fieldSelector=f"metadata.name={name}",
        timeoutSeconds=_TIMEOUT_S,
    )
    request = Request("GET", path)
    level = logging.INFO  # for the first refusal
    while True:
        delay_s = _RETRY_S
        try:
            async with aclosing(transport.stream(request, silence_s)) as chunks:
                async for _ in chunks:
                    on_change()
        except ForbiddenError as error:
            log.log(level, "watch forbidden: polling only", extra={"error": str(error)})
            level = logging.DEBUG
            delay_s = _FORBIDDEN_RETRY_S
        except ClusterError as error:
            log.debug("watch interrupted", extra={"error": str(error)})
        await transport.pause(delay_s)
