"""Volumes that CSI drivers count, derived from the volumes of pods.

Source: kubernetes pkg/scheduler/framework/plugins/nodevolumelimits/csi.go:
``filterAttachableVolumes``, ``getCSIDriverInfo``, ``getCSIDriverInfoFromSC``.
"""

from dataclasses import dataclass

from koordinator.api.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    Volume,
)
from koordinator.foundation.memo import Memo
from koordinator.scheduler.rules.volumes import DRIVERS, in_tree_volume, storage_class_name
from koordinator.scheduler.snapshot import PodClass
from koordinator.scheduler.snapshot.objects import ObjectTable

#: Driver, kind of key, and a volume handle or the key of an unbound claim.
VolumeName = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Attachable:
    """Volume that a driver counts; in-tree volumes count where their plugin is migrated."""

    name: VolumeName
    plugin: str = ""

    @property
    def driver(self) -> str:
        """The CSI driver."""
        return self.name[0]


def behind_claim(objects: ObjectTable, claim: PersistentVolumeClaim) -> Attachable | None:
    """Return the claim's volume, existing or to be provisioned; None without a CSI driver."""
    volume_name = claim.spec.volume_name
    volume = objects.get(PersistentVolume, volume_name) if volume_name else None
    if volume is None:
        return _promised(objects, claim)
    if volume.spec.csi is not None:
        return Attachable((volume.spec.csi.driver, "handle", volume.spec.csi.volume_handle))
    return inline(volume)


def _promised(objects: ObjectTable, claim: PersistentVolumeClaim) -> Attachable | None:
    """Return the volume that the claim's class will provision."""
    storage_class = objects.get(StorageClass, storage_class_name(claim))
    if storage_class is None or not storage_class.provisioner:
        return None
    provisioner = storage_class.provisioner
    if provisioner in DRIVERS:
        return Attachable((DRIVERS[provisioner], "claim", claim.key), provisioner)
    return Attachable((provisioner, "claim", claim.key))


def inline(volume: Volume | PersistentVolume) -> Attachable | None:
    """Return the volume of an in-tree plugin as its driver counts it."""
    known = in_tree_volume(volume)
    if known is None:
        return None
    return Attachable((known.driver, "handle", known.handle), known.plugin)


_COUNTABLE: Memo[tuple[Volume, ...]] = Memo()


def countable(pod: PodClass) -> tuple[Volume, ...]:
    """Return the volumes of the pod that some driver may count."""
    if not pod.spec.volumes:
        return ()
    return _COUNTABLE.of(pod, _countable, pod)


def _countable(pod: PodClass) -> tuple[Volume, ...]:
    return tuple(filter(may_count, pod.spec.volumes))


def may_count(volume: Volume) -> bool:
    """Return whether a CSI driver may count the volume."""
    return bool(volume.persistent_volume_claim or volume.ephemeral or in_tree_volume(volume))
