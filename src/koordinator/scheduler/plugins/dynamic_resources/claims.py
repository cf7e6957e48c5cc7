"""Resource claims of a pod, and queueing hints about them.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go
``PreEnqueue``, ``PreFilter``, ``validateDeviceClass``; kubernetes
pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go ``EventsToRegister``,
``isSchedulableAfterClaimChange``.
"""

import dataclasses
from collections.abc import Collection, Iterable
from typing import Final

import numpy as np
from msgspec.structs import replace

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.device import DeviceType
from koordinator.api.dynamic_resources import (
    DeviceClaimRequest,
    DeviceClass,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodResourceClaim, PodSpec
from koordinator.api.pod_groups import SchedulingPodGroup
from koordinator.api.resource_validation import is_extended
from koordinator.domain.devices.requests import names_of
from koordinator.domain.dynamic_resources.allocation import (
    claim_names,
    consumer_of,
    is_made_for_group,
    is_reserved_for,
    is_reserved_for_group,
)
from koordinator.domain.dynamic_resources.extended_resources import (
    NOT_MADE,
    UNNAMED,
    ExtendedRequests,
    extended_requests,
    made_claim,
    resources_of,
)
from koordinator.domain.dynamic_resources.node_gpus import DRIVER
from koordinator.domain.dynamic_resources.requests import PendingClaim, pending_claim
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import Action, ClusterEvent, EventHint, QueueingHint, Refusal
from koordinator.scheduler.snapshot import ObjectTable, PodClass, Snapshot

_GPU_NAMES: Final = names_of(DeviceType.GPU)


@dataclass(frozen=True, slots=True)
class PodDeviceClaims:
    """Claims of a schedulable pod, in the order of its spec."""

    claims: tuple[ResourceClaim, ...]
    pending: tuple[PendingClaim, ...]  # the claims without allocation
    avoids: str = ""  # driver whose devices the pod also gets by its requests
    #: claim that an earlier attempt created for extended resources; must be deleted first
    stale: ResourceClaim | None = None
    #: extended resources that the last pending claim serves
    extended: ExtendedRequests | None = None
    #: for whom each of the claims is reserved: the pod, or its group
    consumers: tuple[ResourceClaimConsumerReference, ...] = ()

    @property
    def allocated(self) -> Iterable[ResourceClaim]:
        """The claims with an allocation."""
        return (claim for claim in self.claims if claim.status.allocation is not None)

    @property
    def has_alternatives(self) -> bool:
        """Whether nodes may differ in the alternatives that they can offer."""
        return any(claim.has_alternatives for claim in self.pending)


def why_not_ready(pod: Pod, objects: ObjectTable, *, shares: bool) -> str:
    """Return which claim of a pod does not exist yet; empty if all do.

    ``shares``: claims of the pod's group count.
    """
    group = group_name(pod.spec) if shares else ""
    for entry, name in claim_names(pod.spec.resource_claims, pod.status.resource_claim_statuses):
        claim = _find(objects, pod.metadata, entry, name, group)
        if isinstance(claim, str):
            return claim
    return ""


def group_name(spec: PodSpec) -> str:
    """Return the name of the PodGroup of scheduling.k8s.io that a pod is in; empty without one."""
    return spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else ""


_CLAIMS: Memo[PodDeviceClaims | Refusal] = Memo()


def read_claims(
    snapshot: Snapshot, pod: PodClass, groups: type[SchedulingPodGroup] | None
) -> PodDeviceClaims | Refusal:
    """Return the claims of a pod, or why it cannot be scheduled with them.

    ``groups`` is the kind of PodGroups whose claims are shared; None: no claims are.

    An attempt asks several times; ``forget_claims`` drops what is kept for it.
    """
    objects = snapshot.objects
    kinds = (ResourceClaim, DeviceClass) if groups is None else (ResourceClaim, DeviceClass, groups)
    version = objects, groups, objects.version(*kinds)
    return _CLAIMS.as_of(pod, version, _read_claims, snapshot, pod, groups)


def forget_claims(pod: PodClass) -> None:
    """Drop what ``read_claims`` keeps of a pod that waits no more."""
    _CLAIMS.forget(pod)


def _read_claims(
    snapshot: Snapshot, pod: PodClass, groups: type[SchedulingPodGroup] | None
) -> PodDeviceClaims | Refusal:
    """Work out the claims of a pod.

    The GPUs that a pod gets for its requests are not known when its claims are allocated, so the
    claims avoid the devices of that driver.
    """
    objects = snapshot.objects
    meta = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
    name_of_group = group_name(pod.spec) if groups is not None else ""
    group = objects.get(groups, f"{pod.namespace}/{name_of_group}") if groups is not None else None
    claims: dict[str, ResourceClaim] = {}  # a claim named by two entries counts once
    consumers: dict[str, ResourceClaimConsumerReference] = {}
    for entry, name in claim_names(pod.spec.resource_claims, pod.claims_made):
        stored = _find(objects, meta, entry, name, name_of_group)
        if isinstance(stored, str):
            return Refusal(stored)
        problem = _problem(stored, pod.uid, name_of_group)
        if problem:
            return Refusal(problem)
        claims[stored.key] = stored
        consumers.setdefault(stored.key, consumer_of(entry, meta, group))
    pending = []
    for claim in claims.values():
        if claim.status.allocation is None:
            requests = pending_claim(claim, lambda name: objects.get(DeviceClass, name))
            if isinstance(requests, str):
                return Refusal(requests)
            pending.append(requests)
    stale = snapshot.extended.claims.get(pod.uid, "") if pod.uid else ""
    return PodDeviceClaims(
        tuple(claims.values()),
        tuple(pending),
        _avoided(snapshot, pod, ()),
        objects.get(ResourceClaim, stale) if stale else None,
        consumers=tuple(consumers.values()),
    )


def with_extended(
    snapshot: Snapshot, pod: PodClass, claims: PodDeviceClaims, columns: Collection[int]
) -> PodDeviceClaims | Refusal:
    """Return the claims, plus one if devices have to serve these extended resources."""
    if not columns:
        return claims
    names, objects = snapshot.resources, snapshot.objects
    extended = extended_requests(
        pod.spec, {names[column]: by for column, by in pod.served if column in columns}
    )
    meta = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
    claim = made_claim(UNNAMED, meta, extended.requests)
    # Shares of devices are named after the uid, which the claim does not have yet.
    claim = replace(claim, metadata=replace(claim.metadata, uid=pod.uid))
    pending = pending_claim(claim, lambda name: objects.get(DeviceClass, name))
    if isinstance(pending, str):
        return Refusal(pending)
    return dataclasses.replace(
        claims,
        pending=(*claims.pending, pending),
        avoids=_avoided(snapshot, pod, columns),
        extended=extended,
    )


def one_of_class(snapshot: Snapshot, device_class: str) -> PendingClaim | str:
    """Return a claim for one device of a class, or why it is invalid."""
    exactly = ExactDeviceRequest(device_class_name=device_class, count=1)
    request = DeviceClaimRequest(name=device_class, exactly=exactly)
    claim = made_claim(UNNAMED, ObjectMeta(), (request,))
    return pending_claim(claim, lambda name: snapshot.objects.get(DeviceClass, name))


def _avoided(snapshot: Snapshot, pod: PodClass, but: Collection[int]) -> str:
    """Return the driver whose devices the pod requests in columns other than ``but``."""
    names = snapshot.resources
    requested = (names[column] for column, _ in pod.demand if column not in but)
    return DRIVER if any(name in _GPU_NAMES for name in requested) else ""


def delegations(snapshot: Snapshot, pod: PodClass) -> list[tuple[tuple[int, ...], BoolArray]]:
    """Return the sets of columns that devices have to serve, with the rows ``(n,)`` of each.

    A node that has an amount of a resource serves it itself.
    """
    columns = np.array([column for column, _ in pod.served], np.int64)
    missing = snapshot.allocatable[:, columns] == 0
    kinds, kind_of_row = np.unique(missing, axis=0, return_inverse=True)
    return [
        (tuple(columns[kind].tolist()), kind_of_row.ravel() == index)
        for index, kind in enumerate(kinds)
    ]


def unserved(snapshot: Snapshot, pod: PodClass) -> BoolArray:
    """Return ``(n,)``: the node lacks an extended resource that no class serves."""
    names, served = snapshot.resources, {column for column, _ in pod.served}
    others = [c for c, _ in pod.demand if c not in served and is_extended(names[c])]
    unserved_rows: BoolArray = (snapshot.allocatable[:, others] == 0).any(axis=1)
    return unserved_rows


def _find(
    objects: ObjectTable, pod: ObjectMeta, entry: PodResourceClaim, name: str | None, group: str
) -> ResourceClaim | str:
    """Return a claim of the pod or its group, or why there is none of that name."""
    if name is None:
        return NOT_MADE.format(entry.name)
    claim = objects.get(ResourceClaim, f"{pod.namespace}/{name}")
    if claim is None:
        return f'resourceclaim.resource.k8s.io "{name}" not found'
    if entry.resource_claim_name is not None or claim.metadata.is_controlled_by(pod.uid):
        return claim
    if is_made_for_group(claim, group):
        return claim
    owner = f"neither pod nor PodGroup {group} is the owner" if group else "pod is not owner"
    return f"ResourceClaim {claim.key} was not created for pod {pod.namespace}/{pod.name} ({owner})"


def _problem(claim: ResourceClaim, uid: str, group: str) -> str:
    """Return why the pod may not use the claim; empty if it may."""
    if claim.metadata.deletion_timestamp is None or is_reserved_for(claim, uid):
        return ""
    if is_reserved_for_group(claim, group):
        return ""
    return f'resourceclaim "{claim.metadata.name}" is being deleted'


def readiness(claim: ResourceClaim) -> bool | str:
    """Return whether all binding conditions hold, or which failure condition is reported."""
    allocation = claim.status.allocation
    reported = {
        (one.driver, one.pool, one.device): {c.type for c in one.conditions if c.status == "True"}
        for one in claim.status.devices
    }
    is_ready = True
    for result in allocation.devices.results if allocation is not None else ():
        known = reported.get((result.driver, result.pool, result.device), set())
        failed = known.intersection(result.binding_failure_conditions)
        if failed:
            device = f"{result.driver}/{result.pool}/{result.device}"
            return f"claim {claim.key}: device {device} reports {', '.join(sorted(failed))}"
        is_ready &= known.issuperset(result.binding_conditions)
    return is_ready


def conditional_drivers(claim: ResourceClaim) -> tuple[str, ...]:
    """Return the driver of each device of the claim that has binding conditions."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return tuple(result.driver for result in results if result.binding_conditions)


def why_lost(claim: ResourceClaim, now_s: float, timeout_s: float) -> str:
    """Return why the claim's devices cannot become ready any more; empty otherwise."""
    answer = readiness(claim)
    if isinstance(answer, str):
        return answer
    allocation = claim.status.allocation
    since = allocation.allocation_timestamp if allocation is not None else None
    if answer or since is None or to_epoch_s(since) + timeout_s >= now_s:
        return ""
    return f"claim {claim.key}: devices were not ready in time"


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
    changed = (old.status, old.metadata.uid) != (new.status, new.metadata.uid)
    return QueueingHint.QUEUE if changed else QueueingHint.SKIP


def _is_of(pod: Pod, claim: ResourceClaim) -> bool:
    if claim.metadata.namespace != pod.metadata.namespace:
        return False
    named = claim_names(pod.spec.resource_claims, pod.status.resource_claim_statuses)
    group = pod.spec.scheduling_group
    if group is not None and is_made_for_group(claim, group.pod_group_name):
        return True
    return claim.metadata.is_controlled_by(pod.metadata.uid) or any(
        name == claim.metadata.name for _, name in named
    )


def on_claimed_amounts(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if a node has more of a resource that devices may take of it."""
    old, new = event.old, event.new
    if not isinstance(old, Node) or not isinstance(new, Node):
        return QueueingHint.QUEUE
    before = old.status.allocatable
    grown = any(
        name not in before or amount > before[name]
        for name, amount in new.status.allocatable.items()
    )
    return QueueingHint.QUEUE if grown else QueueingHint.SKIP


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
