"""Release of claims after a PodGroup of scheduling.k8s.io found too few nodes.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go
``PodGroupPostFilter``, ``deallocatePodGroupClaims``.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.pod_groups import SchedulingPodGroup
from koordinator.domain.dynamic_resources.allocation import is_reserved_for, without_consumer
from koordinator.domain.dynamic_resources.group_claims import claim_name_of
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.errors import ConflictError
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.plugins.dynamic_resources.changes import release
from koordinator.scheduler.plugins.dynamic_resources.claims import PodDeviceClaims, read_claims
from koordinator.scheduler.plugins.dynamic_resources.verdicts import NOT_AVAILABLE
from koordinator.scheduler.post_filter import WhatIf
from koordinator.scheduler.snapshot import ObjectChange, ObjectTable, PodClass

#: Returns (n,): nodes where the devices of allocated claims are out of reach; None if nowhere.
Unavailable = Callable[[PodDeviceClaims], BoolArray | None]
TRIED = 100  # most nodes to check for feasibility without an allocation; one is enough


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
        for claim, consumer in zip(claims.claims, claims.consumers, strict=True):
            uid = consumer.uid
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
    elsewhere = unavailable(PodDeviceClaims((claim,), ()))
    rows = [] if elsewhere is None else np.flatnonzero(elsewhere)[:TRIED].tolist()
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
