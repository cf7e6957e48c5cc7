"""Volume restrictions: disks with one writing pod per node, claims with one pod per cluster.

Source: kubernetes pkg/scheduler/framework/plugins/volumerestrictions.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.volume import PersistentVolumeClaim, Volume
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    Action,
    ClusterEvent,
    EventHint,
    NoArgs,
    PluginExample,
    PluginHints,
    PluginSpec,
    QueueingHint,
    Reads,
    Refusal,
    Rejections,
)
from koordinator.scheduler.rules.volumes import claim_not_found, named_claims
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

REASON_DISK = "node(s) had no available disk"
REASON_CLAIM = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
    " already in-use by another pod"
)
ONE_POD = "ReadWriteOncePod"

VolumeKey = tuple[str, ...]  # a disk or a claim; the first item is its kind
Uses = dict[VolumeKey, bool]  # whether some pod writes to it
_USES: Memo[Uses] = Memo()


class VolumeRestrictions:
    """Filter on disks by node, and on claims anywhere."""

    reads: ClassVar = Reads.CLUSTER
    hints: ClassVar = PluginHints(
        filters=lambda snapshot, pod: bool(_disks(pod)) or _is_claim_taken(snapshot, pod)
    )

    def applies(self, pod: PodClass) -> bool:
        return bool(pod.spec.volumes)

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        for name in named_claims(pod.spec.volumes):
            if snapshot.objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}") is None:
                return Refusal(claim_not_found(name))
        return None

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject nodes with a conflicting disk, and all others too if a claim is taken."""
        cluster = snapshot.cluster
        disk = _conflicts(cluster, _disks(pod))
        claim = ~disk & _is_claim_taken(cluster, pod)
        if snapshot.rows is not None:
            disk, claim = disk[snapshot.rows], claim[snapshot.rows]
        return Rejections.by_column((disk, claim), (REASON_DISK, REASON_CLAIM))

    def is_blocked_cluster_wide(self, view: Snapshot, pod: PodClass) -> bool:
        return _is_claim_taken(view.cluster, pod)


class InUse:
    """Users of disks and claims by row, following the log of rows whose pods changed."""

    def __init__(self) -> None:
        self.users: dict[VolumeKey, dict[int, bool]] = {}  # row -> whether some pod there writes
        self._on_row: dict[int, Uses] = {}
        self._position = -1

    def catch_up(self, snapshot: Snapshot) -> None:
        """Read the pods of the rows that changed since the last call."""
        rows, self._position = snapshot.rows_since(self._position)
        for row in np.unique(rows).tolist():
            self._read(row, snapshot)

    def _read(self, row: int, snapshot: Snapshot) -> None:
        for volume_key in self._on_row.pop(row, ()):
            del self.users[volume_key][row]
            if not self.users[volume_key]:
                del self.users[volume_key]
        uses: Uses = {}
        for placed in snapshot.pods_on(row):
            for volume_key, writes in _uses(placed.pod_class).items():
                uses[volume_key] = uses.get(volume_key, False) or writes
        if uses:
            self._on_row[row] = uses
            for volume_key, writes in uses.items():
                self.users.setdefault(volume_key, {})[row] = writes


_IN_USE: Memo[InUse] = Memo()


def _in_use(snapshot: Snapshot) -> InUse:
    known = _IN_USE.of(snapshot.shared, InUse)
    known.catch_up(snapshot)
    return known


def _conflicts(snapshot: Snapshot, disks: Uses) -> BoolArray:
    """Return ``(n,)``: some pod uses one of the disks, and one side writes."""
    taken = np.zeros(len(snapshot), bool)
    users = _in_use(snapshot).users if disks else {}
    for disk, writes in disks.items():
        for row, is_written in users.get(disk, {}).items():
            taken[row] |= writes or is_written
    return taken


def _is_claim_taken(snapshot: Snapshot, pod: PodClass) -> bool:
    for name in named_claims(pod.spec.volumes):
        claim = snapshot.objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}")
        exclusive = claim is not None and ONE_POD in claim.spec.access_modes
        if exclusive and _claim(pod.namespace, name) in _in_use(snapshot).users:
            return True
    return False


def _uses(pod: PodClass) -> Uses:
    """Return the disks and claims of the pod."""
    if not pod.spec.volumes:
        return {}
    return _USES.of(pod, _read_uses, pod)


def _read_uses(pod: PodClass) -> Uses:
    claims = {_claim(pod.namespace, name): True for name in named_claims(pod.spec.volumes)}
    return claims | _disks_of(pod.spec.volumes)


def _disks(pod: PodClass) -> Uses:
    return {
        volume_key: writes for volume_key, writes in _uses(pod).items() if volume_key[0] != "claim"
    }


def _claim(namespace: str, name: str) -> VolumeKey:
    return ("claim", namespace, name)


def _disks_of(volumes: tuple[Volume, ...]) -> Uses:
    uses: Uses = {}
    for volume in volumes:
        for disk, writes in _disks_behind(volume):
            uses[disk] = uses.get(disk, False) or writes
    return uses


def _disks_behind(volume: Volume) -> Iterator[tuple[VolumeKey, bool]]:
    """Yield a disk's names and whether the pod writes; a Ceph image has a name per monitor."""
    if (gce := volume.gce_persistent_disk) is not None:
        yield ("gce", gce.pd_name), not gce.read_only
    if (ebs := volume.aws_elastic_block_store) is not None:
        yield ("ebs", ebs.volume_id), True  # two pods conflict even if both only read
    if (iscsi := volume.iscsi) is not None:
        yield ("iscsi", iscsi.iqn), not iscsi.read_only
    if (rbd := volume.rbd) is not None:
        for monitor in rbd.monitors:
            yield ("rbd", monitor, rbd.pool, rbd.image), not rbd.read_only


def _on_pod_deleted(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    deleted = event.old
    if not isinstance(pod, Pod) or not isinstance(deleted, Pod):
        return QueueingHint.QUEUE
    if pod.metadata.namespace != deleted.metadata.namespace:
        return QueueingHint.SKIP
    released = _disks_of(deleted.spec.volumes)
    disks = _disks_of(pod.spec.volumes).items()
    conflicts = any(disk in released and (writes or released[disk]) for disk, writes in disks)
    claims = set(named_claims(pod.spec.volumes))
    shared = not claims.isdisjoint(named_claims(deleted.spec.volumes))
    return QueueingHint.QUEUE if conflicts or shared else QueueingHint.SKIP


def _on_claim_added(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    claim = event.new
    if not isinstance(pod, Pod) or claim is None:
        return QueueingHint.QUEUE
    helps = (
        claim.metadata.namespace == pod.metadata.namespace
        and claim.metadata.name in named_claims(pod.spec.volumes)
    )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def build(_args: NoArgs, _axis: ResourceAxis) -> VolumeRestrictions:
    return VolumeRestrictions()


EXAMPLE = PluginExample(
    pods=tuple(
        {"spec": {"volumes": [{"name": "data", "gcePersistentDisk": {"pdName": name}}]}}
        for name in ("a", "b")
    ),
)

PLUGIN = PluginSpec(
    "VolumeRestrictions",
    NoArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.DELETE, _on_pod_deleted),
        EventHint("Node", Action.ADD),
        EventHint("PersistentVolumeClaim", Action.ADD, _on_claim_added),
    ),
    example=EXAMPLE,
)
