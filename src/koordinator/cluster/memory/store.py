"""Objects by kind, namespace and name, with the log of their changes.

Every write goes through ``put`` or ``remove``: it gets the next resourceVersion, keeps the index
of pods by node and appends one event.  What may be written is not decided here.
"""

from collections.abc import Iterator
from typing import TypeVar

from msgspec.structs import replace

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.watch import WatchLog
from koordinator.cluster.port import EventType, WatchEvent

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

    def holds(self, obj: KubeObject) -> bool:
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
        meta = stored.metadata
        table = self._tables.setdefault(type(stored), {})
        table.setdefault(meta.namespace, {})[meta.name] = stored
        if isinstance(stored, Pod):
            self._index_node(stored, previous)
        kind = EventType.ADDED if previous is None else EventType.MODIFIED
        self.log.append(WatchEvent(kind, stored, previous))
        return stored

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
        meta = replace(obj.metadata, resource_version=str(self.log.version + 1))
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
