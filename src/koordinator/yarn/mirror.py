"""Mirror of nodes and of the YARN cluster.

Source: yarn-copilot pkg/controller/noderesource (which takes the first pod of the label).
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec.structs import replace

from koordinator.api.annotations.node import (
    ORIGIN_EXTENDED_ALLOCATABLE,
    THIRD_PARTY_ALLOCATIONS,
    YARN_CLUSTER_ID,
    YARN_NODE_ID,
)
from koordinator.api.conditions import find_condition
from koordinator.api.core import ResourceRequirements
from koordinator.api.labels import COMPONENT, NODE_MANAGER
from koordinator.api.meta import Condition, KubeObject, ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus, is_terminal
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.cluster.port import Transform
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.hadoop.amounts import NOTHING, BatchAmounts, YarnResource, whole_units
from koordinator.hadoop.configuration import DEFAULT_CLUSTER
from koordinator.hadoop.port import YarnNode
from koordinator.yarn.follower import UNCONFIRMED_LIMIT_S, YarnFollower

AnyT = TypeVar("AnyT")

_SCHEDULED, _UNSCHEDULABLE = "PodScheduled", "Unschedulable"
_NOTES: Final = (
    YARN_CLUSTER_ID,
    YARN_NODE_ID,
    ORIGIN_EXTENDED_ALLOCATABLE.key,
    THIRD_PARTY_ALLOCATIONS.key,
)
_SHARED: Final = 1 << 14  # parts of pods that are the same and kept once
_PORTS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class NodeManagerRef:
    """Reference to a NodeManager in an annotation; without ``node_id`` it is found by host."""

    cluster_id: str
    node_id: str = ""
    problem: str = ""  # error in the annotation


class YarnMirror:
    """Cache of the Kubernetes watch; ``namespace`` is that with NodeManager pods, empty for all."""

    def __init__(self, namespace: str = "") -> None:
        self.nodes: dict[str, Node] = {}
        self._namespace = namespace
        self._requests: dict[str, dict[str, BatchAmounts]] = {}  # by node, then by pod
        self._managers: dict[str, dict[str, tuple[float, str, NodeManagerRef]]] = {}
        self._node_of: dict[str, str] = {}
        self._waiting: dict[str, BatchAmounts] = {}
        self._largest: BatchAmounts | None = NOTHING  # None if outdated

    def put(self, obj: KubeObject) -> Iterator[str]:
        """Add or update an object; yield the affected nodes."""
        if isinstance(obj, Node):
            known = self.nodes.get(obj.key)
            self.nodes[obj.key] = obj
            if known is None or _as_read(known) != _as_read(obj):
                yield obj.key
        elif isinstance(obj, Pod):
            yield from self._put_pod(obj)

    def drop(self, obj: KubeObject) -> Iterator[str]:
        """Remove an object; yield the affected nodes."""
        if isinstance(obj, Node):
            self.nodes.pop(obj.key, None)
            yield obj.key
        elif isinstance(obj, Pod):
            yield from self._drop_pod(obj.key)

    @property
    def largest_waiting(self) -> BatchAmounts:
        """Largest request of an unschedulable pod, for each resource."""
        if self._largest is None:
            self._largest = NOTHING
            for each in self._waiting.values():
                self._largest = self._largest.larger(each)
        return self._largest

    def requested(self, node: str) -> BatchAmounts:
        """Return the batch requests of the pods on a node."""
        total = NOTHING
        for each in self._requests.get(node, {}).values():
            total = total.plus(each)
        return total

    def node_manager(self, node: str) -> NodeManagerRef | None:
        """Return which NodeManager runs on a node: by the oldest of its pods, else by the node."""
        pods = self._managers.get(node)
        if pods:
            return min(pods.values(), key=lambda each: each[:2])[2]
        known = self.nodes.get(node)
        if known is not None and YARN_NODE_ID in known.metadata.annotations:
            return _reference(known.metadata)
        return None

    def with_node_managers(self) -> Iterator[str]:
        """Yield the nodes on which a NodeManager runs."""
        yield from self._managers
        for name, node in self.nodes.items():
            if name not in self._managers and YARN_NODE_ID in node.metadata.annotations:
                yield name

    def _put_pod(self, pod: Pod) -> Iterator[str]:
        key, node = pod.key, pod.spec.node_name
        if is_terminal(pod):
            yield from self._drop_pod(key)
            return
        amounts = _batch_requests(pod)
        if not node:
            self._wait(key, amounts if _is_unschedulable(pod) else NOTHING)
            return
        self._wait(key, NOTHING)
        manager = self._manager_of(pod)
        known = self._managers.get(node, {}).get(key), self._requests.get(node, {}).get(key)
        _set(self._managers, node, key, manager)
        _set(self._requests, node, key, amounts if amounts != NOTHING else None)
        if manager is None and amounts == NOTHING:
            self._node_of.pop(key, None)
        else:
            self._node_of[key] = node
        if known != (self._managers.get(node, {}).get(key), self._requests.get(node, {}).get(key)):
            yield node

    def _drop_pod(self, key: str) -> Iterator[str]:
        self._wait(key, NOTHING)
        node = self._node_of.pop(key, "")
        if node:
            _set(self._managers, node, key, None)
            _set(self._requests, node, key, None)
            yield node

    def _manager_of(self, pod: Pod) -> tuple[float, str, NodeManagerRef] | None:
        meta = pod.metadata
        if meta.labels.get(COMPONENT) != NODE_MANAGER:
            return None
        if self._namespace and meta.namespace != self._namespace:
            return None
        return to_epoch_s(meta.creation_timestamp), pod.key, _reference(meta)

    def _wait(self, key: str, amounts: BatchAmounts) -> None:
        known = self._waiting.get(key, NOTHING)
        if known == amounts:
            return
        if amounts == NOTHING:
            del self._waiting[key]
        else:
            self._waiting[key] = amounts
        self._largest = None


def node_as_read(obj: KubeObject) -> KubeObject:
    """Return a node with nothing but what decisions and writes read of it."""
    if not isinstance(obj, Node):
        return obj
    meta, status = obj.metadata, obj.status
    return Node(
        metadata=ObjectMeta(
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            annotations={key: meta.annotations[key] for key in _NOTES if key in meta.annotations},
        ),
        status=NodeStatus(
            allocatable={
                name: status.allocatable[name]
                for name in (BATCH_CPU, BATCH_MEMORY)
                if name in status.allocatable
            },
            addresses=status.addresses,
        ),
    )


def pod_as_read(obj: KubeObject) -> KubeObject:
    """Return a pod with nothing but what decisions read of it; most have next to nothing."""
    if not isinstance(obj, Pod):
        return obj
    meta = obj.metadata
    is_manager = meta.labels.get(COMPONENT) == NODE_MANAGER
    kept = ObjectMeta(
        name=meta.name,
        namespace=sys.intern(meta.namespace),
        uid=meta.uid,
        resource_version=meta.resource_version,
    )
    if is_manager:
        kept = replace(
            kept,
            labels={COMPONENT: NODE_MANAGER},
            annotations={key: meta.annotations[key] for key in _NOTES if key in meta.annotations},
            creation_timestamp=meta.creation_timestamp,
        )
    return Pod(
        metadata=kept,
        spec=_spec(sys.intern(obj.spec.node_name), _batch_requests(obj)),
        status=_status(sys.intern(obj.status.phase), _is_unschedulable(obj)),
    )


@lru_cache(maxsize=_SHARED)
def _spec(node_name: str, amounts: BatchAmounts) -> PodSpec:
    """Return a shared pod spec with these requests."""
    containers: tuple[Container, ...] = ()
    if amounts != NOTHING:
        requests = ResourceRequirements(requests=amounts.resources())
        containers = (Container(name="", resources=requests),)
    return PodSpec(containers=containers, node_name=node_name)


@lru_cache(maxsize=_SHARED)
def _status(phase: str, is_unschedulable: bool) -> PodStatus:
    waits = Condition(type=_SCHEDULED, status="False", reason=_UNSCHEDULABLE)
    return PodStatus(phase=phase, conditions=(waits,) if is_unschedulable else ())


def _batch_requests(pod: Pod) -> BatchAmounts:
    requests = pod_requests(pod.spec)
    return BatchAmounts(requests.get(BATCH_CPU, 0), requests.get(BATCH_MEMORY, 0))


#: What a watch keeps of nodes and pods.
AS_READ: Final[Mapping[type[KubeObject], Transform]] = MappingProxyType(
    {Node: node_as_read, Pod: pod_as_read}
)


def _set(table: dict[str, dict[str, AnyT]], node: str, key: str, value: AnyT | None) -> None:
    if value is not None:
        table.setdefault(node, {})[key] = value
        return
    entries = table.get(node)
    if entries is not None:
        entries.pop(key, None)
        if not entries:
            del table[node]


def _reference(meta: ObjectMeta) -> NodeManagerRef:
    cluster_id = meta.annotations.get(YARN_CLUSTER_ID, "") or DEFAULT_CLUSTER
    text = meta.annotations.get(YARN_NODE_ID, "")
    if not text:
        return NodeManagerRef(cluster_id)
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < _PORTS or "/" in host:
        problem = f"must be host:port, as the NodeManager registers, got {text!r}"
        return NodeManagerRef(cluster_id, problem=f"annotation {YARN_NODE_ID}: {problem}")
    return NodeManagerRef(cluster_id, text)


def _is_unschedulable(pod: Pod) -> bool:
    scheduled = find_condition(pod.status.conditions, _SCHEDULED)
    return scheduled is not None and (scheduled.status, scheduled.reason) == (
        "False",
        _UNSCHEDULABLE,
    )


def _as_read(node: Node) -> object:
    """Return the parts of a node that affect decisions."""
    shown: Mapping[str, object] = node.status.allocatable
    return (
        node.metadata.annotations,
        shown.get(BATCH_CPU),
        shown.get(BATCH_MEMORY),
        node.status.addresses,
    )


@dataclass(slots=True)
class YarnClusterState:
    """State of a cluster according to its follower."""

    follower: YarnFollower
    nodes: dict[str, YarnNode] = field(default_factory=dict)
    by_host: dict[str, set[str]] = field(default_factory=dict)
    owners: dict[str, set[str]] = field(default_factory=dict)  # Kubernetes nodes by NodeManager
    pending: dict[str, YarnResource] = field(default_factory=dict)  # requested, not settled
    #: Limits that may still take effect, with the time until which they may.
    unconfirmed: dict[str, tuple[YarnResource, float]] = field(default_factory=dict)
    shrinking: dict[str, float] = field(default_factory=dict)  # start of a limit below the usage
    paused: dict[str, float] = field(default_factory=dict)  # after a refusal: time of the retry
    met: set[str] = field(default_factory=set)  # NodeManagers settled since this replica leads
    is_known: bool = False
    problem: str = ""

    def unconfirmed_limit(self, node_id: str, now_s: float) -> YarnResource:
        """Return the largest limit that was sent and may still take effect."""
        unconfirmed, until_s = self.unconfirmed.get(node_id, (YarnResource(), 0.0))
        if until_s <= now_s and not self.problem:
            self.unconfirmed.pop(node_id, None)
            unconfirmed = YarnResource()
        return unconfirmed.larger(self.pending.get(node_id, YarnResource()))

    def record_unconfirmed_limit(self, node_id: str, sent: YarnResource, now_s: float) -> None:
        """Record a limit that may still take effect."""
        self.unconfirmed[node_id] = (
            self.unconfirmed_limit(node_id, now_s).larger(sent),
            now_s + UNCONFIRMED_LIMIT_S,
        )

    def set_problem(self, problem: str, now_s: float) -> None:
        """Record the read error; after a recovery, sent limits may still take effect for a time."""
        if not problem:
            again_s = now_s + UNCONFIRMED_LIMIT_S
            self.unconfirmed = {
                node_id: (sent, again_s) for node_id, (sent, _) in self.unconfirmed.items()
            }
        self.problem = problem

    def drop_expired_limits(self, now_s: float) -> None:
        """Remove expired limits, also of NodeManagers without a node."""
        for node_id in [
            each for each, (_, until_s) in self.unconfirmed.items() if until_s <= now_s
        ]:
            self.unconfirmed_limit(node_id, now_s)

    def record_first_settlement(self, node_id: str, promised: BatchAmounts, now_s: float) -> None:
        """Record the first settlement of a NodeManager by this leader.

        The previous leader may just have requested a limit up to the promise.
        """
        if node_id not in self.met:
            self.met.add(node_id)
            self.record_unconfirmed_limit(node_id, whole_units(promised), now_s)

    def forget(self, node_id: str) -> None:
        """Remove the state of a NodeManager without a node."""
        self.owners.pop(node_id, None)
        self.shrinking.pop(node_id, None)
        self.paused.pop(node_id, None)
        self.met.discard(node_id)

    def put(self, node_id: str, node: YarnNode | None) -> None:
        """Set the state of a NodeManager; None removes it."""
        host = node_id.rpartition(":")[0]
        if node is not None:
            self.nodes[node_id] = node
            self.by_host.setdefault(host, set()).add(node_id)
            return
        self.nodes.pop(node_id, None)
        ids = self.by_host.get(host, set())
        ids.discard(node_id)
        if not ids:
            self.by_host.pop(host, None)
