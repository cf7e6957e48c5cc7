"""Volumes of pods: claims and their volumes, and CSI volumes that replace in-tree volumes.

Source: k8s.io/component-helpers storage/volume (helpers.go, pv_helpers.go) and storage/ephemeral;
k8s.io/csi-translation-lib plugins: aws_ebs.go, gce_pd.go, azure_disk.go.
"""

from collections.abc import Iterator, Mapping

import msgspec

from koordinator.api.event import reference_to
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.selectors import matches
from koordinator.api.volume import (
    BETA_STORAGE_CLASS,
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    Volume,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
STORAGE = "storage"
FILESYSTEM = "Filesystem"

UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

_NOTHING = Quantity.from_int(0)

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"

#: In-tree plugin -> CSI driver.
DRIVERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
}
_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_UNKNOWN = "UNSPECIFIED"


def claim_name(pod_name: str, volume: Volume) -> str:
    """Return the name of the claim of a volume; empty if it has none."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod_name}-{volume.name}" if volume.ephemeral is not None else ""


def uses_claim(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether the pod uses the claim."""
    return pod.metadata.namespace == claim.metadata.namespace and any(
        claim_name(pod.metadata.name, volume) == claim.metadata.name for volume in pod.spec.volumes
    )


def named_claims(volumes: tuple[Volume, ...]) -> Iterator[str]:
    """Yield the claim names in a pod's spec, without claims of ephemeral volumes."""
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name


def claim_not_found(name: str) -> str:
    """Return the message for a pod whose claim does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


def class_not_found(name: str) -> str:
    """Return the message for a pod whose claim names a missing class."""
    return f'storageclass.storage.k8s.io "{name}" not found'


def claim_not_created(name: str) -> str:
    """Return the message for a pod whose ephemeral volume has no claim yet."""
    return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'


def claim_of_another(claim: PersistentVolumeClaim, pod_name: str) -> str:
    """Return the message for a pod that does not own the claim of its ephemeral volume."""
    pod_key = f"{claim.metadata.namespace}/{pod_name}"
    return f"PVC {claim.key} was not created for pod {pod_key} (pod is not owner)"


def missing_volume_remedy(claim: PersistentVolumeClaim) -> str:
    """Return the remedy for a claim that names a volume that does not exist."""
    return (
        f"create the PersistentVolume {claim.spec.volume_name}, which claim {claim.key} names, "
        "usable on a node of the pod"
    )


def storage_class_name(item: PersistentVolumeClaim | PersistentVolume) -> str:
    """Return the name of the class; empty if there is none.  The beta annotation has precedence."""
    named = item.metadata.annotations.get(BETA_STORAGE_CLASS)
    return named if named is not None else item.spec.storage_class_name or ""


def waits_for_pod(storage_class: StorageClass | None) -> bool:
    """Return whether claims of the class are bound only after their pod has a node."""
    return storage_class is not None and (
        storage_class.volume_binding_mode == "WaitForFirstConsumer"
    )


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether the binding of the claim is complete."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def requested(claim: PersistentVolumeClaim) -> Quantity:
    """Return the requested bytes."""
    return claim.spec.resources.requests.get(STORAGE, _NOTHING)


def capacity(volume: PersistentVolume) -> Quantity:
    """Return the capacity of the volume in bytes."""
    return volume.spec.capacity.get(STORAGE, _NOTHING)


def is_meant_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume references that claim; a missing uid matches any."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    return (
        reference is not None
        and (reference.namespace, reference.name) == (meta.namespace, meta.name)
        and reference.uid in ("", meta.uid)
    )


def is_large_enough(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume that is not being deleted has the claim's mode and size."""
    return (
        capacity(volume) >= requested(claim)
        and (volume.spec.volume_mode or FILESYSTEM) == (claim.spec.volume_mode or FILESYSTEM)
        and volume.metadata.deletion_timestamp is None
    )


def has_class_and_modes(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume has the claim's class and all its access modes."""
    return storage_class_name(volume) == storage_class_name(claim) and (
        set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )


def is_available_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume is unclaimed and satisfies the claim."""
    selector = claim.spec.selector
    return (
        volume.status.phase == "Available"
        and volume.spec.claim_ref is None
        and has_class_and_modes(volume, claim)
        and (selector is None or matches(selector, volume.metadata.labels))
    )


def bind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return the volume with a reference to the claim; the same object if it has one already."""
    meta, known = claim.metadata, is_meant_for(volume, claim)
    if known and volume.spec.claim_ref is not None and volume.spec.claim_ref.uid == meta.uid:
        return volume
    version = meta.resource_version
    reference = msgspec.structs.replace(reference_to(claim), resource_version=version)
    return msgspec.structs.replace(
        volume,
        metadata=volume.metadata
        if known
        else _annotated(volume.metadata, BOUND_BY_CONTROLLER, "yes"),
        spec=msgspec.structs.replace(volume.spec, claim_ref=reference),
    )


def select_node(claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    """Return the claim with the annotation of the selected node."""
    metadata = _annotated(claim.metadata, SELECTED_NODE, node)
    return msgspec.structs.replace(claim, metadata=metadata)


def _annotated(metadata: ObjectMeta, key: str, value: str) -> ObjectMeta:
    return msgspec.structs.replace(metadata, annotations={**metadata.annotations, key: value})


@dataclass(frozen=True, slots=True)
class InTreeVolume:
    """A volume of an in-tree plugin and its CSI volume handle."""

    plugin: str
    handle: str

    @property
    def driver(self) -> str:
        """The CSI driver that replaces the plugin."""
        return DRIVERS[self.plugin]


def in_tree_volume(item: Volume | PersistentVolume) -> InTreeVolume | None:
    """Return the CSI identity of an in-tree volume; None for any other volume."""
    source = item.spec if isinstance(item, PersistentVolume) else item
    labels = item.metadata.labels if isinstance(item, PersistentVolume) else {}
    if source.aws_elastic_block_store is not None:
        volume_id = source.aws_elastic_block_store.volume_id
        handle = volume_id.rpartition("/")[2] if volume_id.startswith("aws://") else volume_id
        return InTreeVolume("kubernetes.io/aws-ebs", handle)
    if source.gce_persistent_disk is not None:
        disk = source.gce_persistent_disk.pd_name
        handle = f"projects/{_UNKNOWN}/{_gce_place(labels)}/disks/{disk}"
        return InTreeVolume("kubernetes.io/gce-pd", handle)
    if source.azure_disk is not None:
        return InTreeVolume("kubernetes.io/azure-disk", source.azure_disk.disk_uri)
    return None


def migrated_plugins(node: CsiNode) -> frozenset[str]:
    """Return the in-tree plugins that the node has migrated to CSI."""
    listed = node.metadata.annotations.get(MIGRATED_PLUGINS, "")
    return frozenset(listed.split(",")) & DRIVERS.keys()


def _gce_place(labels: Mapping[str, str]) -> str:
    label = next((labels[key] for key in _ZONES if key in labels), _UNKNOWN)
    zones = label.split("__")
    if len(zones) > 1:  # a regional disk: zones are named region-letter
        return f"regions/{zones[0].rpartition('-')[0]}"
    return f"zones/{zones[0]}"
