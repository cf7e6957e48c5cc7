"""Zone and region labels of volumes: a labelled volume is usable only there.

Nodes without any such label accept every volume: a cluster of one zone need not label them.

Source: kubernetes pkg/scheduler/framework/plugins/volumezone.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordinator.foundation.lazy_dataclass import dataclass
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
from koordinator.scheduler.diagnosis import place
from koordinator.scheduler.rules.volumes import (
    UNBOUND,
    VOLUME_MISSING,
    claim_not_found,
    class_not_found,
    missing_volume_remedy,
    named_claims,
    storage_class_name,
    waits_for_pod,
)
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.selection import has_label

REASON = "node(s) had no available volume zone"

#: Label of a volume -> equivalent node label, used where the node lacks the first.
TOPOLOGY_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


@dataclass(frozen=True, slots=True)
class VolumeTopology:
    """Topology label of a volume with its allowed values."""

    label: str
    values: tuple[str, ...]


class VolumeZone:
    """Filter on the labels of bound volumes."""

    reads: ClassVar = Reads.CLUSTER
    hints: ClassVar = PluginHints(filters=lambda snapshot, pod: bool(_places(snapshot, pod)))

    def applies(self, pod: PodClass) -> bool:
        return bool(pod.spec.volumes)

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        """Refuse a pod with a claim whose volume is unknown and is not chosen with the node."""
        for name in named_claims(pod.spec.volumes):
            refusal = _unknown_volume(snapshot, f"{pod.namespace}/{name}", name)
            if refusal is not None:
                return refusal
        return None

    def remedy(self, snapshot: Snapshot, pod: PodClass) -> tuple[str, bool]:
        """Return the volumes to create to which the pod's claims are bound already."""
        steps = []
        for name in named_claims(pod.spec.volumes):
            key = f"{pod.namespace}/{name}"
            claim = snapshot.objects.get(PersistentVolumeClaim, key)
            volume = claim.spec.volume_name if claim is not None else ""
            if claim and volume and snapshot.objects.get(PersistentVolume, volume) is None:
                steps.append(missing_volume_remedy(claim))
        text = " and ".join(dict.fromkeys(steps))
        return text, bool(text)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        labelled = np.zeros(len(snapshot), bool)
        for label in TOPOLOGY_LABELS:
            labelled |= snapshot.label(label)[0] >= 0
        is_outside = np.zeros(len(snapshot), bool)
        for one in _places(snapshot, pod):
            equivalent = TOPOLOGY_LABELS[one.label]
            has_value = has_label(snapshot, one.label, one.values)
            if equivalent != one.label:
                is_missing = snapshot.label(one.label)[0] < 0
                has_value |= is_missing & has_label(snapshot, equivalent, one.values)
            is_outside |= labelled & ~has_value
        return Rejections.where(is_outside, REASON, unresolvable=True)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return the zones of the volumes and of the node."""
        node = view.node_names[0]
        return "; ".join(
            f"claim {claim}'s volume {volume.metadata.name} is in "
            f"{place(one.label, one.values)}; {node} is in "
            f"{place(one.label, (_here(view, one.label) or 'none',))}"
            for claim, volume in _volumes(view, pod)
            for one in _labelled_places(volume)
            if _here(view, one.label) not in one.values
        )


def _here(view: Snapshot, label: str) -> str:
    """Return the zone or region of the only row; empty without such a label."""
    for key in (label, TOPOLOGY_LABELS[label]):
        ids, values = view.label(key)
        if ids[0] >= 0:
            return values[int(ids[0])]
    return ""


def _places(snapshot: Snapshot, pod: PodClass) -> list[VolumeTopology]:
    """Return the topology labels of the pod's bound volumes."""
    return [one for _, volume in _volumes(snapshot, pod) for one in _labelled_places(volume)]


def _volumes(snapshot: Snapshot, pod: PodClass) -> Iterator[tuple[str, PersistentVolume]]:
    """Yield each claim of the pod that has a volume: name and volume."""
    for name in named_claims(pod.spec.volumes):
        claim = snapshot.objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}")
        volume_name = claim.spec.volume_name if claim else ""
        volume = snapshot.objects.get(PersistentVolume, volume_name) if volume_name else None
        if volume is not None:
            yield name, volume


def _labelled_places(volume: PersistentVolume) -> Iterator[VolumeTopology]:
    """Yield the topology labels.  ``__`` separates values; an empty value voids the label."""
    for label in TOPOLOGY_LABELS:
        values = tuple(v.strip() for v in volume.metadata.labels.get(label, "").split("__"))
        if all(values):
            yield VolumeTopology(label, values)


def _unknown_volume(snapshot: Snapshot, key: str, name: str) -> Refusal | None:
    """Return why the claim's volume is unknown; None if known or if binding waits for the pod."""
    claim = snapshot.objects.get(PersistentVolumeClaim, key)
    if claim is None:
        return Refusal(claim_not_found(name))
    volume_name = claim.spec.volume_name
    if volume_name:
        known = snapshot.objects.get(PersistentVolume, volume_name) is not None
        missing = f'persistentvolume "{volume_name}" not found'
        return None if known else Refusal(missing, same_as=VOLUME_MISSING)
    class_name = storage_class_name(claim)
    if not class_name:
        return Refusal(
            "PersistentVolumeClaim had no pv name and storageClass name", same_as=UNBOUND
        )
    storage_class = snapshot.objects.get(StorageClass, class_name)
    if storage_class is None:
        return Refusal(class_not_found(class_name))
    if waits_for_pod(storage_class):
        return None
    return Refusal("PersistentVolume had no name", same_as=UNBOUND)


def _on_storage_class(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    added = event.new
    helps = isinstance(added, StorageClass) and waits_for_pod(added)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _on_claim(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    claim = event.new
    helps = (
        isinstance(pod, Pod)
        and isinstance(claim, PersistentVolumeClaim)
        and claim.metadata.namespace == pod.metadata.namespace
        and claim.metadata.name in named_claims(pod.spec.volumes)
    )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _on_volume(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    old, new = event.old, event.new
    if not isinstance(old, PersistentVolume) or not isinstance(new, PersistentVolume):
        return QueueingHint.QUEUE
    moved = list(_labelled_places(old)) != list(_labelled_places(new))
    return QueueingHint.QUEUE if moved else QueueingHint.SKIP


def build(_args: NoArgs, _axis: ResourceAxis) -> VolumeZone:
    return VolumeZone()


EXAMPLE = PluginExample(
    pods=(
        {},
        *(
            {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}}
            for name in ("a", "b")
        ),
    ),
    objects=tuple(
        manifest
        for name in ("a", "b")
        for manifest in (
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"volumeName": f"pv-{name}"},
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"pv-{name}", "labels": {"topology.kubernetes.io/zone": name}},
                "spec": {"capacity": {"storage": "9Gi"}},
            },
        )
    ),
)

PLUGIN = PluginSpec(
    "VolumeZone",
    NoArgs,
    build,
    events=(
        EventHint("StorageClass", Action.ADD, _on_storage_class),
        EventHint("Node", Action.ADD | Action.UPDATE_LABELS),
        EventHint("PersistentVolumeClaim", Action.ADD | Action.UPDATE, _on_claim),
        EventHint("PersistentVolume", Action.ADD | Action.UPDATE, _on_volume),
    ),
    example=EXAMPLE,
)
