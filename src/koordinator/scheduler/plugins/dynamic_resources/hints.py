"""Queueing hints for pods that DynamicResources rejected.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go
``EventsToRegister``, ``isSchedulableAfterClaimChange``.
"""

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.domain.dynamic_resources.allocation import claim_names, is_made_for_pod
from koordinator.domain.dynamic_resources.extended_resources import resources_of
from koordinator.domain.pod_requests import pod_requests
from koordinator.scheduler.contract import Action, ClusterEvent, EventHint, QueueingHint


def _on_claim(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if the pod's own claim changes or devices are released."""
    old, new = event.old, event.new
    claim = new if isinstance(new, ResourceClaim) else old
    if not isinstance(pod, Pod) or not isinstance(claim, ResourceClaim):
        return QueueingHint.QUEUE
    had = isinstance(old, ResourceClaim) and old.status.allocation is not None
    has = isinstance(new, ResourceClaim) and new.status.allocation is not None
    if had and not has:
        return QueueingHint.QUEUE
    if not _is_of(pod, claim):
        return QueueingHint.SKIP
    if not isinstance(old, ResourceClaim) or not isinstance(new, ResourceClaim):
        return QueueingHint.QUEUE
    changed = (old.status.allocation, old.status.reserved_for, old.metadata.uid) != (
        new.status.allocation,
        new.status.reserved_for,
        new.metadata.uid,
    )
    return QueueingHint.QUEUE if changed else QueueingHint.SKIP


def _is_of(pod: Pod, claim: ResourceClaim) -> bool:
    if claim.metadata.namespace != pod.metadata.namespace:
        return False
    named = claim_names(pod.spec.resource_claims, pod.status.resource_claim_statuses)
    return is_made_for_pod(claim, pod.metadata) or any(
        name == claim.metadata.name for _, name in named
    )


def _on_node(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue unless only amounts have changed that are no extended resources of the pod."""
    old, new = event.old, event.new
    if not isinstance(old, Node) or not isinstance(new, Node) or not isinstance(pod, Pod):
        return QueueingHint.QUEUE
    if (old.metadata.labels, old.spec) != (new.metadata.labels, new.spec):
        return QueueingHint.QUEUE
    extended = (name for name in pod_requests(pod.spec) if "/" in name)
    before, after = old.status.allocatable, new.status.allocatable
    differ = any(before.get(name) != after.get(name) for name in extended)
    return QueueingHint.QUEUE if differ else QueueingHint.SKIP


def _on_class(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue for new and changed classes, and for deleted ones that served the pod's resources."""
    if event.new is not None or not isinstance(pod, Pod) or not isinstance(event.old, DeviceClass):
        return QueueingHint.QUEUE
    names = pod_requests(pod.spec).keys()
    requested = any(resource in names for resource in resources_of(event.old))
    return QueueingHint.QUEUE if requested else QueueingHint.SKIP


def _on_pod_deleted(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if the deleted pod had devices that claims can get."""
    deleted = event.old
    has_devices = deleted is None or ALLOCATED.key in deleted.metadata.annotations
    return QueueingHint.QUEUE if has_devices else QueueingHint.SKIP


EVENTS = (
    EventHint(
        "Node",
        Action.ADD | Action.UPDATE_LABELS | Action.UPDATE_TAINTS | Action.UPDATE_ALLOCATABLE,
        _on_node,
    ),
    EventHint("AssignedPod", Action.DELETE, _on_pod_deleted),
    EventHint("Pod", Action.UPDATE_GENERATED_CLAIMS),
    EventHint("ResourceClaim", Action.ALL, _on_claim),
    EventHint("DeviceClass", Action.ADD | Action.UPDATE | Action.DELETE, _on_class),
    EventHint("DeviceTaintRule", Action.UPDATE | Action.DELETE),
    EventHint("ResourceSlice", Action.ADD | Action.UPDATE | Action.DELETE),
)
