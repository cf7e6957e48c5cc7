"""Outcome of volume binding for a pod: reasons by node, and objects to assume on one.

Source: kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go: ``FindPodVolumes``,
``checkBoundClaims``, ``AssumePodVolumes``.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from koordinator.api.meta import KubeObject
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim
from koordinator.domain.amounts import bounded
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.plugins.volume_binding.claims import (
    NONE,
    Matches,
    PodClaims,
    ProvisioningCapacity,
    ReachableRows,
    find_headroom,
    match_volumes,
    reach,
)
from koordinator.scheduler.rules.curves import Curve
from koordinator.scheduler.rules.volumes import (
    SELECTED_NODE,
    STORAGE,
    VOLUME_MISSING,
    bind,
    capacity,
    requested,
    select_node,
    storage_class_name,
)
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.objects import ObjectTable

REASON_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
REASON_NONE = "node(s) didn't find available persistent volumes to bind"
REASON_SPACE = "node(s) did not have enough free storage"
REASONS = (REASON_AFFINITY, REASON_NONE, REASON_SPACE, VOLUME_MISSING)


@dataclass(frozen=True, slots=True)
class Provision:
    """Claim that needs a new volume on some nodes, ``(n,)``."""

    claim: PersistentVolumeClaim
    needed: BoolArray
    headroom: ProvisioningCapacity


@dataclass(frozen=True, slots=True)
class VolumeOutcome:
    """Rejections, matches and provisions on all rows of the cluster."""

    rejections: Rejections
    matches: Matches
    provisions: tuple[Provision, ...]
    node_names: Sequence[str]  # (n,)

    def serves(self, claim: PersistentVolumeClaim, row: int) -> bool:
        """Return whether an unbound claim gets a volume on that row."""
        selected = claim.metadata.annotations.get(SELECTED_NODE)
        if selected is None:
            match = next(it for it in self.matches.matches if it.claim.key == claim.key)
            if match.choice[row] != NONE or match.is_prebound:
                return bool(match.choice[row] != NONE)
        elif self.node_names[row] != selected:
            return False
        headroom = next(it.headroom for it in self.provisions if it.claim.key == claim.key)
        return bool(headroom.allowed[row] and headroom.enough[row])

    def assumed(self, row: int, node: str) -> tuple[KubeObject, ...]:
        """Return the changed volumes and claims if the pod runs on that row."""
        changed: list[KubeObject] = []
        for claim, volume in self.matches.on(row):
            bound = bind(volume, claim)
            if bound is not volume:
                changed.append(bound)
        changed.extend(
            select_node(provision.claim, node)
            for provision in self.provisions
            if provision.needed[row]
            and provision.claim.metadata.annotations.get(SELECTED_NODE) != node
        )
        return tuple(changed)


def find_outcome(cluster: Snapshot, claims: PodClaims) -> VolumeOutcome:
    """Return the outcome of the claims on every row."""
    objects, rows = cluster.objects, reach(cluster)
    out_of_reach, missing = _check_bound(objects, claims.bound, rows)
    selected = [c for c in claims.waiting if SELECTED_NODE in c.metadata.annotations]
    others = [c for c in claims.waiting if SELECTED_NODE not in c.metadata.annotations]
    matches = match_volumes(objects, others, rows)
    everywhere = np.ones(len(cluster), bool)
    needs = [(claim, everywhere) for claim in selected]
    unreachable = _provisioned_elsewhere(cluster, selected)
    for match in matches.matches:
        if match.is_prebound:
            unreachable |= match.choice == NONE
        else:
            needs.append((match.claim, match.choice == NONE))
    provisions = tuple(
        Provision(claim, needed, find_headroom(objects, claim, rows))
        for claim, needed in needs
        if needed.any()
    )
    unbindable, short = _check_provisions(provisions, unreachable)
    rejections = Rejections.by_column((out_of_reach, unbindable, short, missing), REASONS, True)
    return VolumeOutcome(rejections, matches, provisions, cluster.node_names)


def _check_bound(
    objects: ObjectTable, claims: tuple[PersistentVolumeClaim, ...], reach: ReachableRows
) -> tuple[BoolArray, BoolArray]:
    """Return rows out of reach of a bound volume, and with a missing one; the first decides."""
    out_of_reach = np.zeros(len(reach.everywhere), bool)
    for claim in claims:
        volume = objects.get(PersistentVolume, claim.spec.volume_name)
        if volume is None:
            return out_of_reach, ~out_of_reach
        reachable = np.zeros(len(out_of_reach), bool)
        reachable[reach.of_volume(volume)] = True
        out_of_reach |= ~reachable
    return out_of_reach, np.zeros(len(out_of_reach), bool)


def _provisioned_elsewhere(
    cluster: Snapshot, selected: Sequence[PersistentVolumeClaim]
) -> BoolArray:
    """Return ``(n,)``: the volume of some claim is being provisioned for another node."""
    on_other_nodes = np.zeros(len(cluster), bool)
    for claim in selected:
        others = np.ones(len(cluster), bool)
        row = cluster.names[1].get(claim.metadata.annotations[SELECTED_NODE])
        if row is not None:
            others[row] = False
        on_other_nodes |= others
    return on_other_nodes


def _check_provisions(
    provisions: tuple[Provision, ...], unreachable: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return rows that cannot get a volume, and rows without space; the first claim decides.

    Rows where a claim is ``unreachable`` are not checked further.
    """
    unbindable, short = unreachable.copy(), np.zeros(len(unreachable), bool)
    for provision in provisions:
        checked, headroom = provision.needed & ~unbindable & ~short, provision.headroom
        unbindable |= checked & ~headroom.allowed
        short |= checked & headroom.allowed & ~headroom.enough
    return unbindable, short


@dataclass(slots=True)
class ClassUsage:
    """Requested and available bytes of one storage class, ``(n,)`` each."""

    requested: IntArray
    capacity: IntArray


def score(outcome: VolumeOutcome, curve: Curve) -> IntArray:
    """Return ``(n,)``: the curve averaged over storage classes; 0 without capacity data."""
    rows = len(outcome.rejections.codes)
    total, classes = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for usage in _class_usages(outcome, rows):
        counted = usage.capacity > 0
        total += counted * curve(usage.requested, usage.capacity)
        classes += counted
    return np.floor(total / np.maximum(classes, 1) + 0.5).astype(np.int64)


def _class_usages(outcome: VolumeOutcome, rows: int) -> list[ClassUsage]:
    by_class: defaultdict[str, ClassUsage] = defaultdict(
        lambda: ClassUsage(np.zeros(rows, np.int64), np.zeros(rows, np.int64))
    )
    matches = outcome.matches
    sizes = np.array([bounded(STORAGE, capacity(volume)) for volume in matches.volumes], np.int64)
    matched = np.zeros(rows, bool)
    for match in matches.matches:
        is_used = match.choice != NONE
        usage = by_class[storage_class_name(match.claim)]
        usage.requested[is_used] += bounded(STORAGE, requested(match.claim))
        usage.capacity[is_used] += sizes[match.choice[is_used]]
        matched |= is_used
    for provision in outcome.provisions:
        is_used = provision.needed & ~matched & (provision.headroom.capacity > 0)
        usage = by_class[storage_class_name(provision.claim)]
        usage.requested[is_used] += bounded(STORAGE, requested(provision.claim))
        usage.capacity[is_used] = provision.headroom.capacity[is_used]
    return list(by_class.values())
