"""One kind as its watch has delivered it, and what the next events change in it."""

import logging
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from koordinator.api.codec import decode
from koordinator.api.meta import KubeObject
from koordinator.api.nesting import cut_nesting
from koordinator.cluster.kubernetes.mailbox import Item, Lines, WatchRefusal
from koordinator.cluster.kubernetes.pages import Name, Page, decode_named, decode_page
from koordinator.cluster.port import EventType, Transform, WatchEvent
from koordinator.foundation.errors import InputError

ObjectT = TypeVar("ObjectT")

log = logging.getLogger(__name__)


class _Line(msgspec.Struct, Generic[ObjectT]):
    type: str
    object: ObjectT


class View:
    """What was delivered last, by key.

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

    def apply(self, item: Item) -> Iterator[WatchEvent]:
        """Yield the events of one item.  Raises what it refuses."""
        match item:
            case Page():
                yield from self._apply_page(item)
            case Lines(texts=texts):
                for text in texts:
                    yield from self._apply_line(text)
            case WatchRefusal(error=error):
                raise error

    def _apply_page(self, page: Page) -> Iterator[WatchEvent]:
        if page.is_first:
            self._unseen = set(self.objects)
        objects, names = decode_page(page, self._kind_type)
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
            self.refresh = page.refresh

    def _apply_line(self, text: bytes) -> Iterator[WatchEvent]:
        kind, decoded = self._decode(text)
        if isinstance(decoded, Name):
            if kind == EventType.DELETED:
                yield from self._removed(self._key_of(decoded))
        elif decoded is not None:
            yield from (
                self._removed(decoded.key, decoded)
                if kind == EventType.DELETED
                else (self._updated(decoded))
            )

    def _decode(self, text: bytes) -> tuple[str, KubeObject | Name | None]:
        try:
            line = decode(text, self._line_type)
        except InputError:
            return self._decode_step_by_step(text)
        return line.type, line.object

    def _decode_step_by_step(self, text: bytes) -> tuple[str, KubeObject | Name | None]:
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
            if last is not None and self._transform is not None:
                last = self._transform(last)
            yield WatchEvent(EventType.DELETED, last or old, old)

    def _key_of(self, name: Name) -> str:
        return f"{name.namespace}/{name.name}" if self._kind_type.NAMESPACED else name.name
