"""What becomes of a pod's claims on every node: the reasons against it, and what to assume on one.

Source: kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go: ``FindPodVolumes``,
``checkBoundClaims``, ``AssumePodVolumes``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.api.meta import KubeObject
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim
from koordinator.foundation.arrays import BoolArray
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.plugins.volume_binding.claims import PodClaims
from koordinator.scheduler.plugins.volume_binding.matches import NONE, Matches, match_volumes
from koordinator.scheduler.plugins.volume_binding.provisioning import (
    ProvisioningCapacity,
    find_headroom,
)
from koordinator.scheduler.plugins.volume_binding.reach import Reach, reach
from koordinator.scheduler.rules.volumes.volume_claims import (
    SELECTED_NODE,
    VOLUME_MISSING,
    bind,
    select_node,
)
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.objects import ObjectTable

REASON_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
REASON_NONE = "node(s) didn't find available persistent volumes to bind"
REASON_SPACE = "node(s) did not have enough free storage"
REASONS = (REASON_AFFINITY, REASON_NONE, REASON_SPACE, VOLUME_MISSING)


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim that gets a new volume, and on which nodes, ``(n,)``."""

    claim: PersistentVolumeClaim
    needed: BoolArray
    headroom: ProvisioningCapacity


@dataclass(frozen=True, slots=True)
class VolumeOutcome:
    """For all rows of the cluster."""

    rejections: Rejections
    matches: Matches
    provisions: tuple[Provision, ...]

    def assumed(self, row: int, node: str) -> tuple[KubeObject, ...]:
        """Return new versions of volumes and claims that the pod takes on that row."""
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


def settle(cluster: Snapshot, claims: PodClaims) -> VolumeOutcome:
    """Return what becomes of the claims on every row."""
    objects, rows = cluster.objects, reach(cluster)
    far, missing = _check_bound(objects, claims.bound, rows)
    begun = [c for c in claims.waiting if SELECTED_NODE in c.metadata.annotations]
    others = [c for c in claims.waiting if SELECTED_NODE not in c.metadata.annotations]
    matches = match_volumes(objects, others, rows)
    everywhere = np.ones(len(cluster), bool)
    needs = [(claim, everywhere) for claim in begun]
    lost = _made_elsewhere(cluster, begun)
    for match in matches.matches:
        if match.is_set_aside:
            lost |= match.choice == NONE
        else:
            needs.append((match.claim, match.choice == NONE))
    provisions = tuple(
        Provision(claim, needed, find_headroom(objects, claim, rows))
        for claim, needed in needs
        if needed.any()
    )
    unbindable, short = _check_provisions(provisions, lost)
    rejections = Rejections.by_column((far, unbindable, short, missing), REASONS, True)
    return VolumeOutcome(rejections, matches, provisions)


def _check_bound(
    objects: ObjectTable, claims: tuple[PersistentVolumeClaim, ...], reach: Reach
) -> tuple[BoolArray, BoolArray]:
    """Return where a bound volume is out of reach, and where one is gone; the first decides."""
    far = np.zeros(len(reach.everywhere), bool)
    for claim in claims:
        volume = objects.get(PersistentVolume, claim.spec.volume_name)
        if volume is None:
            return far, ~far
        reachable = np.zeros(len(far), bool)
        reachable[reach.of_volume(volume)] = True
        far |= ~reachable
    return far, np.zeros(len(far), bool)


def _made_elsewhere(cluster: Snapshot, begun: Sequence[PersistentVolumeClaim]) -> BoolArray:
    """Return ``(n,)``: the volume of some claim is being made for another node."""
    elsewhere = np.zeros(len(cluster), bool)
    for claim in begun:
        others = np.ones(len(cluster), bool)
        row = cluster.names[1].get(claim.metadata.annotations[SELECTED_NODE])
        if row is not None:
            others[row] = False
        elsewhere |= others
    return elsewhere


def _check_provisions(
    provisions: tuple[Provision, ...], lost: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return where a volume can't be had, and where there is no space; the first claim decides.

    Nothing is checked where a claim is ``lost`` in any case.
    """
    unbindable, short = lost.copy(), np.zeros(len(lost), bool)
    for provision in provisions:
        asks, headroom = provision.needed & ~unbindable & ~short, provision.headroom
        unbindable |= asks & ~headroom.allowed
        short |= asks & headroom.allowed & ~headroom.enough
    return unbindable, short
