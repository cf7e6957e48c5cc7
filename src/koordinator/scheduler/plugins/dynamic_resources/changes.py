"""Changes of ResourceClaims: reservation, allocation, creation, release and deletion.

Claims are also released after a PodGroup of scheduling.k8s.io has found too few nodes.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go
``bindClaim``, ``PostFilter``, ``PodGroupPostFilter``, ``deallocatePodGroupClaims``;
extendeddynamicresources.go ``createExtendedResourceClaimInAPI``, ``deleteClaim``.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from koordinator.api.dynamic_resources import (
    DELETE_PROTECTION,
    RESERVATIONS_MAX,
    ClaimAllocation,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod_groups import SchedulingPodGroup
from koordinator.domain.dynamic_resources.allocation import (
    claim_name_of,
    consumer,
    is_reserved_for,
    is_same_allocation,
    with_allocation,
    with_consumer,
    without_allocation,
    without_consumer,
)
from koordinator.domain.dynamic_resources.extended_resources import (
    NAMES,
    ExtendedRequests,
    claim_names_of,
    made_claim,
    owner_of,
)
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.errors import ConflictError, InvalidError
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.plugins.dynamic_resources.claims import PodDeviceClaims, read_claims
from koordinator.scheduler.plugins.dynamic_resources.verdicts import NOT_AVAILABLE
from koordinator.scheduler.post_filter import WhatIf
from koordinator.scheduler.snapshot import ObjectChange, ObjectTable, PodClass

ALL_TAKEN = f'running PreBind plugin "DynamicResources": {NAMES} names for its claim are taken'

#: Returns (n,): nodes where the devices of allocated claims are out of reach; None if nowhere.
Unavailable = Callable[[PodDeviceClaims], BoolArray | None]
TRIED = 100  # most nodes to check for feasibility without an allocation; one is enough


def reservation(
    objects: ObjectTable,
    claim: ResourceClaim,
    new: ClaimAllocation | None,
    who: ResourceClaimConsumerReference,
) -> ObjectChange:
    """Return the change that reserves a claim for a pod, with devices if ``new`` has some.

    If another pod assumed the same allocation, the first of the two to bind writes it.
    """
    uid, allocation = claim.metadata.uid, new or claim.status.allocation
    stored = objects.stored(ResourceClaim, claim.key)
    was_stored = stored is not None and stored.status.allocation is not None

    def amend(now: ResourceClaim) -> ResourceClaim:
        if now.metadata.uid != uid:
            raise ConflictError(f"ResourceClaim {now.key} was replaced by another of that name")
        has = now.status.allocation
        if has is None:
            if was_stored or allocation is None:
                raise ConflictError(f"ResourceClaim {now.key} is no longer allocated")
            if now.metadata.deletion_timestamp is not None:
                raise ConflictError(f"ResourceClaim {now.key} is being deleted")
            now = with_allocation(now, allocation)
        elif allocation is None or not is_same_allocation(has, allocation):
            raise ConflictError(f"ResourceClaim {now.key} has other devices allocated")
        reserved = with_consumer(now, who)
        if len(reserved.status.reserved_for) > RESERVATIONS_MAX:
            raise InvalidError(too_many(now))
        return reserved

    return ObjectChange(ResourceClaim, claim.key, amend)


def too_many(claim: ResourceClaim) -> str:
    """Return the message of the API server for one consumer more than a claim may have."""
    return (
        f"add reservation to claim {claim.key}: ResourceClaim.resource.k8s.io "
        f'"{claim.metadata.name}" is invalid: status.reservedFor: Too many: '
        f"{RESERVATIONS_MAX + 1}: must have at most {RESERVATIONS_MAX} items"
    )


def release(claim: ResourceClaim, pod_uid: str) -> ObjectChange:
    """Return the change that deallocates a claim, unless another pod has reserved it."""
    uid = claim.metadata.uid

    def amend(now: ResourceClaim) -> ResourceClaim:
        if now.metadata.uid != uid:
            raise ConflictError(f"ResourceClaim {now.key} was replaced by another of that name")
        if any(one.uid != pod_uid for one in now.status.reserved_for):
            raise ConflictError(f"ResourceClaim {now.key} is in use")
        return without_allocation(now)

    return ObjectChange(ResourceClaim, claim.key, amend)


# -- claims created for extended resources ---------------------------------------------------------


def make_claim(
    objects: ObjectTable, pod: ObjectMeta, requests: ExtendedRequests, allocation: ClaimAllocation
) -> tuple[ObjectChange, str] | Refusal:
    """Return the change that creates an allocated claim for a pod, and the claim's name."""
    names = (n for n in claim_names_of(pod) if objects.get(ResourceClaim, _key(pod, n)) is None)
    name = next(names, "")
    if not name:
        return Refusal(ALL_TAKEN)
    made = made_claim(name, pod, requests.requests)

    def amend(now: ResourceClaim) -> ResourceClaim:
        if owner_of(now) != pod.uid or now.spec != made.spec:
            raise ConflictError(f"ResourceClaim {now.key} was created for other requests")
        if now.metadata.deletion_timestamp is not None:
            raise ConflictError(f"ResourceClaim {now.key} is being deleted")
        has = now.status.allocation
        if has is None:
            now = with_allocation(now, allocation)
        elif not is_same_allocation(has, allocation):
            raise ConflictError(f"ResourceClaim {now.key} has other devices allocated")
        return with_consumer(now, consumer(pod))

    def beside(now: ResourceClaim) -> ResourceClaim:
        """Return another claim of that name with these devices added: both count as taken."""
        has = now.status.allocation or ClaimAllocation()
        results = (*has.devices.results, *allocation.devices.results)
        both = replace(has, devices=replace(has.devices, results=results))
        return replace(now, status=replace(now.status, allocation=both))

    undo = deletion(made.key, pod.uid)
    change = ObjectChange(ResourceClaim, made.key, amend, created=made, beside=beside, undo=undo)
    return change, name


def find_made_claim(objects: ObjectTable, pod: ObjectMeta) -> ResourceClaim | None:
    """Return the claim that was created for a pod; None without one."""
    claims = (objects.get(ResourceClaim, _key(pod, name)) for name in claim_names_of(pod))
    return next((one for one in claims if one is not None and owner_of(one) == pod.uid), None)


def deletion(key: str, pod_uid: str) -> ObjectChange:
    """Return the change that unprotects and deletes the claim of a pod."""

    def amend(now: ResourceClaim) -> ResourceClaim:
        if owner_of(now) != pod_uid:
            raise ConflictError(f"ResourceClaim {now.key} was replaced by another of that name")
        if any(one.uid != pod_uid for one in now.status.reserved_for):
            raise ConflictError(f"ResourceClaim {now.key} is in use")
        meta = now.metadata
        finalizers = tuple(name for name in meta.finalizers if name != DELETE_PROTECTION)
        return replace(now, metadata=replace(meta, finalizers=finalizers))

    return ObjectChange(ResourceClaim, key, amend, deletes=True)


def _key(pod: ObjectMeta, name: str) -> str:
    return f"{pod.namespace}/{name}"


def freed_by_group(
    what_if: WhatIf,
    members: Sequence[PodClass],
    groups: type[SchedulingPodGroup],
    group: SchedulingPodGroup,
    unavailable: Unavailable,
) -> ObjectChange | None:
    """Return the change that frees one claim of a group without placed members.

    A claim that keeps a member from a node loses its allocation.  Without such a claim, a claim
    that is reserved for the group loses that reservation.
    """
    classes = {pod.id: pod for pod in members}
    for pod in classes.values():
        claims = read_claims(what_if.snapshot, pod, groups)
        if isinstance(claims, Refusal):
            continue
        for claim, user in zip(claims.claims, claims.consumers, strict=True):
            uid = user.uid
            if all(one.uid == uid for one in claim.status.reserved_for) and _excludes(
                what_if, pod, claim, unavailable
            ):
                return release(claim, uid)
    return next(_reserved(what_if.snapshot.objects, group), None)


def _excludes(
    what_if: WhatIf, pod: PodClass, claim: ResourceClaim, unavailable: Unavailable
) -> bool:
    """Return whether the allocation of a claim alone keeps a pod from a node."""
    if claim.status.allocation is None:
        return False
    is_excluded = unavailable(PodDeviceClaims((claim,), ()))
    rows = [] if is_excluded is None else np.flatnonzero(is_excluded)[:TRIED].tolist()
    return any(what_if.why_not(pod, row, ()) == (NOT_AVAILABLE,) for row in rows)


def _reserved(objects: ObjectTable, group: SchedulingPodGroup) -> Iterator[ObjectChange]:
    """Yield changes that end the reservations of claims for a group."""
    meta = group.metadata
    for entry in group.spec.resource_claims:
        name = claim_name_of(group, entry)
        claim = objects.get(ResourceClaim, f"{meta.namespace}/{name}") if name else None
        if claim is not None and claim.status.allocation and is_reserved_for(claim, meta.uid):
            yield _unreservation(claim, meta.uid)


def _unreservation(claim: ResourceClaim, uid: str) -> ObjectChange:
    def amend(now: ResourceClaim) -> ResourceClaim:
        if now.metadata.uid != claim.metadata.uid:
            raise ConflictError(f"ResourceClaim {now.key} was replaced by another of that name")
        return without_consumer(now, uid)

    return ObjectChange(ResourceClaim, claim.key, amend)
