"""Holds that pods of one class may use, and their restore while nodes are evaluated for such pods.

A restored hold is taken out of the sums of the state, so that its room counts as free.  Nothing is
logged, because the state is the same again after the restore is undone.  Callers evaluate the nodes
for a pod within ``restoring``.

Source: koordinator pkg/scheduler/plugins/reservation/transformer.go (RestoreReservation).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import Allocation, TakenDevice
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.snapshot.holds import Hold
from koordinator.scheduler.snapshot.state import ClusterState

_FENCE = "not reserved"  # in the place of a pod's key, which has a slash


class RestorableHolds:
    """Holds by slot and row.  Kept with a class of pods by the plugin that matches them."""

    def __init__(self) -> None:
        self.by_slot: dict[int, Hold] = {}
        self.on_row: dict[int, dict[int, Hold]] = {}  # no empty rows

    def __len__(self) -> int:
        return len(self.by_slot)

    def add(self, hold: Hold) -> None:
        """Take a hold in, on the row where it is now."""
        self.by_slot[hold.slot] = hold
        self.on_row.setdefault(hold.row, {})[hold.slot] = hold

    def discard(self, slot: int) -> None:
        """Remove the hold of a slot, if it is here; it may have moved since."""
        hold = self.by_slot.pop(slot, None)
        if hold is None:
            return
        holds = self.on_row[hold.row]
        del holds[slot]
        if not holds:
            del self.on_row[hold.row]

    def at(self, row: int) -> Iterable[Hold]:
        """Return the holds on one row of the cluster."""
        return self.on_row.get(row, {}).values()

    def among(self, rows: IntArray | None) -> list[Hold]:
        """Return the holds on some rows of the cluster, or on all (None)."""
        if rows is None or len(rows) > len(self.on_row):
            wanted = None if rows is None else set(rows.tolist())
            return [
                hold
                for row, holds in self.on_row.items()
                if wanted is None or row in wanted
                for hold in holds.values()
            ]
        different = dict.fromkeys(rows.tolist())
        return [hold for row in different for hold in self.at(row)]


@contextmanager
def restoring(state: ClusterState, holds: Iterable[Hold]) -> Iterator[None]:
    """Restore some holds; those that are restored already are left unchanged."""
    restored = [hold for hold in holds if not hold.restored]
    for hold in restored:
        state.restore(hold)
    try:
        yield
    finally:
        for hold in restored:
            state.undo_restore(hold)


@contextmanager
def restoring_only(
    state: ClusterState,
    row: int,
    holds: Iterable[Hold],
    restorable: RestorableHolds | None,
    *,
    restricted: bool = False,
) -> Iterator[None]:
    """Restore these holds of a row and no others; undo other restores of the row meanwhile.

    ``restricted``: devices of the kinds that the holds contain are available from the holds alone,
    and so are CPUs and amounts of NUMA nodes if the holds contain them.
    """
    free = list(holds)
    wanted = {hold.slot for hold in free}
    row_holds = {hold.slot: hold for hold in state.holds.on_row.get(row, {}).values()}
    row_holds |= {hold.slot: hold for hold in restorable.at(row)} if restorable is not None else {}
    back = [hold for hold in row_holds.values() if hold.restored and hold.slot not in wanted]
    for hold in back:
        state.undo_restore(hold)
    try:
        with restoring(state, free), _fenced(state, free if restricted else ()):
            yield
    finally:
        for hold in back:
            state.restore(hold)


@contextmanager
def _fenced(state: ClusterState, holds: Iterable[Hold]) -> Iterator[None]:
    """Charge the row of each hold with the free amounts outside the hold."""
    fences = []
    for hold in holds:
        fence = _devices_beside(state, hold), _numa_beside(state, hold)
        _charge(state, hold.row, fence, 1)
        fences.append((hold.row, fence))
    try:
        yield
    finally:
        for row, fence in reversed(fences):
            _charge(state, row, fence, -1)


_Fence = tuple[Allocation, NumaAllocation | None]


def _charge(state: ClusterState, row: int, fence: _Fence, sign: int) -> None:
    devices, numa = fence
    state.nodes.devices.charge(row, devices, sign)
    if numa is not None:
        state.nodes.numa.charge(row, _FENCE, numa, sign)


def _devices_beside(state: ClusterState, hold: Hold) -> Allocation:
    beside: dict[DeviceType, tuple[TakenDevice, ...]] = {}
    for kind in hold.placed.pod_allocation.devices:
        free = np.maximum(state.nodes.devices.columns[kind].left[hold.row], 0)
        for device in hold.left.devices.get(kind, ()):
            free[device.minor] = np.maximum(free[device.minor] - np.array(device.amounts), 0)
        beside[kind] = tuple(
            TakenDevice(minor, tuple(amounts))
            for minor, amounts in enumerate(free.tolist())
            if any(amounts)
        )
    return beside


def _numa_beside(state: ClusterState, hold: Hold) -> NumaAllocation | None:
    allocation = hold.placed.pod_allocation.numa
    if allocation is None:
        return None
    node, left = state.nodes.numa.node(hold.row, pack=False), hold.left.numa or NumaAllocation()
    cpus = 0
    if allocation.cpus and node.layout is not None:
        cpus = node.layout.cpus & ~left.cpus & ~node.ledger.cpus.in_use
    names = {name for amounts in allocation.zones.values() for name in amounts}
    zones = {
        zone: {
            name: rest
            for name, amount in amounts.items()
            if name in names and (rest := amount - left.zones.get(zone, {}).get(name, 0)) > 0
        }
        for zone, amounts in node.available({}).items()
    }
    return NumaAllocation(cpus, {zone: amounts for zone, amounts in zones.items() if amounts})
