"""PersistentVolume controller and provisioners of a simulated cluster.

The scheduler binds claims of a class with WaitForFirstConsumer: it names the claim in a volume or a
node in the claim.  The controller binds all other claims: to the volume that names the claim or
that the claim names, to the smallest available volume that fits, or to a provisioned volume.
Provisioning succeeds immediately.  Claims of ephemeral volumes outlive their pods, as there is no
garbage collector.

Source: kubernetes pkg/controller/volume/persistentvolume/pv_controller.go ``syncUnboundClaim``,
``checkVolumeSatisfyClaim``, ``bind``, index.go ``findByClaim``;
pkg/controller/volume/ephemeral/controller.go ``handleVolume``.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from koordinator.api.core import NodeSelector, NodeSelectorTerm
from koordinator.api.defaults import with_defaults
from koordinator.api.event import reference_to
from koordinator.api.meta import KubeObject, ObjectMeta, OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
)
from koordinator.cluster.memory.admission import WriteOperation, default_storage_class
from koordinator.cluster.port import Cluster, EventType
from koordinator.foundation.errors import AlreadyExistsError, NotFoundError
from koordinator.scheduler.rules.volumes import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    bind,
    capacity,
    claim_name,
    has_class_and_modes,
    is_available_for,
    is_bound,
    is_large_enough,
    is_meant_for,
    requested,
    storage_class_name,
    waits_for_pod,
)


def _is_unclaimed(volume: PersistentVolume) -> bool:
    reference = volume.spec.claim_ref
    return reference is None or not reference.uid


class _Volumes:
    """Volumes available to unbound claims in one step."""

    def __init__(self, volumes: Iterable[PersistentVolume]) -> None:
        self._by_name: dict[str, PersistentVolume] = {}
        self._set_aside: dict[tuple[str, str], list[PersistentVolume]] = {}
        self._free: dict[str, list[PersistentVolume]] = {}  # by class, smallest first
        for volume in volumes:
            self._by_name[volume.metadata.name] = volume
            reference = volume.spec.claim_ref
            if reference is None:
                self._free.setdefault(storage_class_name(volume), []).append(volume)
            else:
                key = (reference.namespace or "", reference.name)
                self._set_aside.setdefault(key, []).append(volume)
        for free in self._free.values():
            free.sort(key=lambda volume: (len(volume.spec.access_modes), capacity(volume)))

    def named(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the volume that the claim names, if it is available to the claim."""
        volume = self._by_name.get(claim.spec.volume_name)
        if volume is None or is_meant_for(volume, claim):
            return volume
        fits = is_large_enough(volume, claim) and has_class_and_modes(volume, claim)
        return volume if fits and volume.spec.claim_ref is None else None

    def prebound_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the volume that names the claim."""
        modes = set(claim.spec.access_modes)
        for volume in self._set_aside.get((claim.metadata.namespace, claim.metadata.name), ()):
            if (
                is_meant_for(volume, claim)
                and is_large_enough(volume, claim)
                and modes <= set(volume.spec.access_modes)
            ):
                return volume
        return None

    def smallest(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the available volume with the fewest access modes, then bytes, that fits."""
        for volume in self._free.get(storage_class_name(claim), ()):
            if is_large_enough(volume, claim) and is_available_for(volume, claim):
                return volume
        return None

    def take(self, volume: PersistentVolume) -> None:
        """Withhold the volume from other claims of this step."""
        free = self._free.get(storage_class_name(volume), [])
        if volume in free:
            free.remove(volume)
        self._by_name.pop(volume.metadata.name, None)


class VolumeController:
    """Controller that binds claims and makes new volumes available, incrementally per step."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watch = cluster.watch([StorageClass, PersistentVolume, PersistentVolumeClaim])
        self._unbound: dict[str, None] = {}  # keys of claims, in the order of their arrival

    def step(self) -> bool:
        """Make volumes available, bind claims, provision volumes; return whether it wrote."""
        did, changed = False, dict[str, None]()
        for event in self._watch.poll():
            changed_object = event.object
            if event.type is EventType.BOOKMARK:
                continue
            if isinstance(changed_object, PersistentVolumeClaim):
                if event.type is EventType.DELETED or is_bound(changed_object):
                    self._unbound.pop(changed_object.key, None)
                else:
                    self._unbound.setdefault(changed_object.key)
                    changed.setdefault(changed_object.key)
            elif event.type is not EventType.DELETED:
                if isinstance(changed_object, PersistentVolume):
                    did |= self._make_available(changed_object) or self._complete(changed_object)
                if not isinstance(changed_object, PersistentVolume) or _is_unclaimed(
                    changed_object
                ):
                    changed |= self._unbound
        return self._bind_claims([key for key in changed if key in self._unbound]) or did

    def _make_available(self, volume: PersistentVolume) -> bool:
        """Make a new volume available."""
        reference, status = volume.spec.claim_ref, volume.status
        if status.phase not in ("", "Pending") or (reference is not None and reference.uid):
            return False
        self._cluster.update_status(replace(volume, status=replace(status, phase="Available")))
        return True

    def _complete(self, volume: PersistentVolume) -> bool:
        """Complete the bind of a claim that a volume names."""
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
        marks = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
        if claim.spec.volume_name != volume.metadata.name:
            marks[BOUND_BY_CONTROLLER] = "yes"
        bound = replace(
            claim,
            metadata=replace(claim.metadata, annotations=marks),
            spec=replace(claim.spec, volume_name=volume.metadata.name),
        )
        stored = self._cluster.update(bound)
        self._cluster.update_status(replace(stored, status=replace(stored.status, phase="Bound")))
        self._cluster.update_status(replace(volume, status=replace(volume.status, phase="Bound")))
        return True

    def _bind_claims(self, keys: Sequence[str]) -> bool:
        """Bind claims; those that name a volume go first, as only that volume fits them."""
        if not keys:
            return False
        parts = [key.partition("/") for key in keys]
        claims = [self._cluster.get(PersistentVolumeClaim, name, space) for space, _, name in parts]
        volumes = _Volumes(self._cluster.list(PersistentVolume).items)
        did = False
        for claim in sorted(claims, key=lambda claim: not claim.spec.volume_name):
            volume = (
                volumes.named(claim) if claim.spec.volume_name else volumes.prebound_volume(claim)
            )
            if volume is None and not claim.spec.volume_name:
                if not waits_for_pod(self._class_of(claim)):
                    volume = volumes.smallest(claim)
                if volume is None:
                    did |= self._provision(claim)
            if volume is not None:
                bound = bind(volume, claim)
                volumes.take(volume)
                if bound is not volume:
                    self._cluster.update(bound)
                    did = True
        return did

    def _class_of(self, claim: KubeObject) -> StorageClass | None:
        if not isinstance(claim, PersistentVolumeClaim):
            return None
        try:
            return self._cluster.get(StorageClass, storage_class_name(claim))
        except NotFoundError:
            return None

    def _provision(self, claim: PersistentVolumeClaim) -> bool:
        """Provision a volume for a claim, unless its class waits for a pod."""
        defaulted = default_storage_class(WriteOperation.CREATE, claim, self._cluster)
        storage_class = self._class_of(defaulted)
        if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
            return False
        if waits_for_pod(storage_class) and SELECTED_NODE not in claim.metadata.annotations:
            return False
        meta = claim.metadata
        terms = tuple(
            NodeSelectorTerm(match_expressions=term.as_node_requirements())
            for term in storage_class.allowed_topologies
        )
        reach = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))
        spec = PersistentVolumeSpec(
            capacity={"storage": requested(claim)},
            access_modes=claim.spec.access_modes,
            storage_class_name=storage_class.metadata.name,
            volume_mode=claim.spec.volume_mode,
            claim_ref=reference_to(claim),
            node_affinity=reach if terms else None,
        )
        metadata = ObjectMeta(name=f"pvc-{meta.uid}")
        try:
            self._cluster.create(PersistentVolume(metadata=metadata, spec=spec))
        except AlreadyExistsError:
            return False
        return True


# -- claims of ephemeral volumes -------------------------------------------------------------


def create_ephemeral_claims(cluster: Cluster, pod: Pod) -> None:
    """Create the claims of a stored pod; an existing claim of the same name stays unchanged."""
    for claim in ephemeral_claims(pod):
        with suppress(AlreadyExistsError):
            cluster.create(claim)


def ephemeral_claims(pod: Pod) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims that the pod needs and owns; none for a pod in deletion."""
    if pod.metadata.deletion_timestamp is not None:
        return
    owner = OwnerReference(
        api_version=pod.API_VERSION,
        kind=pod.KIND,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    for volume in pod.spec.volumes:
        template = volume.ephemeral.volume_claim_template if volume.ephemeral else None
        if template is None:
            continue
        meta = ObjectMeta(
            name=claim_name(pod.metadata.name, volume),
            namespace=pod.metadata.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(owner,),
        )
        yield with_defaults(PersistentVolumeClaim(metadata=meta, spec=template.spec))
