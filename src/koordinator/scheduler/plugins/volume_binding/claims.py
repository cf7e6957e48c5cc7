"""Claims of a pod, and queueing hints about them.

A controller creates the claim of an ephemeral volume after its pod; until then the pod waits.

Source: kubernetes pkg/scheduler/framework/plugins/volumebinding: volume_binding.go
``podHasPVCs``, binder.go ``GetPodVolumeClaims``; kubernetes
pkg/scheduler/framework/plugins/volumebinding/volume_binding.go ``EventsToRegister``.
"""

from dataclasses import dataclass

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.volume import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
    Volume,
)
from koordinator.scheduler.contract import Action, ClusterEvent, EventHint, QueueingHint, Refusal
from koordinator.scheduler.plugins.volume_binding.matches import volume_limit
from koordinator.scheduler.rules.volumes import (
    UNBOUND,
    claim_name,
    claim_not_created,
    claim_not_found,
    claim_of_another,
    class_not_found,
    is_bound,
    is_made_for,
    migrated_plugins,
    storage_class_name,
    uses_claim,
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


def _if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _on_claim(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    claim = event.new
    return _if(
        isinstance(pod, Pod) and isinstance(claim, PersistentVolumeClaim) and uses_claim(pod, claim)
    )


def _on_storage_class(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    old, new = event.old, event.new
    if not isinstance(old, StorageClass) or not isinstance(new, StorageClass):
        return QueueingHint.QUEUE
    return _if(old.allowed_topologies != new.allowed_topologies)


def _on_csi_node(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    old, new = event.old, event.new
    if not isinstance(old, CsiNode) or not isinstance(new, CsiNode):
        return QueueingHint.QUEUE
    return _if(migrated_plugins(old) != migrated_plugins(new))


def _on_csi_driver(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if the driver no longer checks capacity."""
    old, new = event.old, event.new
    if not isinstance(old, CsiDriver) or not isinstance(new, CsiDriver):
        return QueueingHint.QUEUE
    return _if(bool(old.spec.storage_capacity) and not new.spec.storage_capacity)


def _on_storage_capacity(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    old, new = event.old, event.new
    if not isinstance(old, CsiStorageCapacity) or not isinstance(new, CsiStorageCapacity):
        return QueueingHint.QUEUE
    before, after = volume_limit(old), volume_limit(new)
    return _if(after is not None and (before is None or after > before))


EVENTS = (
    EventHint("StorageClass", Action.ADD | Action.UPDATE, _on_storage_class),
    EventHint("PersistentVolumeClaim", Action.ADD | Action.UPDATE, _on_claim),
    EventHint("PersistentVolume", Action.ADD | Action.UPDATE),
    EventHint("Node", Action.ADD | Action.UPDATE_LABELS),
    EventHint("CSINode", Action.ADD | Action.UPDATE, _on_csi_node),
    EventHint("CSIDriver", Action.UPDATE, _on_csi_driver),
    EventHint("CSIStorageCapacity", Action.ADD | Action.UPDATE, _on_storage_capacity),
)
