"""Status of allocated claims, and reservations of claims for pods and PodGroups.

A pod shares a claim with its PodGroup of scheduling.k8s.io if both have an entry with the same name
and the same claim or template.  The claim is then reserved for the group, not for the pod.

Source: k8s.io/dynamic-resource-allocation structured/internal/incubating/allocator_incubating.go
``Allocate``, ``createNodeSelector``; resourceclaim/claim.go; resourceclaim/resourceclaim.go
``BindTo``, ``IsForPod``, ``IsReservedForPod``, ``NameFromPodGroup``.
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from koordinator.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordinator.api.dynamic_resources import (
    DELETE_PROTECTION,
    ClaimAllocation,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from koordinator.api.kube_version import V1_37
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.kubescheduler.gates import DRA_WORKLOAD_CLAIMS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import PodResourceClaim, PodResourceClaimStatus
from koordinator.api.pod_groups import (
    PodGroupResourceClaim,
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha2,
)
from koordinator.domain.dynamic_resources.allocator import AllocatedDevice, AllocatorGates
from koordinator.domain.dynamic_resources.inventory import DeviceId, InventoryDevice
from koordinator.domain.dynamic_resources.requests import PendingClaim
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.quantity import Quantity

PODS: Final = "pods"  # resource name of consumers that are pods
FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"
_SHARES: Final = uuid.UUID("5a0f8f7e-2f6c-4c3e-9a6e-5d2d7c9a1b10")  # UUID namespace of share ids

POD_GROUPS: Final = "podgroups"  # resource name of consumers that are groups
_API_GROUP: Final = "scheduling.k8s.io"


def allocation_of(
    claim: PendingClaim,
    devices: Sequence[AllocatedDevice],
    node: str,
    gates: AllocatorGates,
    now_s: float = 0.0,
) -> ClaimAllocation:
    """Return the allocation of a claim with these devices on a node.

    ``now_s`` is the allocation time of devices with binding conditions.
    """
    return ClaimAllocation(
        devices=DeviceAllocationResult(
            results=tuple(
                _result(claim, number, allocated, gates) for number, allocated in enumerate(devices)
            ),
            config=tuple(_configuration(claim, devices, joins=gates.from_1_37)),
        ),
        node_selector=_node_selector([one.device for one in devices], node, gates),
        allocation_timestamp=to_datetime(now_s) if gates.binding_conditions else None,
    )


def _result(
    claim: PendingClaim, number: int, allocated: AllocatedDevice, gates: AllocatorGates
) -> DeviceRequestAllocationResult:
    option, device = allocated.option, allocated.device
    driver, pool, name = device.id
    result = DeviceRequestAllocationResult(
        request=option.name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if option.admin_access else None,
    )
    if gates.taints:
        result = replace(result, tolerations=option.tolerations)
    if gates.binding_conditions:
        result = replace(
            result,
            binding_conditions=device.spec.binding_conditions,
            binding_failure_conditions=device.spec.binding_failure_conditions,
        )
    consumed = shared_capacity(allocated, gates)
    if consumed is not None:
        shared = f"{claim.uid}/{number}/{'/'.join(device.id)}"
        share_id = str(uuid.uuid5(_SHARES, shared))
        result = replace(result, share_id=share_id, consumed_capacity=consumed)
    return result


def shared_capacity(
    allocated: AllocatedDevice, gates: AllocatorGates
) -> dict[str, Quantity] | None:
    """Return the consumed capacity of a device that claims share; None for any other device."""
    spec = allocated.device.spec
    if not (gates.capacity and spec.allow_multiple_allocations):
        return None
    return {
        name: Quantity(amount, spec.capacity[name].value.notation)
        for name, amount in allocated.consumed.items()
    }


def _configuration(
    claim: PendingClaim, devices: Sequence[AllocatedDevice], *, joins: bool
) -> Iterable[DeviceAllocationConfiguration]:
    """Yield the configuration of classes, then of the claim, for the chosen requests.

    With ``joins``, each configuration is yielded once, without requests if it applies to all.
    """
    configurations = _configurations_of(claim, devices, once=joins)
    if not joins:
        return configurations
    chosen = {one.option.name.partition("/")[0]: one.option.name for one in devices}
    names = [{request.name, chosen.get(request.name, "")} for request in claim.requests]
    return (
        replace(one, requests=())
        if one.requests and all(not each.isdisjoint(one.requests) for each in names)
        else one
        for one in configurations
    )


def _configurations_of(
    claim: PendingClaim, devices: Sequence[AllocatedDevice], *, once: bool
) -> Iterable[DeviceAllocationConfiguration]:
    options = {one.option.name: one.option for one in devices}
    of_class: dict[str, list[str]] = {}
    for name, option in options.items():
        of_class.setdefault(option.device_class.metadata.name, []).append(name)
    for requests in of_class.values():
        for config in options[requests[0]].device_class.spec.config:
            yield DeviceAllocationConfiguration(
                source=FROM_CLASS, requests=tuple(requests), opaque=config.opaque
            )
    known = {*options, *(name.partition("/")[0] for name in options)}
    for entry in claim.spec.config:
        given = DeviceAllocationConfiguration(
            source=FROM_CLAIM, requests=entry.requests, opaque=entry.opaque
        )
        if not entry.requests:
            yield given
        concerned = [request for request in entry.requests if request in known]
        for _ in concerned[:1] if once else concerned:  # once per request, as Kubernetes up to 1.36
            yield given


def _node_selector(
    devices: Sequence[InventoryDevice], node: str, gates: AllocatorGates
) -> NodeSelector | None:
    """Return the selector of nodes that can access the devices; None for all nodes."""
    expressions: dict[NodeSelectorRequirement, None] = {}
    fields: dict[NodeSelectorRequirement, None] = {}
    for device in devices:
        by_device = device.slice.per_device_node_selection
        place = device.spec if by_device else device.slice
        if place.node_name or (gates.binding_conditions and device.spec.binds_to_node):
            name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),))
        if place.node_selector is not None:
            for term in place.node_selector.node_selector_terms:
                expressions |= dict.fromkeys(term.match_expressions)
                fields |= dict.fromkeys(term.match_fields)
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


# -- stored claims -------------------------------------------------------------------------------


def consumer(meta: ObjectMeta) -> ResourceClaimConsumerReference:
    """Return the reference to a pod in ``status.reservedFor``."""
    return ResourceClaimConsumerReference(resource=PODS, name=meta.name, uid=meta.uid)


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    """Return whether the claim is reserved for a pod."""
    return any(one.uid == uid for one in claim.status.reserved_for)


def with_allocation(claim: ResourceClaim, allocation: ClaimAllocation) -> ResourceClaim:
    """Return the claim with an allocation and the finalizer against deletion."""
    meta = claim.metadata
    if DELETE_PROTECTION not in meta.finalizers:
        meta = replace(meta, finalizers=(*meta.finalizers, DELETE_PROTECTION))
    return replace(claim, metadata=meta, status=replace(claim.status, allocation=allocation))


def with_consumer(claim: ResourceClaim, reference: ResourceClaimConsumerReference) -> ResourceClaim:
    """Return the claim with an additional consumer."""
    if is_reserved_for(claim, reference.uid):
        return claim
    reserved = (*claim.status.reserved_for, reference)
    return replace(claim, status=replace(claim.status, reserved_for=reserved))


def without_consumer(claim: ResourceClaim, uid: str) -> ResourceClaim:
    """Return the claim without the consumer of that uid."""
    reserved = tuple(one for one in claim.status.reserved_for if one.uid != uid)
    if len(reserved) == len(claim.status.reserved_for):
        return claim
    return replace(claim, status=replace(claim.status, reserved_for=reserved))


def without_allocation(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim without allocation, consumers and finalizer."""
    meta = claim.metadata
    finalizers = tuple(name for name in meta.finalizers if name != DELETE_PROTECTION)
    return replace(
        claim,
        metadata=replace(meta, finalizers=finalizers),
        status=replace(claim.status, allocation=None, devices=(), reserved_for=()),
    )


def devices_of(claim: ResourceClaim) -> Iterable[tuple[DeviceId, DeviceRequestAllocationResult]]:
    """Yield the exclusively allocated devices of a claim; admin access does not count."""
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if not result.admin_access:
            yield (result.driver, result.pool, result.device), result


def claim_names(
    entries: Iterable[PodResourceClaim], made: Iterable[PodResourceClaimStatus]
) -> Iterable[tuple[PodResourceClaim, str | None]]:
    """Yield the entries of ``spec.resourceClaims`` with the names of their claims.

    The name is None if the claim has not been created yet. Entries that need no claim are left out.
    """
    names = {one.name: one.resource_claim_name or "" for one in made}
    for entry in entries:
        name = entry.resource_claim_name or names.get(entry.name)
        if name != "":
            yield entry, name


def is_same_allocation(one: ClaimAllocation, other: ClaimAllocation) -> bool:
    """Return whether two allocations have the same devices for the same requests."""
    return [_identity(result) for result in one.devices.results] == [
        _identity(result) for result in other.devices.results
    ]


def _identity(result: DeviceRequestAllocationResult) -> tuple[object, ...]:
    return result.request, result.driver, result.pool, result.device, result.share_id


def consumer_of(
    entry: PodResourceClaim, pod: ObjectMeta, group: SchedulingPodGroup | None
) -> ResourceClaimConsumerReference:
    """Return for whom the claim of a pod's entry is reserved: the pod, or its group."""
    if group is None:
        return consumer(pod)
    if not is_shared(entry, group):
        return consumer(pod)
    return ResourceClaimConsumerReference(
        api_group=_API_GROUP,
        resource=POD_GROUPS,
        name=group.metadata.name,
        uid=group.metadata.uid,
    )


def is_shared(entry: PodResourceClaim, group: SchedulingPodGroup) -> bool:
    """Return whether the group of a pod has an entry equal to an entry of the pod."""
    own = (entry.name, entry.resource_claim_name, entry.resource_claim_template_name)
    return any(
        own == (one.name, one.resource_claim_name, one.resource_claim_template_name)
        for one in group.spec.resource_claims
    )


def claim_name_of(
    group: SchedulingPodGroup, entry: PodResourceClaim | PodGroupResourceClaim
) -> str:
    """Return the name of the claim of a group's entry; empty if it has not been created."""
    made = (
        s.resource_claim_name for s in group.status.resource_claim_statuses if s.name == entry.name
    )
    return entry.resource_claim_name or next(made, None) or ""


def is_made_for_group(claim: ResourceClaim, group: str) -> bool:
    """Return whether a claim was created for the PodGroup of a name; pods don't know its uid."""
    return bool(group) and any(
        owner.controller
        and owner.name == group
        and owner.kind == SchedulingPodGroup.KIND
        and owner.api_version.startswith(f"{_API_GROUP}/")
        for owner in claim.metadata.owner_references
    )


def is_reserved_for_group(claim: ResourceClaim, group: str) -> bool:
    """Return whether a claim is reserved for the PodGroup of a name."""
    return bool(group) and any(
        (one.api_group, one.resource, one.name) == (_API_GROUP, POD_GROUPS, group)
        for one in claim.status.reserved_for
    )


def sharing_groups(gates: FeatureGates) -> type[SchedulingPodGroup] | None:
    """Return the kind of PodGroups whose claims their pods share; None: no claims are shared."""
    if DRA_WORKLOAD_CLAIMS not in gates:
        return None
    return SchedulingPodGroup if gates.level >= V1_37 else SchedulingPodGroupV1Alpha2
