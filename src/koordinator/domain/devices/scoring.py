"""How full a device, or all devices of a node, would be with one more request.

Source: koordinator pkg/scheduler/plugins/deviceshare/scoring.go.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.api.device import DeviceType
from koordinator.domain.devices.amounts import NAMES, Amounts, IntArray
from koordinator.domain.devices.choice import Ranking
from koordinator.domain.devices.masks import minors_of
from koordinator.domain.devices.parts import Part
from koordinator.domain.devices.room import Room
from koordinator.domain.devices.row_kernels import percentages_left


@dataclass(frozen=True, slots=True)
class Scorer:
    """Likes free devices, or full ones if ``most_allocated``."""

    most_allocated: bool
    weights: Mapping[DeviceType, IntArray]  # (n_amounts,)

    def scores(
        self, kind: DeviceType, amounts: Amounts, total: IntArray, free: IntArray
    ) -> IntArray:
        """Return 0..100 for each of n devices, or nodes by the sums of their devices.

        ``total`` and ``free`` are ``(n, n_amounts)``.  Amounts of which there are none in
        total don't count; what is left over of a device that has more free than in total
        does not either.
        """
        return percentages_left(
            total, free, np.array(amounts, np.int64), self.weights[kind], self.most_allocated
        )

    def node_score(
        self,
        parts: Iterable[Part],
        totals: Mapping[DeviceType, IntArray],
        rooms: Mapping[DeviceType, Room],
        numa: Collection[int] | None = None,
    ) -> int:
        """Return the sum over the parts of a claim of 0..100 for all devices that may serve.

        As in the original a part counts with the request for one of its devices.
        """
        score = 0
        for part in parts:
            room = rooms[part.kind]
            rows = list(minors_of(part.candidates(room.offered, numa)))
            total = totals[part.kind][rows].sum(axis=0, keepdims=True)
            free = room.free[rows].sum(axis=0, keepdims=True)
            score += int(self.scores(part.kind, part.amounts, total, free)[0])
        return score

    def ranking(
        self, totals: Mapping[DeviceType, IntArray], rooms: Mapping[DeviceType, Room]
    ) -> Ranking:
        """Return how to rank the devices of one node."""

        def rank(part: Part, *, in_scopes: bool) -> Sequence[int]:
            total, free = totals[part.kind], rooms[part.kind].free
            if in_scopes:  # the original hands them over in the wrong order
                total, free = free, total
            ranked: list[int] = self.scores(part.kind, part.amounts, total, free).tolist()
            return ranked

        return rank


def scorer_of(weights: Mapping[str, int], *, most_allocated: bool) -> Scorer:
    """Return the scorer that weighs resources by name; others don't count."""
    return Scorer(
        most_allocated,
        {
            kind: np.array([weights.get(name, 0) for name in names], np.int64)
            for kind, names in NAMES.items()
        },
    )
