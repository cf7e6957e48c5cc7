"""Mirror of the cluster: watched objects by key, and pods by node and owner.

Pods and nodes are transformed as for the scheduler: with current resource names, and without the
resources that the annotation ``node-reservation`` reserves for the system.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from koordinator.api.core import Namespace
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.domain.pod_requests import Requests
from koordinator.domain.resized_pods import DEFAULT_RULES, effective_requests
from koordinator.domain.transforms import as_scheduled, transform_node

KindT = TypeVar("KindT", bound=KubeObject)
_KEY = attrgetter("metadata.namespace", "metadata.name")


class ClusterMirror:
    """Implementation of ``contract.ClusterView``."""

    def __init__(self, kinds: Iterable[type[KubeObject]]) -> None:
        self.kinds: tuple[type[KubeObject], ...] = tuple(
            dict.fromkeys((Node, Pod, Namespace, *kinds))
        )
        self._objects: dict[type[KubeObject], dict[str, Any]] = {kind: {} for kind in self.kinds}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self._of_owner: dict[str, dict[str, Pod]] = {}
        # Caches by node, invalidated when its pods change.
        self._sorted: dict[str, Sequence[Pod]] = {}
        self._requested: dict[str, Requests] = {}

    def objects(self, kind: type[KindT]) -> Mapping[str, KindT]:
        """Return all objects of a kind by key; it is empty for a kind that is not watched."""
        return self._objects.get(kind, {})

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the pods of a node in all phases, sorted by namespace and name."""
        known = self._sorted.get(node)
        if known is None:
            known = sorted(self._on_node.get(node, {}).values(), key=_KEY)
            self._sorted[node] = known
        return known

    def active_pods_on(self, node: str) -> Sequence[Pod]:
        """Return the pods of a node that have not finished, sorted by namespace and name."""
        return [pod for pod in self.pods_on(node) if not is_terminal(pod)]

    def requested_on(self, node: str) -> Mapping[str, int]:
        """Return the allocation of the active pods of a node by resource, and ``pods``."""
        known = self._requested.get(node)
        if known is None:
            pods = self.active_pods_on(node)
            known = {"pods": len(pods)}
            for pod in pods:
                for name, amount in self.allocation_of(pod).items():
                    known[name] = known.get(name, 0) + amount
            self._requested[node] = known
        return known

    def allocation_of(self, pod: Pod) -> Requests:
        """Return the allocation of a pod; it differs from its requests during a resize."""
        return effective_requests(pod, DEFAULT_RULES)

    def pods_owned_by(self, uid: str) -> Sequence[Pod]:
        """Return the pods with an owner of the uid, sorted by namespace and name."""
        return sorted(self._of_owner.get(uid, {}).values(), key=_KEY)

    def put(self, obj: KubeObject) -> None:
        """Add or update an object."""
        kept = self._objects[type(obj)]
        if isinstance(obj, Pod):
            obj = as_scheduled(obj)
            old = kept.get(obj.key)
            if old is not None:
                self._forget_pod(old)
            self._index_pod(obj)
        elif isinstance(obj, Node):
            obj = transform_node(obj).node
        kept[obj.key] = obj

    def drop(self, obj: KubeObject) -> None:
        """Remove an object."""
        old = self._objects[type(obj)].pop(obj.key, None)
        if isinstance(old, Pod):
            self._forget_pod(old)

    def _index_pod(self, pod: Pod) -> None:
        key, node = pod.key, pod.spec.node_name
        if node:
            self._on_node.setdefault(node, {})[key] = pod
            self._invalidate(node)
        for owner in pod.metadata.owner_references:
            self._of_owner.setdefault(owner.uid, {})[key] = pod

    def _forget_pod(self, pod: Pod) -> None:
        node = pod.spec.node_name
        self._invalidate(node)
        _discard(self._on_node, node, pod.key)
        for owner in pod.metadata.owner_references:
            _discard(self._of_owner, owner.uid, pod.key)

    def _invalidate(self, node: str) -> None:
        self._sorted.pop(node, None)
        self._requested.pop(node, None)


def _discard(index: dict[str, dict[str, Pod]], name: str, key: str) -> None:
    pods = index.get(name)
    if pods is not None:
        pods.pop(key, None)
        if not pods:
            del index[name]
