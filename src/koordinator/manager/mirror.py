"""Objects as last seen by the watches, and the keys to reconcile after a change.

The response to a write is stored immediately, so that no write is repeated before its watch event
arrives.

The mirror of jobs, units, queues and quotas ignores outdated watch events: a watch event may be
older than the response to a write.  Applying it would undo an admission in the mirror, and the
quota would be given to a second unit.  Resource versions of one object increase monotonically;
Kubernetes guarantees that since 1.35, and etcd always did.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from koordinator.api.annotations.node import (
    COLOCATION_STRATEGY,
    NETWORK_BANDWIDTH,
    ORIGIN_EXTENDED_ALLOCATABLE,
)
from koordinator.api.annotations.numa import CPU_BASIC_INFO
from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.core import Namespace, ResourceList
from koordinator.api.device import Device
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile, ElasticQuotaTree
from koordinator.api.meta import KubeObject, is_newer_version
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.node_metric import NodeMetric
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.api.policy import PriorityClass, ResourceQuota
from koordinator.api.queue_unit import Queue, QueueUnit
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordinator.manager.node_resources.calculation import ManagedNode
from koordinator.manager.node_resources.node import NodePod, node_pod
from koordinator.manager.queue_units.controller import QueueUnitOptions, QueueWorld
from koordinator.manager.queue_units.plugins import watched_by

_PENDING = "Pending"
_PUBLISHED = frozenset((BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY))


class Controller(StrEnum):
    """Controller names of the flag ``--controllers``."""

    NODE_METRIC = "nodemetric"
    NODE_RESOURCE = "noderesource"
    NODE_SLO = "nodeslo"
    QUOTA_PROFILE = "quotaprofile"
    COLOCATION_PROFILE = "colocationprofile"
    QUEUE_UNITS = "queueunits"


Key = tuple[Controller, str]  # the object by its key


class Mirror:
    """Objects by kind and key, and the active pods of every node."""

    def __init__(self) -> None:
        self._objects: dict[type[KubeObject], dict[str, Any]] = {
            kind: {}
            for kind in (
                Node,
                NodeMetric,
                NodeSlo,
                NodeResourceTopology,
                Device,
                ElasticQuota,
                ElasticQuotaProfile,
                ClusterColocationProfile,
                Namespace,
            )
        }
        self._pods: dict[str, dict[str, NodePod]] = {}  # by node, then by key
        self._node_of: dict[str, str] = {}
        self._pending: dict[str, Pod] = {}

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self._objects[Node]

    @property
    def metrics(self) -> Mapping[str, NodeMetric]:
        return self._objects[NodeMetric]

    @property
    def slos(self) -> Mapping[str, NodeSlo]:
        return self._objects[NodeSlo]

    @property
    def quotas(self) -> Mapping[str, ElasticQuota]:
        return self._objects[ElasticQuota]

    @property
    def quota_profiles(self) -> Mapping[str, ElasticQuotaProfile]:
        return self._objects[ElasticQuotaProfile]

    @property
    def colocation_profiles(self) -> Mapping[str, ClusterColocationProfile]:
        return self._objects[ClusterColocationProfile]

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        return self._objects[Namespace]

    @property
    def pending_pods(self) -> Mapping[str, Pod]:
        """Pending pods without a node; empty unless they are watched."""
        return self._pending

    def node_view(self, name: str) -> ManagedNode | None:
        """Return a node with its NodeMetric, pods, topology and devices; None if it is unknown."""
        node = self.nodes.get(name)
        if node is None:
            return None
        return ManagedNode(
            node=node,
            metric=self.metrics.get(name),
            pods=tuple(self._pods.get(name, {}).values()),
            topology=self._objects[NodeResourceTopology].get(name),
            device=self._objects[Device].get(name),
        )

    def keeps(self, obj: KubeObject) -> bool:
        """Return whether the mirror stores objects of that kind."""
        return isinstance(obj, Pod) or type(obj) in self._objects

    def put(self, obj: KubeObject) -> Iterator[Key]:
        """Store an object; yield the keys to reconcile."""
        if isinstance(obj, Pod):
            self._put_pod(obj)
            return
        kept = self._objects[type(obj)]
        old = kept.get(obj.key)
        kept[obj.key] = obj
        if old != obj:
            yield from _affected_keys(old, obj)

    def put_written(self, obj: KubeObject) -> Iterator[Key]:
        """Store the response to a write of the manager; yield the keys to reconcile.

        A node that changed only in resources that the manager publishes is not reconciled again.
        """
        old = self.nodes.get(obj.key) if isinstance(obj, Node) else None
        concerned = self.put(obj)
        if old is not None and isinstance(obj, Node) and _unmanaged(old) == _unmanaged(obj):
            concerned = (key for key in concerned if key[0] is not Controller.NODE_RESOURCE)
        yield from concerned

    def drop(self, obj: KubeObject) -> Iterator[Key]:
        """Remove an object; yield the keys to reconcile."""
        if isinstance(obj, Pod):
            self._drop_pod(obj.key)
            return
        if self._objects[type(obj)].pop(obj.key, None) is not None:
            yield from _affected_keys(obj, None)

    def _put_pod(self, pod: Pod) -> None:
        key, node = pod.key, pod.spec.node_name
        if not node and pod.status.phase == _PENDING:
            self._pending[key] = pod
            return
        self._pending.pop(key, None)
        counted = node_pod(pod) if node else None
        if counted is None:
            self._drop_pod(key)
        else:
            self._pods.setdefault(node, {})[key] = counted
            self._node_of[key] = node

    def _drop_pod(self, key: str) -> None:
        self._pending.pop(key, None)
        node = self._node_of.pop(key, "")
        pods = self._pods.get(node)
        if pods is not None:
            pods.pop(key, None)
            if not pods:
                del self._pods[node]


def _affected_keys(old: KubeObject | None, new: KubeObject | None) -> Iterator[Key]:
    """Yield the keys of controllers that read a field that the change affects."""
    present = old or new
    if present is None:
        return
    is_another = old is None or new is None or old.metadata.uid != new.metadata.uid
    for controller, read in _READ.get(type(present), {}).items():
        if is_another or read(old) != read(new):
            yield controller, present.key


def _node_metric_input(node: Node) -> object:
    return node.metadata.labels, node.metadata.annotations.get(COLOCATION_STRATEGY.key)


def _node_slo_input(node: Node) -> object:
    return node.metadata.labels, node.metadata.annotations.get(NETWORK_BANDWIDTH)


def _node_resource_input(node: Node) -> object:
    meta, status = node.metadata, node.status
    return meta.labels, meta.annotations, status.capacity, status.allocatable


def _unmanaged(node: Node) -> object:
    """Return the fields of a node that controllers read and the manager does not publish."""
    meta, status = node.metadata, node.status
    annotations = {
        k: v for k, v in meta.annotations.items() if k != ORIGIN_EXTENDED_ALLOCATABLE.key
    }
    return meta.labels, annotations, _unpublished(status.capacity), _unpublished(status.allocatable)


def _unpublished(resources: ResourceList) -> ResourceList:
    return {name: amount for name, amount in resources.items() if name not in _PUBLISHED}


def _of_topology(topology: NodeResourceTopology) -> object:
    return topology.metadata.annotations.get(CPU_BASIC_INFO.key), topology.zones


#: Fields that each controller reads, by kind; a change of other fields is ignored.
_READ: Mapping[type[KubeObject], Mapping[Controller, Callable[[Any], object]]] = {
    Node: {
        Controller.NODE_METRIC: _node_metric_input,
        Controller.NODE_SLO: _node_slo_input,
        Controller.NODE_RESOURCE: _node_resource_input,
    },
    NodeMetric: {
        Controller.NODE_METRIC: lambda metric: metric.spec,
        Controller.NODE_RESOURCE: lambda metric: metric.status,
    },
    NodeSlo: {Controller.NODE_SLO: lambda slo: slo.spec},
    NodeResourceTopology: {Controller.NODE_RESOURCE: _of_topology},
    Device: {Controller.NODE_RESOURCE: lambda device: (device.metadata.labels, device.spec)},
    ClusterColocationProfile: {
        Controller.COLOCATION_PROFILE: lambda profile: (profile.metadata.labels, profile.spec)
    },
    ElasticQuotaProfile: {Controller.QUOTA_PROFILE: lambda profile: profile},
}


class QueueMirror:
    """Objects by kind and key."""

    def __init__(self, options: QueueUnitOptions) -> None:
        self._job_kinds = tuple(kind.type for kind in options.kinds)
        self.kinds: tuple[type[KubeObject], ...] = (
            *watched_by(options.configuration),
            PriorityClass,
            Queue,
            QueueUnit,
            *self._job_kinds,
        )
        self._objects: dict[type[KubeObject], dict[str, Any]] = {kind: {} for kind in self.kinds}

    def take(self, obj: KubeObject, *, deleted: bool) -> bool:
        """Store or remove an object; return whether the mirror has changed."""
        kept = self._objects.get(type(obj))
        if kept is None:
            return False
        known = kept.get(obj.key)
        if known is not None and is_newer_version(
            known.metadata.resource_version, obj.metadata.resource_version
        ):
            return False
        if deleted:
            return kept.pop(obj.key, None) is not None
        kept[obj.key] = obj
        return bool(known != obj)

    def world(self) -> QueueWorld:
        """Return a read-only view of all objects."""
        objects = self._objects
        return QueueWorld(
            jobs=[job for kind in self._job_kinds for job in objects[kind].values()],
            units=objects[QueueUnit],
            queues=objects[Queue],
            quotas=objects.get(ElasticQuota, {}).values(),
            trees=objects.get(ElasticQuotaTree, {}).values(),
            namespaces=objects.get(Namespace, {}),
            resource_quotas=objects.get(ResourceQuota, {}).values(),
            priority_classes=objects[PriorityClass],
        )
