"""Claims of a pod: bound, waiting for the pod's node, or not ready for scheduling.

A controller creates the claim of an ephemeral volume after its pod; until then the pod waits.

Source: kubernetes pkg/scheduler/framework/plugins/volumebinding: volume_binding.go ``podHasPVCs``,
binder.go ``GetPodVolumeClaims``.
"""

from dataclasses import dataclass

from koordinator.api.volume import PersistentVolumeClaim, StorageClass, Volume
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.rules.volumes import (
    UNBOUND,
    claim_name,
    claim_not_created,
    claim_not_found,
    claim_of_another,
    class_not_found,
    is_bound,
    is_made_for,
    storage_class_name,
    waits_for_pod,
)
from koordinator.scheduler.snapshot import PodClass
from koordinator.scheduler.snapshot.objects import ObjectTable


@dataclass(frozen=True, slots=True)
class PodClaims:
    """Claims of a schedulable pod, in the order of its volumes."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    waiting: tuple[PersistentVolumeClaim, ...] = ()  # to be bound once the pod has a node


def has_claims(pod: PodClass) -> bool:
    """Return whether the pod has claims."""
    return any(v.persistent_volume_claim or v.ephemeral for v in pod.spec.volumes)


def read_claims(objects: ObjectTable, pod: PodClass) -> PodClaims | Refusal:
    """Return the claims of the pod, or why it cannot be scheduled with them."""
    claims: dict[str, PersistentVolumeClaim] = {}  # a claim that is mounted twice counts once
    for volume in pod.spec.volumes:
        claim = _claim_behind(objects, pod, volume)
        if isinstance(claim, Refusal):
            return claim
        if claim is not None:
            claims[claim.metadata.name] = claim
    bound = tuple(claim for claim in claims.values() if is_bound(claim))
    waiting = tuple(claim for claim in claims.values() if not is_bound(claim))
    for claim in waiting:
        name = storage_class_name(claim)
        storage_class = objects.get(StorageClass, name)
        if claim.spec.volume_name or not waits_for_pod(storage_class):
            is_missing = bool(name) and storage_class is None and not claim.spec.volume_name
            return Refusal(UNBOUND, same_as=class_not_found(name) if is_missing else "")
    return PodClaims(bound, waiting)


def _claim_behind(
    objects: ObjectTable, pod: PodClass, volume: Volume
) -> PersistentVolumeClaim | Refusal | None:
    name = claim_name(pod.name, volume)
    if not name:
        return None
    claim = objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}")
    if claim is None:
        return Refusal(claim_not_created(name) if volume.ephemeral else claim_not_found(name))
    problem = _problem(claim)
    if problem:
        return Refusal(f'persistentvolumeclaim "{name}" {problem}')
    if volume.ephemeral and not is_made_for(claim, pod.uid):
        return Refusal(claim_of_another(claim, pod.name))
    return claim


def _problem(claim: PersistentVolumeClaim) -> str:
    """Return why pods cannot use the claim any more; empty if they can."""
    if claim.status.phase == "Lost":
        return f'bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    return "is being deleted" if claim.metadata.deletion_timestamp is not None else ""
