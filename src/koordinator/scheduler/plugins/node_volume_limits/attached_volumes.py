"""Volumes that count against a node's limits, and those that are attached.

An upper bound of the number is kept for all nodes; the exact volumes are determined only for nodes
near their limit, and cached until an object changes.

Source: kubernetes pkg/scheduler/framework/plugins/nodevolumelimits/csi.go:
``filterAttachableVolumes``, ``getCSIDriverInfo``, ``getCSIDriverInfoFromSC``; kubernetes
pkg/scheduler/framework/plugins/nodevolumelimits/csi.go: ``Filter``, ``getVolumeLimits``,
``getNodeVolumeAttachmentInfo``.
"""

from collections.abc import Hashable, Iterator
from dataclasses import field

import numpy as np

from koordinator.api.volume import (
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.rules.volumes import (
    DRIVERS,
    claim_name,
    in_tree_volume,
    migrated_plugins,
    storage_class_name,
)
from koordinator.scheduler.snapshot import PlacedPod, PodClass, Snapshot
from koordinator.scheduler.snapshot.objects import ObjectTable

#: Driver, kind of key, and a volume handle or the key of an unbound claim.
VolumeName = tuple[str, str, str]

_COUNTABLE: Memo[tuple[Volume, ...]] = Memo()

UNLIMITED = -1
_NONE: frozenset[VolumeName] = frozenset()


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


@dataclass(slots=True, eq=False)
class NodeAttachments:
    """Contents of CSINode and VolumeAttachment objects, by row."""

    version: Hashable = None
    limits: dict[str, IntArray] = field(default_factory=dict)  # driver -> (n,), or UNLIMITED
    installed: dict[str, BoolArray] = field(default_factory=dict)  # driver -> (n,)
    migrated: dict[int, frozenset[str]] = field(default_factory=dict)
    attachments: dict[int, list[VolumeAttachment]] = field(default_factory=dict)


class AttachedVolumes:
    """Volumes by row of the cluster."""

    def __init__(self) -> None:
        self._nodes = NodeAttachments()
        self._users: dict[int, list[PlacedPod]] = {}  # pods with a volume that may count
        self._used: dict[int, int] = {}  # upper bound of their volumes
        self._names: dict[int, frozenset[VolumeName]] = {}
        self._names_version: Hashable = None
        self._position = -1

    def catch_up(self, cluster: Snapshot) -> None:
        """Apply the changes since the last call."""
        objects = cluster.objects
        version: Hashable = (objects.version(CsiNode, VolumeAttachment), cluster.node_version)
        if version != self._nodes.version:
            self._nodes = _read_nodes(cluster, version)
        kinds = (PersistentVolumeClaim, PersistentVolume, StorageClass)
        version = (version, objects.version(*kinds))
        if version != self._names_version:
            self._names.clear()
            self._names_version = version
        rows, self._position = cluster.rows_since(self._position)
        for row in set(rows.tolist()):
            self._find_users(row, cluster)

    def limit(self, driver: str, row: int) -> int:
        """Return the volume limit of the driver on the node, or UNLIMITED."""
        return int(self._nodes.limits[driver][row])

    def missing_driver(self, volume: Attachable, cluster: Snapshot) -> BoolArray:
        """Return ``(n,)``: the node lacks the driver that serves the volume."""
        installed = self._nodes.installed.get(volume.driver)
        is_missing = np.ones(len(cluster), bool) if installed is None else ~installed
        if volume.plugin:
            is_missing &= [self.counts(volume, row) for row in range(len(cluster))]
        return is_missing

    def rows_near_limit(self, driver: str, new: int) -> list[int]:
        """Return the rows where ``new`` more volumes may exceed the limit."""
        limits = self._nodes.limits.get(driver)
        if limits is None:
            return []
        used = np.zeros(len(limits), np.int64)
        used[list(self._used)] = list(self._used.values())
        for row, attachments in self._nodes.attachments.items():
            used[row] += len(attachments)
        rows_near_limit: list[int] = np.flatnonzero(
            (limits != UNLIMITED) & (used + new > limits)
        ).tolist()
        return rows_near_limit

    def of_pods(self, row: int, cluster: Snapshot) -> frozenset[VolumeName]:
        """Return the volumes that pods on the row use."""
        names = self._names.get(row)
        if names is None:
            names = self._names[row] = frozenset(
                volume.name
                for placed in self._users.get(row, ())
                for volume in _volumes(placed, cluster)
                if self.counts(volume, row)
            )
        return names

    def attached(self, row: int, cluster: Snapshot) -> Iterator[VolumeName]:
        """Yield the volumes attached to the node, with or without users."""
        for attachment in self._nodes.attachments.get(row, ()):
            name = attachment.spec.source.persistent_volume_name
            volume = cluster.objects.get(PersistentVolume, name) if name else None
            if volume is not None and volume.spec.csi is not None:
                yield attachment.spec.attacher, "handle", volume.spec.csi.volume_handle

    def counts(self, volume: Attachable, row: int) -> bool:
        """Return whether a CSI driver serves the volume on that node."""
        return not volume.plugin or volume.plugin in self._nodes.migrated.get(row, ())

    def _find_users(self, row: int, cluster: Snapshot) -> None:
        for kept in (self._users, self._used, self._names):
            kept.pop(row, None)
        users = [placed for placed in cluster.pods_on(row) if countable(placed.pod_class)]
        if users:
            self._users[row] = users
            self._used[row] = len(set().union(*map(_identities, users)))


_ATTACHED: Memo[AttachedVolumes] = Memo()


def attached_volumes(cluster: Snapshot) -> AttachedVolumes:
    """Return the current table of attached volumes."""
    known = _ATTACHED.of(cluster.shared, AttachedVolumes)
    known.catch_up(cluster)
    return known


def _read_nodes(cluster: Snapshot, version: Hashable) -> NodeAttachments:
    side, row_of = NodeAttachments(version), cluster.names[1]
    for node in cluster.objects.all(CsiNode):
        row = row_of.get(node.metadata.name)
        if row is None:
            continue
        side.migrated[row] = migrated_plugins(node)
        for driver in node.spec.drivers:
            if driver.name not in side.installed:
                side.installed[driver.name] = np.zeros(len(cluster), bool)
            side.installed[driver.name][row] = True
            if driver.allocatable is not None and driver.allocatable.count is not None:
                if driver.name not in side.limits:
                    side.limits[driver.name] = np.full(len(cluster), UNLIMITED, np.int64)
                side.limits[driver.name][row] = driver.allocatable.count
    for attachment in cluster.objects.all(VolumeAttachment):
        row = row_of.get(attachment.spec.node_name)
        if row is not None:
            side.attachments.setdefault(row, []).append(attachment)
    return side


def _identities(placed: PlacedPod) -> Iterator[Hashable]:
    """Yield one distinct key per volume of the pod; pods share the key of a claim."""
    meta = placed.pod.metadata
    for volume in countable(placed.pod_class):
        name = claim_name(meta.name, volume)
        yield (meta.namespace, name) if name else inline(volume)


def _volumes(placed: PlacedPod, cluster: Snapshot) -> Iterator[Attachable]:
    """Yield the volumes of a placed pod; missing claims and other pods' claims do not count."""
    meta = placed.pod.metadata
    for volume in countable(placed.pod_class):
        name = claim_name(meta.name, volume)
        if name:
            claim = cluster.objects.get(PersistentVolumeClaim, f"{meta.namespace}/{name}")
            if claim is None:
                continue
            if volume.ephemeral and not claim.metadata.is_controlled_by(meta.uid):
                continue
            attachable = behind_claim(cluster.objects, claim)
        else:
            attachable = inline(volume)
        if attachable is not None:
            yield attachable
