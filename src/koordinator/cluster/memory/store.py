"""Stored objects of the in-memory API server, and watches of their changes.

Every write is one event and one resourceVersion, so versions are positions in the log.  A watch is
a cursor into it: a write costs the same with none and with many of them.  What every open watch has
returned is forgotten.

Every write goes through ``put`` or ``remove``: it gets the next resourceVersion, keeps the index
of pods by node and appends one event.  What may be written is not decided here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar
from weakref import WeakSet

from msgspec.structs import replace

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.fields import FieldRequirement
from koordinator.cluster.port import NO_TRANSFORMS, EventType, Transform, WatchEvent

_BOOKMARK = WatchEvent(EventType.BOOKMARK, KubeObject())
_TRIM = 1 << 6  # events that all have seen are dropped this many at a time

FieldSelectors = Mapping[type[KubeObject], Sequence[FieldRequirement]]


class WatchLog:
    """Ordered log of changes that an open watch may still read."""

    def __init__(self) -> None:
        self._events: list[WatchEvent] = []
        self._forgotten = 0  # the newest version that is no longer kept
        self._readers: WeakSet[MemoryWatch] = (
            WeakSet()
        )  # weak: a watch without references reads no more

    @property
    def version(self) -> int:
        """The resourceVersion of the last write; 0 before the first."""
        return self._forgotten + len(self._events)

    @property
    def next_version(self) -> str:
        """The resourceVersion of the next write."""
        return str(self._forgotten + len(self._events) + 1)

    def append(self, event: WatchEvent) -> None:
        self._events.append(event)
        if len(self._events) % _TRIM == 0 and not self._readers:
            self.trim()

    def after(self, version: int) -> Sequence[WatchEvent]:
        """Return the events after a version that the caller was registered for."""
        return self._events[version - self._forgotten :]

    def register(self, reader: "MemoryWatch") -> None:
        """Keep what comes from now on until this reader has seen it."""
        self._readers.add(reader)

    def leave(self, reader: "MemoryWatch") -> None:
        self._readers.discard(reader)
        self.trim()

    def trim(self) -> None:
        """Forget what all readers have seen, if there is much."""
        if len(self._events) < _TRIM:
            return
        for reader in self._readers:
            reader.pass_over()
        seen = min((reader.version for reader in self._readers), default=self.version)
        if seen - self._forgotten >= _TRIM:
            del self._events[: seen - self._forgotten]
            self._forgotten = seen


class MemoryWatch:
    """A cursor into the log that sees some kinds.  Implements ``port.Watch``.

    ``initial`` comes first.  ``refresh`` runs before every look at the log: it writes what is
    derived from other objects.
    """

    def __init__(
        self,
        log: WatchLog,
        selection: FieldSelectors,
        initial: Sequence[WatchEvent],
        refresh: Callable[[], None],
        transforms: Mapping[type[KubeObject], Transform] = NO_TRANSFORMS,
    ) -> None:
        self.version = log.version
        self._log = log
        self._selection = selection
        self._initial = list(initial)
        self._refresh, self._transforms = refresh, transforms
        self._bookmarks = 0
        self._open = True
        log.register(self)

    def poll(self) -> Sequence[WatchEvent]:
        if not self._open:
            return []
        self._refresh()
        fresh = self._log.after(self.version)
        events, self._initial = self._initial, []
        selection = self._selection
        if any(selection.values()):
            events.extend([kept for event in fresh if (kept := self._selected(event)) is not None])
        else:
            events.extend([event for event in fresh if type(event.object) in selection])
        self.version = self._log.version
        self._log.trim()
        if self._transforms:
            events = [self._transformed(event) for event in events]
        events += [_BOOKMARK] * self._bookmarks
        self._bookmarks = 0
        return events

    def pass_over(self) -> None:
        """Skip the next events while they are of kinds that are not watched."""
        selection = self._selection
        for event in self._log.after(self.version):
            if type(event.object) in selection:
                break
            self.version += 1

    def refresh(self) -> None:
        self._bookmarks += 1  # the log itself is never behind

    def has_changes(self) -> bool:
        """Return whether ``poll`` would return something."""
        if not self._open:
            return False
        self._refresh()
        return bool(self._initial or self._bookmarks) or any(
            self._selected(event) is not None for event in self._log.after(self.version)
        )

    def close(self) -> None:
        if self._open:
            self._open = False
            self._initial = []
            self._log.leave(self)

    def _transformed(self, event: WatchEvent) -> WatchEvent:
        transform = self._transforms.get(type(event.object))
        if transform is None:
            return event
        before = event.previous
        return WatchEvent(
            event.type,
            transform(event.object),
            transform(before) if before is not None else None,
        )

    def _selected(self, event: WatchEvent) -> WatchEvent | None:
        """Return the change for a watch of the matching objects only; None if it has none."""
        requirements = self._selection.get(type(event.object))
        if requirements is None:
            return None
        if not requirements:
            return event
        before = event.previous if event.type is not EventType.DELETED else event.object
        matched = before is not None and all(r.matches(before) for r in requirements)
        matches = event.type is not EventType.DELETED and all(
            r.matches(event.object) for r in requirements
        )
        if matched and matches:
            return event
        if matches:
            return WatchEvent(EventType.ADDED, event.object)
        return WatchEvent(EventType.DELETED, event.object) if matched else None


def snapshot_events(objects: Sequence[KubeObject]) -> list[WatchEvent]:
    """Return an ADDED event per object and the bookmark that ends them."""
    return [
        *(WatchEvent(EventType.ADDED, obj) for obj in objects),
        _BOOKMARK,
    ]


KindT = TypeVar("KindT", bound=KubeObject)


class Store:
    """The state of the world.  Cluster-scoped objects are in the namespace ``""``."""

    def __init__(self) -> None:
        self.log = WatchLog()
        self._tables: dict[type[KubeObject], dict[str, dict[str, KubeObject]]] = {}
        self._pods_by_node: dict[str, dict[tuple[str, str], Pod]] = {}

    def find(self, kind_type: type[KindT], namespace: str, name: str) -> KindT | None:
        """Return one object, or None."""
        obj = self._tables.get(kind_type, {}).get(namespace, {}).get(name)
        return obj if isinstance(obj, kind_type) else None

    def contains(self, obj: KubeObject) -> bool:
        """Return whether there is an object of that kind and name."""
        meta = obj.metadata
        return self.find(type(obj), meta.namespace, meta.name) is not None

    def has(self, kind_type: type[KubeObject], namespace: str) -> bool:
        """Return whether there is any object of a kind in a namespace."""
        return namespace in self._tables.get(kind_type, {})

    def scan(self, kind_type: type[KindT], namespace: str | None = None) -> Iterator[KindT]:
        """Yield all objects of a kind in the order of namespace, then name."""
        table = self._tables.get(kind_type, {})
        for space in sorted(table) if namespace is None else (namespace,):
            for _, obj in sorted(table.get(space, {}).items()):
                if isinstance(obj, kind_type):
                    yield obj

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods of a node in the order of namespace, then name."""
        return [pod for _, pod in sorted(self._pods_by_node.get(node, {}).items())]

    def put(self, obj: KindT, previous: KindT | None = None) -> KindT:
        """Store an object, new or in place of ``previous``, and return it with its version."""
        stored = self._stamped(obj)
        self.put_stamped(stored, previous)
        return stored

    def put_stamped(self, stored: KubeObject, previous: KubeObject | None) -> None:
        """Store an object that has the ``next_version`` already."""
        meta = stored.metadata
        table = self._tables.setdefault(type(stored), {})
        table.setdefault(meta.namespace, {})[meta.name] = stored
        if isinstance(stored, Pod):
            self._index_node(stored, previous)
        kind = EventType.ADDED if previous is None else EventType.MODIFIED
        self.log.append(WatchEvent(kind, stored, previous))

    @property
    def next_version(self) -> str:
        """The resourceVersion of the next write."""
        return self.log.next_version

    def remove(self, obj: KubeObject) -> None:
        """Forget an object; ``obj`` is its last state."""
        removed = self._stamped(obj)
        meta = removed.metadata
        spaces = self._tables[type(removed)]
        del spaces[meta.namespace][meta.name]
        if not spaces[meta.namespace]:
            del spaces[meta.namespace]
        if isinstance(removed, Pod) and removed.spec.node_name:
            self._drop_from_node(removed.spec.node_name, meta.namespace, meta.name)
        self.log.append(WatchEvent(EventType.DELETED, removed))

    def _stamped(self, obj: KindT) -> KindT:
        meta = replace(obj.metadata, resource_version=self.next_version)
        return replace(obj, metadata=meta)

    def _index_node(self, pod: Pod, previous: KubeObject | None) -> None:
        meta, node = pod.metadata, pod.spec.node_name
        if isinstance(previous, Pod) and previous.spec.node_name not in ("", node):
            self._drop_from_node(previous.spec.node_name, meta.namespace, meta.name)
        if node:
            self._pods_by_node.setdefault(node, {})[meta.namespace, meta.name] = pod

    def _drop_from_node(self, node: str, namespace: str, name: str) -> None:
        on_node = self._pods_by_node[node]
        del on_node[namespace, name]
        if not on_node:
            del self._pods_by_node[node]
