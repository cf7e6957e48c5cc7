"""Existing volumes for the claims of a pod, on every node at once.

On a node a claim gets the smallest volume that is large enough, usable there and not taken by a
smaller claim of the same pod; among equal ones the first.  A volume pre-bound to the claim comes
first, and then the claim gets no other volume: not even a new one, which the original would
provision on nodes out of that volume's reach.

Source: k8s.io/component-helpers storage/volume/pv_helpers.go ``FindMatchingVolume``; kubernetes
pkg/scheduler/framework/plugins/volumebinding/binder.go ``findMatchingVolumes``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.plugins.volume_binding.reach import Reach
from koordinator.scheduler.rules.volumes import (
    capacity,
    is_available_for,
    is_large_enough,
    is_meant_for,
    requested,
    storage_class_name,
)
from koordinator.scheduler.snapshot.objects import ObjectTable

NONE = -1


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
    objects: ObjectTable, claims: Sequence[PersistentVolumeClaim], reach: Reach
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
    reach: Reach,
    taken: Sequence[IntArray],
) -> IntArray:
    """Return ``(n,)``: the first candidate that is usable there and not in ``taken``."""
    considered: list[int] = []
    where: list[IntArray] = []
    spare = len(taken)  # volumes usable on all nodes that earlier claims may have taken
    for index in candidates:
        rows = reach.of_volume(volumes[index])
        considered.append(index)
        where.append(rows)
        if len(rows) == len(reach.everywhere):
            if not spare:
                break  # every node has a candidate by now
            spare -= 1
    choice = np.full(len(reach.everywhere), NONE, np.int64)
    if considered:
        rows = np.concatenate(where)
        chosen = np.repeat(np.array(considered), [len(part) for part in where])
        for earlier in taken:
            free = earlier[rows] != chosen
            rows, chosen = rows[free], chosen[free]
        choice[rows[::-1]] = chosen[::-1]  # in reverse, so that the best candidate is written last
    return choice
