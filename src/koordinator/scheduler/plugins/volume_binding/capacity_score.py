"""How full the volumes of a pod would be: by a curve, averaged over their storage classes.

Where existing volumes are taken only those count, elsewhere the places where new ones would be
made.

Source: kubernetes pkg/scheduler/framework/plugins/volumebinding: volume_binding.go ``Score``,
scorer.go.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from koordinator.domain.pod_requests import bounded
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.plugins.volume_binding.matches import NONE
from koordinator.scheduler.plugins.volume_binding.outcome import VolumeOutcome
from koordinator.scheduler.rules.curves import Curve
from koordinator.scheduler.rules.volumes.volume_claims import (
    STORAGE,
    capacity,
    requested,
    storage_class_name,
)


@dataclass(slots=True)
class Filling:
    """Bytes of one storage class, ``(n,)`` each."""

    requested: IntArray
    capacity: IntArray


def score(outcome: VolumeOutcome, curve: Curve) -> IntArray:
    """Return ``(n,)``: the mean over storage classes, rounded; 0 where nothing is known."""
    rows = len(outcome.rejections.codes)
    total, classes = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for filling in _fillings(outcome, rows):
        counted = filling.capacity > 0
        total += counted * curve(filling.requested, filling.capacity)
        classes += counted
    return np.floor(total / np.maximum(classes, 1) + 0.5).astype(np.int64)


def _fillings(outcome: VolumeOutcome, rows: int) -> list[Filling]:
    by_class: defaultdict[str, Filling] = defaultdict(
        lambda: Filling(np.zeros(rows, np.int64), np.zeros(rows, np.int64))
    )
    matches = outcome.matches
    sizes = np.array([bounded(STORAGE, capacity(volume)) for volume in matches.volumes], np.int64)
    matched = np.zeros(rows, bool)
    for match in matches.matches:
        here = match.choice != NONE
        filling = by_class[storage_class_name(match.claim)]
        filling.requested[here] += bounded(STORAGE, requested(match.claim))
        filling.capacity[here] += sizes[match.choice[here]]
        matched |= here
    for provision in outcome.provisions:
        here = provision.needed & ~matched & (provision.headroom.capacity > 0)
        filling = by_class[storage_class_name(provision.claim)]
        filling.requested[here] += bounded(STORAGE, requested(provision.claim))
        filling.capacity[here] = provision.headroom.capacity[here]
    return list(by_class.values())
