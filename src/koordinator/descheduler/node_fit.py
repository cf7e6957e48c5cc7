"""Whether a pod could run on a node: labels, taints, cordons and requests, as far as looked at.

Source: koordinator pkg/descheduler/node/node.go, ``NodeFit``.
"""

from collections.abc import Hashable, Iterable

import msgspec

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.contract import ClusterView
from koordinator.domain.node_selection import admits_pod
from koordinator.domain.pod_requests import Requests, bounded, pod_requests
from koordinator.domain.tolerations import FORBIDDING, untolerated


def accepts(node: Node, pod: Pod) -> bool:
    """Return whether a node would take a pod if it had room: cordon, labels and taints."""
    return (
        not node.spec.unschedulable
        and admits_pod(node, pod.spec)
        and not untolerated(node.spec.taints, pod.spec.tolerations, FORBIDDING)
    )


def acceptance_key(pod: Pod) -> Hashable:
    """Return what ``accepts`` reads of a pod: equal for pods that the same nodes accept."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if not (spec.node_selector or affinity or spec.tolerations):
        return b""
    return msgspec.msgpack.encode((sorted(spec.node_selector.items()), affinity, spec.tolerations))


def free_on(node: Node, view: ClusterView) -> Requests:
    """Return what of each resource no pod on the node has asked for; may be negative."""
    taken = view.requested_on(node.metadata.name)
    allocatable = node.status.allocatable
    return {
        name: bounded(name, quantity) - taken.get(name, 0) for name, quantity in allocatable.items()
    }


def has_room(node: Node, pod: Pod, view: ClusterView) -> bool:
    """Return whether a pod's requests fit beside those of the pods that are there."""
    free = free_on(node, view)
    return all(amount <= free.get(name, 0) for name, amount in pod_requests(pod.spec).items())


def fits(node: Node, pod: Pod, view: ClusterView) -> bool:
    """Return whether a pod could run on a node; how many pods it may have is not looked at."""
    return accepts(node, pod) and has_room(node, pod, view)


def fits_elsewhere(nodes: Iterable[Node], pod: Pod, view: ClusterView) -> bool:
    """Return whether some of the nodes other than its own could take the pod."""
    return any(node.metadata.name != pod.spec.node_name and fits(node, pod, view) for node in nodes)
