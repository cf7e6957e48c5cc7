"""Claims that all pods of a PodGroup of scheduling.k8s.io share.

A pod shares a claim with its group if both have an entry with the same name and the same claim or
template. The claim is then reserved for the group, not for the pod.

Source: k8s.io/dynamic-resource-allocation resourceclaim/resourceclaim.go ``BindTo``, ``IsForPod``,
``IsReservedForPod``, ``NameFromPodGroup``.
"""

from typing import Final

from koordinator.api.dynamic_resources import ResourceClaim, ResourceClaimConsumerReference
from koordinator.api.kube_version import V1_37
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.kubescheduler.gates import DRA_WORKLOAD_CLAIMS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import PodResourceClaim
from koordinator.api.pod_groups import (
    PodGroupResourceClaim,
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha2,
)
from koordinator.domain.dynamic_resources.allocation import consumer

POD_GROUPS: Final = "podgroups"  # resource name of consumers that are groups
_API_GROUP: Final = "scheduling.k8s.io"


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
