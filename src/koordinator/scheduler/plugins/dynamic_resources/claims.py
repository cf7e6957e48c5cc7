"""The claims of a pod: those that have devices, those that need some, or why it has to wait.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go
``PreEnqueue``, ``PreFilter``, ``validateDeviceClass``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from koordinator.api.device import DeviceType
from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodResourceClaim
from koordinator.domain.devices.requests import names_of
from koordinator.domain.dynamic_resources.allocation import (
    claim_names,
    is_made_for_pod,
    is_reserved_for,
)
from koordinator.domain.dynamic_resources.node_gpus import DRIVER
from koordinator.domain.dynamic_resources.requests import PendingClaim, pending_claim
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.snapshot import ObjectTable, PodClass, Snapshot

_GPU_NAMES: Final = names_of(DeviceType.GPU)
NOT_MADE = "waiting for the resourceclaim of {!r} to be created"


@dataclass(frozen=True, slots=True)
class PodDeviceClaims:
    """Claims that scheduling can go on with, in the order of the pod."""

    claims: tuple[ResourceClaim, ...]
    pending: tuple[PendingClaim, ...]  # those of them that have no devices yet
    avoids: str = ""  # a driver whose devices the pod asks for by its requests, too

    @property
    def allocated(self) -> Iterable[ResourceClaim]:
        """The claims that have devices."""
        return (claim for claim in self.claims if claim.status.allocation is not None)

    @property
    def has_alternatives(self) -> bool:
        """Whether nodes may differ in what of it they can offer."""
        return any(claim.has_alternatives for claim in self.pending)


def why_not_ready(pod: Pod, objects: ObjectTable) -> str:
    """Return which claim of a pod is not there yet; empty: all of them are."""
    for entry, name in claim_names(pod.spec.resource_claims, pod.status.resource_claim_statuses):
        found = _find(objects, pod.metadata, entry, name)
        if isinstance(found, str):
            return found
    return ""


def read_claims(snapshot: Snapshot, pod: PodClass) -> PodDeviceClaims | Refusal:
    """Return the pod's claims, or why it can't be scheduled as they are.

    What a pod gets of GPUs for its requests is not known yet when its claims are served: so these
    get none of the same ones.
    """
    objects = snapshot.objects
    meta = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
    claims: dict[str, ResourceClaim] = {}  # one that two entries name counts once
    for entry, name in claim_names(pod.spec.resource_claims, pod.claims_made):
        found = _find(objects, meta, entry, name)
        if isinstance(found, str):
            return Refusal(found)
        problem = _problem(found, pod.uid)
        if problem:
            return Refusal(problem)
        claims[found.key] = found
    pending = []
    for claim in claims.values():
        if claim.status.allocation is None:
            asked = pending_claim(claim, lambda name: objects.get(DeviceClass, name))
            if isinstance(asked, str):
                return Refusal(asked)
            pending.append(asked)
    names = snapshot.resources
    asks_for_gpus = any(names[column] in _GPU_NAMES for column, _ in pod.demand)
    avoids = DRIVER if asks_for_gpus else ""
    return PodDeviceClaims(tuple(claims.values()), tuple(pending), avoids)


def _find(
    objects: ObjectTable, pod: ObjectMeta, entry: PodResourceClaim, name: str | None
) -> ResourceClaim | str:
    """Return a claim of the pod, or why it has none of that name."""
    if name is None:
        return NOT_MADE.format(entry.name)
    claim = objects.get(ResourceClaim, f"{pod.namespace}/{name}")
    if claim is None:
        return f'resourceclaim.resource.k8s.io "{name}" not found'
    if entry.resource_claim_name is None and not is_made_for_pod(claim, pod):
        return (
            f"ResourceClaim {claim.key} was not created for pod {pod.namespace}/{pod.name} "
            "(pod is not owner)"
        )
    return claim


def _problem(claim: ResourceClaim, uid: str) -> str:
    """Return why the pod may not use the claim; empty if it may."""
    if claim.metadata.deletion_timestamp is None or is_reserved_for(claim, uid):
        return ""
    return f'resourceclaim "{claim.metadata.name}" is being deleted'
