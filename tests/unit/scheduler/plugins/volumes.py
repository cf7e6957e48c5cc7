"""Small clusters with storage for the tests of the volume plugins."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from koordinator.api.core import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectReference,
    ResourceRequirements,
)
from koordinator.api.meta import KubeObject, ObjectMeta, OwnerReference
from koordinator.api.node import Node
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.volume import (
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    CsiPersistentVolumeSource,
    EphemeralVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimTemplate,
    PersistentVolumeClaimVolumeSource,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    Volume,
    VolumeNodeAffinity,
    VolumeNodeResources,
)
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import AllocationResult, Refusal, Rejections
from koordinator.scheduler.rules.volumes import BIND_COMPLETED
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot

NAMESPACE = "shop"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
DRIVER = "csi.example.com"
LATE, EARLY = "WaitForFirstConsumer", "Immediate"


class World:
    """Cluster whose nodes have the label ``kubernetes.io/hostname`` and given labels."""

    def __init__(self, nodes: Mapping[str, Mapping[str, str]], *objects: KubeObject) -> None:
        self.state = ClusterState()
        for name, labels in nodes.items():
            meta = ObjectMeta(name=name, labels={HOSTNAME: name, **labels})
            self.state.put_node(Node(metadata=meta))
        self.put(*objects)

    def put(self, *objects: KubeObject) -> None:
        for item in objects:
            self.state.objects.put(item)

    def pod_class(self, pod: Pod) -> PodClass:
        return self.state.classes.of(pod)

    def run(self, pod: Pod, node: str) -> None:
        """Place a pod without asking plugins."""
        self.state.place(pod.key, pod, self.pod_class(pod), self.state.nodes.rows[node])

    def stop(self, pod: Pod) -> None:
        self.state.displace(pod.key)

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.state)

    def refusal(self, plugin: Any, pod: Pod) -> Refusal | None:
        refusal: Refusal | None = plugin.prefilter(self.snapshot, self.pod_class(pod))
        return refusal

    def reasons(self, plugin: Any, pod: Pod) -> dict[str, str]:
        """Return the reasons by rejected node; check that views of rows agree."""
        snapshot, pod_class = self.snapshot, self.pod_class(pod)
        if not plugin.hints.filters(snapshot, pod_class):
            return {}
        answer = plugin.filter(snapshot, pod_class)
        backwards = np.arange(len(snapshot))[::-1].repeat(2)
        some = plugin.filter(snapshot[backwards], pod_class)
        assert some.codes.tolist() == answer.codes[backwards].tolist()
        return {
            name: _words(answer, row)
            for row, name in enumerate(snapshot.node_names)
            if answer.codes[row]
        }

    def reserve(self, plugin: Any, pod: Pod, node: str) -> AllocationResult | Refusal:
        view = self.snapshot[np.array([self.state.nodes.rows[node]])]
        answer: AllocationResult | Refusal = plugin.reserve(view, self.pod_class(pod), None)
        return answer

    def schedule(self, plugin: Any, pod: Pod, node: str) -> None:
        """Apply what the plugin reserves and place the pod."""
        allocation = self.reserve(plugin, pod, node)
        assert isinstance(allocation, AllocationResult), allocation
        self.put(*allocation.objects)
        self.run(pod, node)


def _words(answer: Rejections, row: int) -> str:
    code = int(answer.codes[row])
    return ", ".join(text for bit, text in enumerate(answer.reasons) if code >> bit & 1)


def meta(name: str, **fields: Any) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-of-{name}", **fields)


def pod(name: str, *volumes: Volume, **fields: Any) -> Pod:
    spec = PodSpec(containers=(Container(name="main"),), volumes=volumes)
    return Pod(metadata=meta(name, **fields), spec=spec)


def pod_with(name: str, *claims: str) -> Pod:
    """Return a pod that mounts these claims."""
    return pod(name, *(mount(claim) for claim in claims))


def mount(claim: str) -> Volume:
    source = PersistentVolumeClaimVolumeSource(claim_name=claim)
    return Volume(name=f"volume-{claim}", persistent_volume_claim=source)


def ephemeral(name: str = "scratch", class_name: str | None = "late", size: str = "10Gi") -> Volume:
    """Return a volume whose claim is created and deleted with the pod."""
    template = PersistentVolumeClaimTemplate(spec=claim("template", class_name, size).spec)
    return Volume(name=name, ephemeral=EphemeralVolumeSource(volume_claim_template=template))


def owned(item: PersistentVolumeClaim, owner: Pod) -> PersistentVolumeClaim:
    """Return the claim that the controller creates for an ephemeral volume of the pod."""
    reference = OwnerReference(kind="Pod", uid=owner.metadata.uid, controller=True)
    metadata = msgspec.structs.replace(item.metadata, owner_references=(reference,))
    return msgspec.structs.replace(item, metadata=metadata)


def storage_class(name: str, mode: str = LATE, **fields: Any) -> StorageClass:
    fields = {"provisioner": DRIVER, **fields}
    return StorageClass(metadata=ObjectMeta(name=name), volume_binding_mode=mode, **fields)


def claim(
    name: str,
    class_name: str | None = "late",
    size: str = "10Gi",
    *,
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> PersistentVolumeClaim:
    """Return an unbound claim."""
    spec = PersistentVolumeClaimSpec(
        storage_class_name=class_name,
        resources=ResourceRequirements(requests={"storage": Quantity.parse(size)}),
        **{"access_modes": ("ReadWriteOnce",), **fields},
    )
    return PersistentVolumeClaim(
        metadata=meta(name, annotations=dict(annotations or {})), spec=spec
    )


def bound(item: PersistentVolumeClaim, volume: str) -> PersistentVolumeClaim:
    """Return the claim bound to a volume."""
    metadata = msgspec.structs.replace(
        item.metadata, annotations={**item.metadata.annotations, BIND_COMPLETED: "yes"}
    )
    spec = msgspec.structs.replace(item.spec, volume_name=volume)
    return msgspec.structs.replace(item, metadata=metadata, spec=spec)


def volume(
    name: str,
    class_name: str = "late",
    size: str = "10Gi",
    *,
    on: Mapping[str, Iterable[str]] | None = None,
    claimed_by: ObjectReference | None = None,
    labels: Mapping[str, str] | None = None,
    phase: str = "Available",
    **fields: Any,
) -> PersistentVolume:
    """Return a volume for nodes with one of the values per label in ``on``; None means all."""
    term = NodeSelectorTerm(
        match_expressions=tuple(
            NodeSelectorRequirement(key=key, operator="In", values=tuple(values))
            for key, values in (on or {}).items()
        )
    )
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))
    fields = {"csi": CsiPersistentVolumeSource(driver=DRIVER, volume_handle=name), **fields}
    return PersistentVolume(
        metadata=ObjectMeta(name=name, labels=dict(labels or {})),
        spec=PersistentVolumeSpec(
            capacity={"storage": Quantity.parse(size)},
            storage_class_name=class_name,
            claim_ref=claimed_by,
            node_affinity=affinity if on else None,
            **{"access_modes": ("ReadWriteOnce",), **fields},
        ),
        status=PersistentVolumeStatus(phase=phase),
    )


def csi_node(name: str, limits: Mapping[str, int | None], **fields: Any) -> CsiNode:
    """Return a CSINode with limits by driver; None means unlimited."""
    drivers = tuple(
        CsiNodeDriver(name=driver, allocatable=VolumeNodeResources(count=limit))
        for driver, limit in limits.items()
    )
    return CsiNode(metadata=ObjectMeta(name=name, **fields), spec=CsiNodeSpec(drivers=drivers))
