"""Binding of claims and volumes, which in a cluster the controller manager and provisioners do.

The scheduler chooses a volume (it names the claim in the volume) or a node (it annotates the claim)
and waits; this is who answers.  Every provisioner succeeds at once, with a volume that every node
can reach.

Source: kubernetes pkg/controller/volume/persistentvolume/pv_controller.go ``syncClaim``, ``bind``.
"""

from msgspec.structs import replace

from koordinator.api.event import reference_to
from koordinator.api.meta import ObjectMeta
from koordinator.api.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
)
from koordinator.cluster.port import Cluster, EventType
from koordinator.domain.volume_claims import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    is_bound,
    requested,
    storage_class_name,
)
from koordinator.foundation.errors import AlreadyExistsError, NotFoundError


class VolumeController:
    """Answers what the scheduler asked for since the last step, and offers new volumes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watch = cluster.watch([PersistentVolume, PersistentVolumeClaim])

    def step(self) -> bool:
        """Bind what was chosen, make what was asked for; return whether there was anything."""
        did = False
        for event in self._watch.poll():
            if event.type in (EventType.DELETED, EventType.BOOKMARK):
                continue
            if isinstance(event.object, PersistentVolume):
                did |= self._offer(event.object) or self._bind(event.object)
            elif isinstance(event.object, PersistentVolumeClaim):
                did |= self._provision(event.object)
        return did

    def _offer(self, volume: PersistentVolume) -> bool:
        """Say of a new volume that it can be had."""
        reference, status = volume.spec.claim_ref, volume.status
        if status.phase not in ("", "Pending") or (reference is not None and reference.uid):
            return False
        self._cluster.update_status(replace(volume, status=replace(status, phase="Available")))
        return True

    def _bind(self, volume: PersistentVolume) -> bool:
        """Tell the claim that a volume names that the volume is its own."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            return False
        try:
            claim = self._cluster.get(
                PersistentVolumeClaim, reference.name, reference.namespace or ""
            )
        except NotFoundError:
            return False
        if claim.metadata.uid != reference.uid or is_bound(claim):
            return False
        marks = {**claim.metadata.annotations, BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
        bound = replace(
            claim,
            metadata=replace(claim.metadata, annotations=marks),
            spec=replace(claim.spec, volume_name=volume.metadata.name),
        )
        stored = self._cluster.update(bound)
        self._cluster.update_status(replace(stored, status=replace(stored.status, phase="Bound")))
        return True

    def _provision(self, claim: PersistentVolumeClaim) -> bool:
        """Make the volume that a claim with a node asks for, named for the claim."""
        if SELECTED_NODE not in claim.metadata.annotations or claim.spec.volume_name:
            return False
        name = storage_class_name(claim)
        try:
            provisioner = self._cluster.get(StorageClass, name).provisioner
        except NotFoundError:
            return False
        if provisioner in ("", NO_PROVISIONER):
            return False
        meta = claim.metadata
        spec = PersistentVolumeSpec(
            capacity={"storage": requested(claim)},
            access_modes=claim.spec.access_modes,
            storage_class_name=name,
            volume_mode=claim.spec.volume_mode,
            claim_ref=reference_to(claim),
        )
        metadata = ObjectMeta(name=f"pvc-{meta.uid}")
        try:
            self._cluster.create(PersistentVolume(metadata=metadata, spec=spec))
        except AlreadyExistsError:
            return False
        return True
