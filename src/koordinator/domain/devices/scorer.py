"""Utilization score of a device, or of all devices of a node, with one more request.

Source: koordinator pkg/scheduler/plugins/deviceshare/scoring.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.api.device import DeviceType
from koordinator.domain.devices.amounts import NAMES, Amounts
from koordinator.domain.devices.choice import Ranking
from koordinator.domain.devices.free_devices import FreeDevices
from koordinator.domain.devices.parts import DevicePart
from koordinator.domain.devices.row_kernels import MAX_SCORE
from koordinator.foundation.arrays import IntArray

DeviceRows = Sequence[Sequence[int]]  # (n, n_amounts)


@dataclass(frozen=True, slots=True)
class Scorer:
    """Score that prefers free devices, or full ones with ``most_allocated``."""

    most_allocated: bool
    weights: Mapping[DeviceType, IntArray]  # (n_amounts,)
    counted: Mapping[DeviceType, tuple[tuple[int, int], ...]]  # (index, weight) of non-zero weights

    def scores(
        self, kind: DeviceType, amounts: Amounts, total: DeviceRows, free: DeviceRows
    ) -> list[int]:
        """Return 0..100 for each of n devices, or nodes by the sums of their devices.

        Equals ``row_kernels.percentages_left``: amounts with a total of 0 are ignored, and a device
        with more free than its total counts as full.
        """
        counted = [(place, weight, amounts[place]) for place, weight in self.counted[kind]]
        return [self._score(counted, *device) for device in zip(total, free, strict=True)]

    def _score(
        self, counted: Sequence[tuple[int, int, int]], total: Sequence[int], free: Sequence[int]
    ) -> int:
        points = weights = 0
        for place, weight, requested in counted:
            capacity, left = total[place], free[place]
            if capacity > 0:
                used = capacity - left + requested if left <= capacity else capacity
                part = min(used, capacity) if self.most_allocated else max(capacity - used, 0)
                points += part * MAX_SCORE // capacity * weight
                weights += weight
        return points // weights if weights > 0 else 0

    def ranking(
        self, totals: Mapping[DeviceType, IntArray], headrooms: Mapping[DeviceType, FreeDevices]
    ) -> Ranking:
        """Return a ranking of the devices of one node."""

        def rank(part: DevicePart, minors: Sequence[int], *, in_scopes: bool) -> Sequence[int]:
            everything, left = totals[part.kind].tolist(), headrooms[part.kind].free
            total, free = [everything[m] for m in minors], [left[m] for m in minors]
            if in_scopes:  # the original swaps the two arguments
                total, free = free, total
            return self.scores(part.kind, part.amounts, total, free)

        return rank


def scorer_of(weights: Mapping[str, int], *, most_allocated: bool) -> Scorer:
    """Return a scorer with weights by resource name; other resources are ignored."""
    by_place = {kind: [weights.get(name, 0) for name in names] for kind, names in NAMES.items()}
    return Scorer(
        most_allocated,
        {kind: np.array(listed, np.int64) for kind, listed in by_place.items()},
        {
            kind: tuple((place, weight) for place, weight in enumerate(listed) if weight)
            for kind, listed in by_place.items()
        },
    )
