"""What exists, as the watches tell it, and which objects a change concerns.

A write's answer is put in at once, so nothing is written twice while its news are on their way.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from koordinator.api.annotations.numa import CPU_BASIC_INFO
from koordinator.api.device import Device
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.domain.colocation.node import NodePod, node_pod
from koordinator.manager.controllers.node_resource import NodeView


class Controller(StrEnum):
    """What can be switched off by the flag ``--controllers``."""

    NODE_METRIC = "nodemetric"
    NODE_RESOURCE = "noderesource"
    NODE_SLO = "nodeslo"
    QUOTA_PROFILE = "quotaprofile"


Key = tuple[Controller, str]  # the object by its key
_OF_NODES = (Controller.NODE_METRIC, Controller.NODE_SLO, Controller.NODE_RESOURCE)


class Mirror:
    """Objects by kind and key, and the pods of every node as they count there."""

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
            )
        }
        self._pods: dict[str, dict[str, NodePod]] = {}  # by node, then by key
        self._node_of: dict[str, str] = {}

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

    def node_view(self, name: str) -> NodeView | None:
        """Return a node and all that is known of it; None if it does not exist."""
        node = self.nodes.get(name)
        if node is None:
            return None
        return NodeView(
            node=node,
            metric=self.metrics.get(name),
            pods=tuple(self._pods.get(name, {}).values()),
            topology=self._objects[NodeResourceTopology].get(name),
            device=self._objects[Device].get(name),
        )

    def put(self, obj: KubeObject) -> Iterator[Key]:
        """Take in an object as it is now; yield whom that concerns."""
        if isinstance(obj, Pod):
            self._put_pod(obj)
            return
        kept = self._objects[type(obj)]
        old = kept.get(obj.key)
        kept[obj.key] = obj
        if old != obj:
            yield from _concerned(old, obj)

    def drop(self, obj: KubeObject) -> Iterator[Key]:
        """Take out an object; yield whom that concerns."""
        if isinstance(obj, Pod):
            self._drop_pod(obj.key)
            return
        if self._objects[type(obj)].pop(obj.key, None) is not None:
            yield from _concerned(obj, None)

    def _put_pod(self, pod: Pod) -> None:
        key, node = pod.key, pod.spec.node_name
        counted = node_pod(pod) if node else None
        if counted is None:
            self._drop_pod(key)
        else:
            self._pods.setdefault(node, {})[key] = counted
            self._node_of[key] = node

    def _drop_pod(self, key: str) -> None:
        node = self._node_of.pop(key, "")
        pods = self._pods.get(node)
        if pods is not None:
            pods.pop(key, None)
            if not pods:
                del self._pods[node]


def _concerned(old: KubeObject | None, new: KubeObject | None) -> Iterator[Key]:
    """Yield whom a change concerns; what no controller reads concerns nobody."""
    match old or new:
        case Node() as node:
            name = node.metadata.name
            if old is None or new is None or _as_read(old) != _as_read(new):
                yield from ((each, name) for each in _OF_NODES)
        case NodeMetric() as metric:
            yield Controller.NODE_METRIC, metric.key
            yield Controller.NODE_RESOURCE, metric.key
        case NodeSlo() as slo:
            yield Controller.NODE_SLO, slo.key
        case NodeResourceTopology() as topology:
            if _as_read(old) != _as_read(new):
                yield Controller.NODE_RESOURCE, topology.key
        case Device() as device:
            yield Controller.NODE_RESOURCE, device.key
        case ElasticQuotaProfile() as profile:
            yield Controller.QUOTA_PROFILE, profile.key


def _as_read(obj: KubeObject | None) -> object:
    """Return all of a node or a topology that a controller reads."""
    match obj:
        case Node(metadata=meta, status=status):
            return meta.labels, meta.annotations, status.capacity, status.allocatable
        case NodeResourceTopology(metadata=meta, zones=zones):
            return meta.annotations.get(CPU_BASIC_INFO.key), zones
    return None
