"""Scores of devices, for one node and for the rows of many.

Shapes: ``total`` and ``left`` are ``(capacity, n_minors, n_amounts)``, ``left`` negative where more
is used than exists. ``holders`` and ``functions`` are ``(capacity, n_minors)``: the number of pods
that use a device, the number of its used virtual functions. ``asked`` and ``weights`` have an entry
per amount, ``serving`` and ``enough`` one per minor of the model.

Source: koordinator pkg/scheduler/plugins/deviceshare/scoring.go, ``scoreNode``, ``scoreDevice``;
koordinator pkg/scheduler/plugins/deviceshare/scoring.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import NAMES, DeviceAmounts
from koordinator.domain.devices.choice import Ranking
from koordinator.domain.devices.free_devices import FreeDevices
from koordinator.domain.devices.pod_request import DevicePart
from koordinator.foundation.arrays import IntArray, Kernel
from koordinator.foundation.lazy_dataclass import dataclass

MOST_BITS: Final = 62  # usable bits of an integer in the loops
SELECTED: Final = 1 << MOST_BITS  # in ``serving``: the device is a candidate
ANYWHERE: Final = (1 << MOST_BITS) - 1 | SELECTED  # a candidate on any NUMA node
MAX_SCORE: Final = 100


def percentages_left(
    total: IntArray, free: IntArray, request: IntArray, weights: IntArray, most: bool
) -> IntArray:
    """Return ``(n,)`` scores of devices, or of nodes by the sums of their devices.

    ``total`` and ``free`` are ``(n, n_amounts)`` here.
    """
    used = np.where(total >= free, total - free + request, total)
    part = np.minimum(used, total) if most else np.maximum(total - used, 0)
    each = part * MAX_SCORE // np.maximum(total, 1)
    counted = weights * (total > 0)
    scores: IntArray = (each * counted).sum(axis=1) // np.maximum(counted.sum(axis=1), 1)
    return scores


def _judge_devices(  # noqa: PLR0917 (numba takes no keywords)
    total: IntArray,
    left: IntArray,
    holders: IntArray,
    functions: IntArray,
    rows: IntArray,
    zones: IntArray,
    request: IntArray,
    enough: IntArray,
    serving: IntArray,
    weights: IntArray,
    most: bool,
    shift: int,
    out: IntArray,
) -> None:
    width = len(enough)
    row_left = left[rows, :width]
    if shift >= 0:
        bits = 1 << np.arange(width)
        fits = np.logical_and.reduce(row_left >= request, axis=2) & (enough > 0)
        used = holders[rows, :width] > 0
        unsure = (fits & (functions[rows, :width] >= enough)).any(axis=1)
        out[0] |= (fits @ bits | (used @ bits) << width) << shift
        out[1] += unsure
    near = (zones == 0)[:, None] | (serving & zones[:, None] > 0)
    may = (near & (serving & SELECTED > 0))[:, :, None]
    totals = (total[rows, :width] * may).sum(axis=1)
    free = (np.maximum(row_left, 0) * may).sum(axis=1)
    out[2] += percentages_left(totals, free, request, weights, most)


def _judge_devices_loop(  # noqa: C901, PLR0912, PLR0917 (one loop for numba)
    total: IntArray,
    left: IntArray,
    holders: IntArray,
    functions: IntArray,
    rows: IntArray,
    zones: IntArray,
    request: IntArray,
    enough: IntArray,
    serving: IntArray,
    weights: IntArray,
    most: bool,
    shift: int,
    out: IntArray,
) -> None:
    for i in range(len(rows)):
        row = rows[i]
        if shift >= 0:
            fit = used = unsure = 0
            for minor in range(len(enough)):
                fits = enough[minor] > 0
                for amount in range(len(request)):
                    if left[row, minor, amount] < request[amount]:
                        fits = False
                if fits:
                    fit |= 1 << minor
                    if functions[row, minor] >= enough[minor]:
                        unsure = 1
                if holders[row, minor] > 0:
                    used |= 1 << minor
            out[0, i] |= (fit | used << len(enough)) << shift
            out[1, i] += unsure
        near = zones[i]
        points = 0
        counted = 0
        for amount in range(len(request)):
            if weights[amount] == 0:
                continue
            capacity = 0
            free = 0
            for minor in range(len(serving)):
                may = serving[minor]
                if may & SELECTED and (near == 0 or may & near):
                    capacity += total[row, minor, amount]
                    free += max(left[row, minor, amount], 0)
            if capacity > 0:
                used_up = capacity - free + request[amount] if capacity >= free else capacity
                part = min(used_up, capacity) if most else max(capacity - used_up, 0)
                points += weights[amount] * (part * 100 // capacity)
                counted += weights[amount]
        if counted > 0:
            out[2, i] += points // counted


def _signature(types: Any) -> Any:
    amounts = types.Array(types.int64, 3, "C", readonly=True)
    table = types.Array(types.int64, 2, "C", readonly=True)
    vector = types.Array(types.int64, 1, "A", readonly=True)
    out = types.Array(types.int64, 2, "C")
    vectors = (vector,) * 6
    return amounts, amounts, table, table, *vectors, types.boolean, types.int64, out


#: Adds to ``out``, ``(3, k)``, for the devices of a type on each of ``rows``: (0) the masks of
#: devices with enough left and of devices in use, adjacent from bit ``shift`` on (-1: no masks);
#: (1) 1 if a device with enough left may have no matching virtual function left; (2) the score of
#: the candidates on the NUMA nodes in ``zones`` (0: on all nodes).
judge_devices = Kernel(_judge_devices, _judge_devices_loop, _signature)


DeviceRows = Sequence[Sequence[int]]  # (n, n_amounts)


@dataclass(frozen=True, slots=True)
class Scorer:
    """Score that prefers free devices, or full ones with ``most_allocated``."""

    most_allocated: bool
    weights: Mapping[DeviceType, IntArray]  # (n_amounts,)
    counted: Mapping[DeviceType, tuple[tuple[int, int], ...]]  # (index, weight) of non-zero weights

    def scores(
        self, kind: DeviceType, amounts: DeviceAmounts, total: DeviceRows, free: DeviceRows
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
