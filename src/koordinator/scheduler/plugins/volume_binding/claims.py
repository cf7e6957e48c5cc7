"""Claims of a pod, the volumes that match them, and queueing hints.

A controller creates the claim of an ephemeral volume after its pod; until then the pod waits.

Most volumes select nodes by one label, often one node each: those rows are looked up instead of
searched.

On a node a claim gets the smallest volume that is large enough, usable there and not taken by a
smaller claim of the same pod; among equal ones the first.  A volume pre-bound to the claim comes
first, and then the claim gets no other volume: not even a new one, which the original would
provision on nodes out of that volume's reach.

Source: kubernetes pkg/scheduler/framework/plugins/volumebinding: volume_binding.go ``podHasPVCs``,
``EventsToRegister``; binder.go ``GetPodVolumeClaims``, ``findMatchingVolumes``,
``checkVolumeProvisions``, ``hasEnoughCapacity``; k8s.io/component-helpers
storage/volume/pv_helpers.go ``CheckNodeAffinity``, ``FindMatchingVolume``.
"""

from collections.abc import Sequence

import numpy as np

from koordinator.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordinator.api.meta import KubeObject, LabelSelector
from koordinator.api.pod import Pod
from koordinator.api.volume import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    Volume,
)
from koordinator.domain.amounts import bounded
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import Action, ClusterEvent, EventHint, QueueingHint, Refusal
from koordinator.scheduler.rules.volumes import (
    NO_PROVISIONER,
    STORAGE,
    UNBOUND,
    capacity,
    claim_name,
    claim_not_created,
    claim_not_found,
    claim_of_another,
    class_not_found,
    is_available_for,
    is_bound,
    is_large_enough,
    is_meant_for,
    migrated_plugins,
    requested,
    storage_class_name,
    uses_claim,
    waits_for_pod,
)
from koordinator.scheduler.snapshot import PodClass, Snapshot
from koordinator.scheduler.snapshot.objects import ObjectTable
from koordinator.scheduler.snapshot.selection import matches_selector

_NOWHERE = np.zeros(0, np.int64)

NONE = -1


@dataclass(frozen=True, slots=True)
class PodClaims:
    """Claims of a schedulable pod, in the order of its volumes."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    waiting: tuple[PersistentVolumeClaim, ...] = ()  # to be bound once the pod has a node


def has_claims(pod: PodClass) -> bool:
    """Return whether the pod has claims."""
    return any(v.persistent_volume_claim or v.ephemeral for v in pod.spec.volumes)


def read_claims(objects: ObjectTable, pod: PodClass) -> PodClaims | Refusal:
    """Return the claims of the pod, or why it cannot be scheduled with them."""
    claims: dict[str, PersistentVolumeClaim] = {}  # a claim that is mounted twice counts once
    for volume in pod.spec.volumes:
        claim = _claim_behind(objects, pod, volume)
        if isinstance(claim, Refusal):
            return claim
        if claim is not None:
            claims[claim.metadata.name] = claim
    bound = tuple(claim for claim in claims.values() if is_bound(claim))
    waiting = tuple(claim for claim in claims.values() if not is_bound(claim))
    for claim in waiting:
        name = storage_class_name(claim)
        storage_class = objects.get(StorageClass, name)
        if claim.spec.volume_name or not waits_for_pod(storage_class):
            is_missing = bool(name) and storage_class is None and not claim.spec.volume_name
            return Refusal(UNBOUND, same_as=class_not_found(name) if is_missing else "")
    return PodClaims(bound, waiting)


def _claim_behind(
    objects: ObjectTable, pod: PodClass, volume: Volume
) -> PersistentVolumeClaim | Refusal | None:
    name = claim_name(pod.name, volume)
    if not name:
        return None
    claim = objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}")
    if claim is None:
        return Refusal(claim_not_created(name) if volume.ephemeral else claim_not_found(name))
    problem = _problem(claim)
    if problem:
        return Refusal(f'persistentvolumeclaim "{name}" {problem}')
    if volume.ephemeral and not claim.metadata.is_controlled_by(pod.uid):
        return Refusal(claim_of_another(claim, pod.name))
    return claim


def _problem(claim: PersistentVolumeClaim) -> str:
    """Return why pods cannot use the claim any more; empty if they can."""
    if claim.status.phase == "Lost":
        return f'bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    return "is being deleted" if claim.metadata.deletion_timestamp is not None else ""


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
    before, after = _volume_limit(old), _volume_limit(new)
    return _if(after is not None and (before is None or after > before))


EVENTS = (
    EventHint("StorageClass", Action.ADD | Action.UPDATE, _on_storage_class),
    EventHint("PersistentVolumeClaim", Action.ADD | Action.UPDATE, _on_claim),
    EventHint("PersistentVolume", Action.ADD | Action.UPDATE),
    EventHint("Node", Action.ADD | Action.UPDATE_LABELS),
    EventHint("CSINode", Action.ADD | Action.UPDATE, _on_csi_node),
    EventHint("CSIDriver", Action.UPDATE | Action.DELETE, _on_csi_driver),
    EventHint("CSIStorageCapacity", Action.ADD | Action.UPDATE, _on_storage_capacity),
)


class ReachableRows:
    """Rows by volume or selector for the current nodes, cached until a node changes."""

    def __init__(self, cluster: Snapshot) -> None:
        self.everywhere: IntArray = np.arange(len(cluster))
        self._whole = cluster
        self._rows: dict[NodeSelector, IntArray] = {}
        self._by_label: dict[str, dict[str, IntArray]] = {}

    def of_volume(self, volume: PersistentVolume) -> IntArray:
        """Return the rows on which the volume is usable."""
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return self.everywhere
        return self.of_selector(affinity.required)

    def of_topology(self, selector: LabelSelector) -> IntArray:
        """Return the rows of nodes whose labels are selected."""
        requirements = (
            *(
                NodeSelectorRequirement(key=key, operator="In", values=(value,))
                for key, value in selector.match_labels.items()
            ),
            *(
                NodeSelectorRequirement(
                    key=wanted.key, operator=wanted.operator, values=wanted.values
                )
                for wanted in selector.match_expressions
            ),
        )
        if not requirements:
            return self.everywhere
        term = NodeSelectorTerm(match_expressions=requirements)
        return self.of_selector(NodeSelector(node_selector_terms=(term,)))

    def of_selector(self, selector: NodeSelector) -> IntArray:
        """Return the rows of nodes that some term selects."""
        rows = self._rows.get(selector)
        if rows is None:
            rows = self._rows[selector] = self._find(selector)
        return rows

    def _find(self, selector: NodeSelector) -> IntArray:
        terms = selector.node_selector_terms
        if len(terms) == 1 and len(terms[0].match_expressions) == 1 and not terms[0].match_fields:
            only = terms[0].match_expressions[0]
            if only.operator == "In":
                by_value = self._with_label(only.key)
                matching = [by_value[v] for v in dict.fromkeys(only.values) if v in by_value]
                return np.concatenate(matching) if matching else _NOWHERE
        return np.flatnonzero(matches_selector(self._whole, selector))

    def _with_label(self, key: str) -> dict[str, IntArray]:
        """Return the rows by value of a label."""
        known = self._by_label.get(key)
        if known is None:
            ids, values = self._whole.label(key)
            order = np.argsort(ids, kind="stable")
            starts = np.searchsorted(ids[order], np.arange(len(values) + 1))
            known = self._by_label[key] = {
                value: order[starts[i] : starts[i + 1]] for i, value in enumerate(values)
            }
        return known


_REACH: Memo[ReachableRows] = Memo()


def reach(cluster: Snapshot) -> ReachableRows:
    """Return the cached rows for the current nodes."""
    return _REACH.as_of(cluster.shared, cluster.node_version, ReachableRows, cluster)


@dataclass(frozen=True, slots=True)
class Match:
    """Volume of a claim by node: ``choice[n]`` is an index into the volumes, or NONE."""

    claim: PersistentVolumeClaim
    choice: IntArray  # (n,)
    is_prebound: bool  # a volume is pre-bound to the claim, which then cannot use others


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches of all waiting claims of a pod."""

    volumes: tuple[PersistentVolume, ...] = ()
    matches: tuple[Match, ...] = ()  # smallest claim first

    def on(self, row: int) -> list[tuple[PersistentVolumeClaim, PersistentVolume]]:
        """Return the claims with a volume on that row, and the volume."""
        return [
            (match.claim, self.volumes[match.choice[row]])
            for match in self.matches
            if match.choice[row] != NONE
        ]


def match_volumes(
    objects: ObjectTable, claims: Sequence[PersistentVolumeClaim], reach: ReachableRows
) -> Matches:
    """Return a volume for each claim and node, where there is one."""
    if not claims:
        return Matches()
    classes = {storage_class_name(claim) for claim in claims}
    volumes = tuple(
        volume for volume in objects.all(PersistentVolume) if storage_class_name(volume) in classes
    )
    matches: list[Match] = []
    for claim in sorted(claims, key=requested):
        fitting = [i for i, volume in enumerate(volumes) if is_large_enough(volume, claim)]
        candidates = [i for i in fitting if is_meant_for(volumes[i], claim)][:1]
        is_prebound = bool(candidates)
        if not is_prebound:
            free = (i for i in fitting if is_available_for(volumes[i], claim))
            candidates = sorted(free, key=lambda index: capacity(volumes[index]))
        taken = [match.choice for match in matches]
        choice = _first_usable(candidates, volumes, reach, taken)
        matches.append(Match(claim, choice, is_prebound))
    return Matches(volumes, tuple(matches))


def _first_usable(
    candidates: Sequence[int],
    volumes: Sequence[PersistentVolume],
    reach: ReachableRows,
    taken: Sequence[IntArray],
) -> IntArray:
    """Return ``(n,)``: the first candidate that is usable there and not in ``taken``."""
    considered: list[int] = []
    usable_rows: list[IntArray] = []
    spare = len(taken)  # volumes usable on all nodes that earlier claims may have taken
    for index in candidates:
        rows = reach.of_volume(volumes[index])
        considered.append(index)
        usable_rows.append(rows)
        if len(rows) == len(reach.everywhere):
            if not spare:
                break  # every node has a candidate by now
            spare -= 1
    choice = np.full(len(reach.everywhere), NONE, np.int64)
    if considered:
        rows = np.concatenate(usable_rows)
        chosen = np.repeat(np.array(considered), [len(part) for part in usable_rows])
        for earlier in taken:
            free = earlier[rows] != chosen
            rows, chosen = rows[free], chosen[free]
        choice[rows[::-1]] = chosen[::-1]  # in reverse, so that the best candidate is written last
    return choice


@dataclass(frozen=True, slots=True)
class ProvisioningCapacity:
    """Rows that can provision a volume, ``(n,)`` each."""

    allowed: BoolArray  # the class provisions volumes for the node
    enough: BoolArray  # the known capacity suffices
    capacity: IntArray  # bytes available to the node; 0 if unknown


def find_headroom(
    objects: ObjectTable, claim: PersistentVolumeClaim, reach: ReachableRows
) -> ProvisioningCapacity:
    """Return the rows for which the claim's class can provision the volume."""
    storage_class = objects.get(StorageClass, storage_class_name(claim))
    rows = len(reach.everywhere)
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return ProvisioningCapacity(
            np.zeros(rows, bool), np.ones(rows, bool), np.zeros(rows, np.int64)
        )
    allowed = np.zeros(rows, bool)
    allowed[_allowed(storage_class, reach)] = True
    capacity = np.zeros(rows, np.int64)
    if not _is_checked(objects, storage_class, claim):
        return ProvisioningCapacity(allowed, np.ones(rows, bool), capacity)
    enough = np.zeros(rows, bool)
    for place in objects.all(CsiStorageCapacity):
        limit = _volume_limit(place)
        if (
            place.storage_class_name != storage_class.metadata.name
            or place.node_topology is None
            or limit is None
            or limit < requested(claim)
        ):
            continue
        near = reach.of_topology(place.node_topology)
        if place.capacity is not None:
            capacity[near[~enough[near]]] = bounded(STORAGE, place.capacity)
        enough[near] = True
    return ProvisioningCapacity(allowed, enough, capacity)


def _volume_limit(place: CsiStorageCapacity) -> Quantity | None:
    """Return the largest size that can be provisioned there; None if unknown."""
    return place.capacity if place.maximum_volume_size is None else place.maximum_volume_size


def _allowed(storage_class: StorageClass, reach: ReachableRows) -> IntArray:
    if not storage_class.allowed_topologies:
        return reach.everywhere
    terms = tuple(
        NodeSelectorTerm(match_expressions=term.as_node_requirements())
        for term in storage_class.allowed_topologies
    )
    return reach.of_selector(NodeSelector(node_selector_terms=terms))


def _is_checked(
    objects: ObjectTable, storage_class: StorageClass, claim: PersistentVolumeClaim
) -> bool:
    """Return whether the driver publishes capacities that limit the claim."""
    driver = objects.get(CsiDriver, storage_class.provisioner)
    has_size = STORAGE in claim.spec.resources.requests
    return has_size and driver is not None and bool(driver.spec.storage_capacity)
