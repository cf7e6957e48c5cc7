"""Devices that a request gets on a row, cached for rows in the same state."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import Allocation, DeviceShortage
from koordinator.domain.devices.choice import Ranking
from koordinator.domain.devices.free_devices import FreeDevices
from koordinator.domain.devices.plan import DevicePlan
from koordinator.domain.devices.pod_request import DevicePart
from koordinator.domain.devices.scorer import Scorer
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.masks import zones_of
from koordinator.foundation.memo import Memo
from koordinator.scheduler.plugins.device_share.on_model import KEEP, RequestOnModel
from koordinator.scheduler.plugins.device_share.requests import RequestEntry
from koordinator.scheduler.snapshot import DeviceTable, Snapshot

First = Mapping[DeviceType, frozenset[int]]  # minors to allocate before others
NOT_KEPT: Final[First] = MappingProxyType({})

_HEADROOMS: Memo[dict[DeviceType, FreeDevices]] = Memo()


class DeviceRow(NamedTuple):
    """Devices of one row with a report."""

    devices: DeviceTable
    row: int
    known: dict[DeviceType, FreeDevices]  # headrooms that were read, by type

    @classmethod
    def of(cls, node: Snapshot) -> "DeviceRow":
        """Return the devices of the only row of a view."""
        known = _HEADROOMS.as_of(node, node.usage_version, dict)
        return cls(node.devices, int(node.row_numbers[0]), known)

    def on_model(self, entry: RequestEntry) -> RequestOnModel:
        """Return the cached evaluation of a request on nodes of the model of the row."""
        return entry.on(self.devices, int(self.devices.model[self.row]))

    def headrooms(self, plan: DevicePlan) -> dict[DeviceType, FreeDevices]:
        """Return the free devices of the requested types."""
        for want in plan.pod_request.wants:
            if want.kind not in self.known:
                self.known[want.kind] = self.devices.headroom(self.row, want.kind)
        return {want.kind: self.known[want.kind] for want in plan.pod_request.wants}


def known_allocation(
    place: DeviceRow, entry: RequestEntry, scorer: Scorer, zones: int = 0, first: First = NOT_KEPT
) -> Allocation | DeviceShortage:
    """Return the result of ``allocation_of``, cached for rows in the same state."""
    devices, row = place.devices, place.row
    key = zones, devices.standing(row, place.on_model(entry).requested), frozenset(first.items())
    ranked = entry.ranked.get(key)
    if ranked is not None:
        known = entry.got.get((key, devices.amounts(row, ranked)))
        if known is not None:
            return known
    now = set(ranked or ())
    result = allocation_of(place, entry, scorer, zones, first, ranked=now)
    if len(entry.got) >= KEEP:
        entry.ranked.clear()
        entry.got.clear()
    ranked = entry.ranked[key] = tuple(sorted(now))
    entry.got[key, devices.amounts(row, ranked)] = result
    return result


def allocation_of(
    place: DeviceRow,
    entry: RequestEntry,
    scorer: Scorer,
    zones: int,
    first: First,
    *,
    ranked: set[DeviceType],
    preference: IntArray | None = None,
) -> Allocation | DeviceShortage:
    """Return the devices that a request gets on a row; record the types in ``ranked``.

    ``zones`` is a mask of NUMA nodes, 0 for all.  ``preference`` ranks the GPUs.
    """
    plan, totals = place.on_model(entry).plan, place.devices.reports[place.row].totals
    headrooms, numa = place.headrooms(plan), zones_of(zones) if zones else None
    ranking, gpu = _noting(scorer.ranking(totals, headrooms), ranked), entry.pod_request.gpu
    if preference is not None and gpu is not None:
        ranking = _as_preferred(ranking, preference)
        if gpu.is_share and gpu.count == 1:
            only_best = _only_preferred(plan, headrooms, preference)
            allocation = plan.allocate(
                only_best, totals, ranking=ranking, numa=numa, preferred=first
            )
            if not isinstance(allocation, DeviceShortage):
                return allocation
    return plan.allocate(headrooms, totals, ranking=ranking, numa=numa, preferred=first)


def _noting(ranking: Ranking, ranked: set[DeviceType]) -> Ranking:
    """Return a ranking that records the types whose devices it ranks."""

    def rank(part: DevicePart, minors: Sequence[int], *, in_scopes: bool) -> Sequence[int]:
        ranked.add(part.kind)
        return ranking(part, minors, in_scopes=in_scopes)

    return rank


def _as_preferred(ranking: Ranking, preference: IntArray) -> Ranking:
    """Return a ranking in which GPUs follow the preference."""

    def rank(part: DevicePart, minors: Sequence[int], *, in_scopes: bool) -> Sequence[int]:
        if part.kind is DeviceType.GPU:
            ranked: list[int] = preference[minors].tolist()
            return ranked
        return ranking(part, minors, in_scopes=in_scopes)

    return rank


def _only_preferred(
    plan: DevicePlan, headrooms: dict[DeviceType, FreeDevices], preference: IntArray
) -> dict[DeviceType, FreeDevices]:
    """Return the free devices, limited to the preferred GPU among the fitting ones."""
    headroom = headrooms.get(DeviceType.GPU)
    part = next((part for part in plan.early if part.kind is DeviceType.GPU), None)
    if headroom is None or part is None:
        return headrooms
    fitting = headroom.fitting(part) & part.selected
    minors = [minor for minor in range(len(preference)) if fitting >> minor & 1]
    if not minors:
        return headrooms
    best = max(minors, key=lambda minor: (preference[minor], -minor))
    only = FreeDevices(
        headroom.free, 1 << best, headroom.in_use, headroom.used & 1 << best, headroom.functions
    )
    return {**headrooms, DeviceType.GPU: only}
