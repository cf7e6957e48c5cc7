"""Volumes: what a pod mounts, what is claimed, and which node can reach it.

Source: k8s.io/api core/v1/types.go, storage/v1/types.go.
"""

from typing import ClassVar

from msgspec import field

from koordinator.api.core import (
    NodeSelector,
    NodeSelectorRequirement,
    ObjectReference,
    ResourceList,
    ResourceRequirements,
    TypedLocalObjectReference,
)
from koordinator.api.meta import ApiStruct, KubeObject, LabelSelector, ObjectMeta
from koordinator.foundation.quantity import Quantity

BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
DEFAULT_CLASS_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


class PersistentVolumeClaimVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A claim in the namespace of the pod."""

    claim_name: str
    read_only: bool = False


class GcePersistentDisk(ApiStruct, frozen=True, kw_only=True):
    """A disk of Google Compute Engine."""

    pd_name: str
    read_only: bool = False


class AwsElasticBlockStore(ApiStruct, frozen=True, kw_only=True):
    """A disk of Amazon Web Services."""

    volume_id: str = field(name="volumeID")
    read_only: bool = False


class AzureDisk(ApiStruct, frozen=True, kw_only=True):
    """A disk of Azure."""

    disk_name: str
    disk_uri: str = field(name="diskURI", default="")
    read_only: bool | None = None


class Rbd(ApiStruct, frozen=True, kw_only=True):
    """A block device of Ceph; ``monitors`` identify the Ceph cluster."""

    monitors: tuple[str, ...]
    image: str
    pool: str = "rbd"
    read_only: bool = False


class Iscsi(ApiStruct, frozen=True, kw_only=True):
    """A disk reached by iSCSI."""

    iqn: str
    lun: int
    target_portal: str = ""
    read_only: bool = False


class CsiVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A volume that a CSI driver makes for this pod alone."""

    driver: str
    read_only: bool | None = None
    volume_attributes: dict[str, str] = {}


class EmptyDir(ApiStruct, frozen=True, kw_only=True):
    """Scratch space on the node; it keeps the cluster autoscaler and evictions careful."""

    medium: str = ""
    size_limit: Quantity | None = None


class HostPath(ApiStruct, frozen=True, kw_only=True):
    """A folder of the node."""

    path: str
    type: str | None = None


class PersistentVolumeClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """Claimed storage.  Class name None is the default class, an empty one no class."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedLocalObjectReference | None = None


class PersistentVolumeClaimTemplate(ApiStruct, frozen=True, kw_only=True):
    """The claim that comes and goes with a pod."""

    spec: PersistentVolumeClaimSpec
    metadata: ObjectMeta = ObjectMeta()


class EphemeralVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A claim named ``<pod>-<volume>`` that the pod owns."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class ImageVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """An OCI image or artifact, mounted as a volume."""

    reference: str = ""
    pull_policy: str = ""


class Volume(ApiStruct, frozen=True, kw_only=True):
    """A volume of a pod.  At most one source is set; sources that can't matter are left out."""

    name: str
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: CsiVolumeSource | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    rbd: Rbd | None = None
    iscsi: Iscsi | None = None
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    image: ImageVolumeSource | None = None


class PersistentVolumeClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """``phase`` is Pending, Bound or Lost."""

    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: ResourceList = {}


class PersistentVolumeClaim(KubeObject, frozen=True, kw_only=True):
    """A request for storage."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "PersistentVolumeClaim"
    PLURAL: ClassVar[str] = "persistentvolumeclaims"

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class CsiPersistentVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A volume of a CSI driver."""

    driver: str
    volume_handle: str
    read_only: bool = False
    volume_attributes: dict[str, str] = {}


class LocalVolumeSource(ApiStruct, frozen=True, kw_only=True):
    """A disk or folder of one node."""

    path: str


class VolumeNodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """The nodes that can reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiStruct, frozen=True, kw_only=True):
    """Source and size of storage, and the claim that it is bound to."""

    capacity: ResourceList = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiPersistentVolumeSource | None = None
    local: LocalVolumeSource | None = None
    host_path: HostPath | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    rbd: Rbd | None = None
    iscsi: Iscsi | None = None


class PersistentVolumeStatus(ApiStruct, frozen=True, kw_only=True):
    """``phase`` is Pending, Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(KubeObject, frozen=True, kw_only=True):
    """A piece of storage."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "PersistentVolume"
    PLURAL: ClassVar[str] = "persistentvolumes"
    NAMESPACED: ClassVar[bool] = False

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(ApiStruct, frozen=True, kw_only=True):
    """The label has one of the values."""

    key: str
    values: tuple[str, ...]


class TopologySelectorTerm(ApiStruct, frozen=True, kw_only=True):
    """ANDed requirements."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()

    def as_node_requirements(self) -> tuple[NodeSelectorRequirement, ...]:
        """Return the requirements in the terms of a node selector."""
        return tuple(
            NodeSelectorRequirement(key=label.key, operator="In", values=label.values)
            for label in self.match_label_expressions
        )


class StorageClass(KubeObject, frozen=True, kw_only=True):
    """Provisioning of volumes.  ``volume_binding_mode`` is Immediate or WaitForFirstConsumer."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "StorageClass"
    PLURAL: ClassVar[str] = "storageclasses"
    NAMESPACED: ClassVar[bool] = False

    provisioner: str
    parameters: dict[str, str] = {}
    reclaim_policy: str | None = None
    volume_binding_mode: str | None = None
    allow_volume_expansion: bool | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(ApiStruct, frozen=True, kw_only=True):
    """Number of volumes of a driver that a node can attach; None: unlimited."""

    count: int | None = None


class CsiNodeDriver(ApiStruct, frozen=True, kw_only=True):
    """A CSI driver as it runs on one node."""

    name: str
    node_id: str = field(name="nodeID", default="")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(ApiStruct, frozen=True, kw_only=True):
    """All CSI drivers of a node."""

    drivers: tuple[CsiNodeDriver, ...] = ()


class CsiNode(KubeObject, frozen=True, kw_only=True):
    """The CSI side of the node of the same name."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "CSINode"
    PLURAL: ClassVar[str] = "csinodes"
    NAMESPACED: ClassVar[bool] = False

    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(ApiStruct, frozen=True, kw_only=True):
    """Capabilities of a driver; ``storage_capacity``: CSIStorageCapacity objects are checked."""

    attach_required: bool | None = None
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CsiDriver(KubeObject, frozen=True, kw_only=True):
    """A CSI driver."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "CSIDriver"
    PLURAL: ClassVar[str] = "csidrivers"
    NAMESPACED: ClassVar[bool] = False

    spec: CsiDriverSpec = CsiDriverSpec()


class CsiStorageCapacity(KubeObject, frozen=True, kw_only=True):
    """Remaining capacity of a driver on the nodes that the topology selects."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "CSIStorageCapacity"
    PLURAL: ClassVar[str] = "csistoragecapacities"

    storage_class_name: str
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(ApiStruct, frozen=True, kw_only=True):
    """Volume that is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiStruct, frozen=True, kw_only=True):
    """Volume, driver and node of an attachment."""

    attacher: str
    node_name: str
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(ApiStruct, frozen=True, kw_only=True):
    """State of an attachment."""

    attached: bool = False


class VolumeAttachment(KubeObject, frozen=True, kw_only=True):
    """The intent to attach a volume to a node."""

    API_VERSION: ClassVar[str] = "storage.k8s.io/v1"
    KIND: ClassVar[str] = "VolumeAttachment"
    PLURAL: ClassVar[str] = "volumeattachments"
    NAMESPACED: ClassVar[bool] = False

    spec: VolumeAttachmentSpec
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


KINDS = (
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
)
