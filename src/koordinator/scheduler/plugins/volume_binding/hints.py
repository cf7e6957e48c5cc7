"""Queueing hints for pods that VolumeBinding rejected.

Source: kubernetes pkg/scheduler/framework/plugins/volumebinding/volume_binding.go
``EventsToRegister``.
"""

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.volume import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from koordinator.scheduler.contract import Action, ClusterEvent, EventHint, QueueingHint
from koordinator.scheduler.plugins.volume_binding.provisioning import volume_limit
from koordinator.scheduler.rules.volumes import migrated_plugins, uses_claim


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
