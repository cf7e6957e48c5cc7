"""Node fit of pods: labels, taints, cordons and requests.

Source: koordinator pkg/descheduler/node/node.go, ``NodeFit``; kubernetes-sigs/descheduler
pkg/descheduler/node/node.go for ``fits_beside``.
"""

from collections.abc import Hashable, Iterable, Sequence

import msgspec
import numpy as np

from koordinator.api.core import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.contract import ClusterView
from koordinator.domain.amounts import bounded
from koordinator.domain.node_selection import FORBIDDING, admits_pod, untolerated
from koordinator.domain.pod_affinity import PodScope, scope_of
from koordinator.domain.pod_requests import Requests, pod_requests
from koordinator.foundation.arrays import BoolArray


def is_ready(node: Node) -> bool:
    """Return whether no condition Ready of the node has another status than True."""
    return all(each.status == "True" for each in node.status.conditions if each.type == "Ready")


def accepts(node: Node, pod: Pod) -> bool:
    """Return whether cordon, labels and taints of a node admit a pod."""
    return (
        not node.spec.unschedulable
        and admits_pod(node, pod.spec)
        and not untolerated(node.spec.taints, pod.spec.tolerations, FORBIDDING)
    )


class AcceptingNodes:
    """Nodes whose cordon, labels and taints admit a pod, kept for pods with the same rules."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_key: dict[Hashable, BoolArray] = {}

    def of(self, pod: Pod) -> BoolArray:
        """Return ``(n_nodes,)``: the node admits the pod."""
        key = _acceptance_key(pod)
        known = self._by_key.get(key)
        if known is None:
            known = np.array([accepts(node, pod) for node in self._nodes], bool)
            self._by_key[key] = known
        return known


def _acceptance_key(pod: Pod) -> Hashable:
    """Return the fields of a pod that ``accepts`` reads."""
    spec = pod.spec
    affinity = spec.node_affinity
    if not (spec.node_selector or affinity or spec.tolerations):
        return b""
    return msgspec.msgpack.encode((sorted(spec.node_selector.items()), affinity, spec.tolerations))


def free_on(node: Node, view: ClusterView) -> Requests:
    """Return the unrequested amount of each resource of a node; it may be negative."""
    taken = view.requested_on(node.metadata.name)
    allocatable = node.status.allocatable
    return {
        name: bounded(name, quantity) - taken.get(name, 0) for name, quantity in allocatable.items()
    }


def has_headroom(node: Node, requests: Iterable[tuple[str, int]], view: ClusterView) -> bool:
    """Return whether requests by resource fit in the unrequested amounts of a node."""
    taken, allocatable = view.requested_on(node.metadata.name), node.status.allocatable
    for name, amount in requests:
        quantity = allocatable.get(name)
        has = bounded(name, quantity) if quantity is not None else 0
        if amount > has - taken.get(name, 0):
            return False
    return True


def fits(node: Node, pod: Pod, view: ClusterView) -> bool:
    """Return whether a pod fits on a node; the maximum number of pods is not checked."""
    return accepts(node, pod) and has_headroom(node, pod_requests(pod.spec).items(), view)


def fits_elsewhere(nodes: Iterable[Node], pod: Pod, view: ClusterView) -> bool:
    """Return whether the pod fits on one of the nodes other than its own."""
    return any(node.metadata.name != pod.spec.node_name and fits(node, pod, view) for node in nodes)


def fits_beside(node: Node, pod: Pod, view: ClusterView) -> bool:
    """Return whether a pod fits on a node by the rules of upstream's plugins.

    They also check the maximum number of pods, and the required anti-affinity of the pod to pods on
    the node.  On its own node the pod needs no further room.
    """
    if not accepts(node, pod) or _is_repelled(node, pod, view):
        return False
    if node.metadata.name == pod.spec.node_name:
        return True
    requests = pod_requests(pod.spec)
    return has_headroom(node, (("pods", 1), *requests.items()), view)


def _is_repelled(node: Node, pod: Pod, view: ClusterView) -> bool:
    for term in pod.spec.required_pod_anti_affinity:
        if term.topology_key not in node.metadata.labels:
            continue
        scope = scope_of(term, pod.metadata.namespace, pod.metadata.labels)
        if any(
            other.key != pod.key and is_covered(scope, other, view)
            for other in view.active_pods_on(node.metadata.name)
        ):
            return True
    return False


def is_covered(scope: PodScope, pod: Pod, view: ClusterView) -> bool:
    """Return whether an affinity term selects a pod."""
    namespace = pod.metadata.namespace
    known = view.objects(Namespace).get(namespace) if scope.namespace_selector else None
    labels = known.metadata.labels if known is not None else {}
    return scope.covers(namespace, pod.metadata.labels, labels)
