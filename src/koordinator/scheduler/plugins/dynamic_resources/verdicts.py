"""Verdicts by row for claims of one kind, refreshed row by row.

Claims with equal requests are of one kind, e.g. those created from one template.

Objects with which DynamicResources rejects and scores, for the suite of plugins.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field
from itertools import count
from typing import ClassVar

import numpy as np

from koordinator.api.codec import encode_part
from koordinator.api.pod import NodeAllocatableResourceClaimStatus
from koordinator.domain.dynamic_resources.allocation import shared_capacity
from koordinator.domain.dynamic_resources.allocator import (
    CANNOT_ALLOCATE,
    INVALID_POOLS,
    TIMED_OUT,
    AllocatorGates,
    NodeAllocation,
    NotAllocatable,
    allocate,
)
from koordinator.domain.dynamic_resources.node_amounts import amounts_of_claim
from koordinator.domain.dynamic_resources.requests import (
    AllocationError,
    PendingClaim,
    RequestOption,
)
from koordinator.domain.dynamic_resources.shapes import (
    AllocationPlaces,
    ShapeReader,
    SliceContents,
)
from koordinator.foundation.arrays import IntArray, extended
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import PluginExample
from koordinator.scheduler.plugins.dynamic_resources.device_ledger import DeviceLedger
from koordinator.scheduler.snapshot import ClusterState, LedgerChanges, Snapshot

NOT_AVAILABLE = "resourceclaim not available on the node"
NO_RESOURCE = "cannot fit resource"
LEFT_BEHIND = "cannot schedule extended resource claim"  # of an earlier attempt
REASONS = (
    CANNOT_ALLOCATE,
    INVALID_POOLS,
    TIMED_OUT,
    NOT_AVAILABLE,
    NO_RESOURCE,
    LEFT_BEHIND,
)
_BITS = {reason: 1 << bit for bit, reason in enumerate(REASONS)}
ELSEWHERE = _BITS[NOT_AVAILABLE]
UNSERVED, STALE = _BITS[NO_RESOURCE], _BITS[LEFT_BEHIND]
FAULT = 1 << len(REASONS)  # a reason specific to the row
BROKEN = FAULT << 1  # a selector fails to evaluate on the row
SHORT = BROKEN << 1  # the node has too little left of what the devices take of it
TOO_SMALL = SHORT << 1  # the same, whatever pods are removed
KEPT = 48  # kinds of claims; bounds memory
_SHIFT = 32  # bits of a usage number
KNOWN = 1 << 12  # shapes, or verdicts, per kind


#: Per claim, what its devices take of their node; empty: nothing at all.
ClaimAmounts = tuple[NodeAllocatableResourceClaimStatus | None, ...]

_DRIVER = "gpu.example.com"
EXAMPLE = PluginExample(
    pods=(
        {},
        *({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": n}]}} for n in "ab"),
    ),
    objects=(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{_DRIVER}"'}}]},
        },
        *(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "devices": {
                        "requests": [
                            {
                                "name": "r",
                                "firstAvailable": [
                                    {"name": "two", "deviceClassName": "gpu", "count": 2},
                                    {"name": "one", "deviceClassName": "gpu", "count": 1},
                                ],
                            }
                        ]
                    }
                },
            }
            for name in "ab"
        ),
        *(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": node},
                "spec": {
                    "driver": _DRIVER,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"gpu-{i}"} for i in range(count)],
                },
            }
            for node, count in (("n0", 1), ("n1", 2))
        ),
    ),
)


def node_amounts(
    claims: Sequence[PendingClaim],
    allocation: NodeAllocation | NotAllocatable,
    gates: AllocatorGates,
) -> ClaimAmounts | NotAllocatable:
    """Return the amounts that allocated devices take of their node, or why they are unknown."""
    if not gates.node_amounts or isinstance(allocation, NotAllocatable):
        return ()
    amounts = []
    for claim, devices in zip(claims, allocation.claims, strict=True):
        try:
            amounts.append(
                amounts_of_claim(
                    claim.key,
                    [(one.device.spec, shared_capacity(one, gates)) for one in devices],
                )
            )
        except AllocationError as fault:
            return NotAllocatable(str(fault), is_fault=True)
    return tuple(amounts) if any(amounts) else ()


@dataclass(slots=True)
class ClaimVerdicts:
    """Codes and scores of one kind of claims, by row."""

    contents: SliceContents
    codes: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    scores: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    #: ``(n,)``: number in ``amounts`` of what the devices take of the node
    taken: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    #: by number, the amounts of each claim; the first one is nothing
    amounts: list[ClaimAmounts] = field(default_factory=lambda: [()])
    seen: int = -1  # last change of the ledger that is applied
    shapes: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))  # by number
    shapes_seen: int = -1  # last change of offered devices that is applied
    _numbers: dict[Hashable, int] = field(default_factory=dict)  # of shapes
    #: verdicts by shape and usage, valid until the usage of shared devices changes
    _known: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    #: devices to take by shape and usage, valid as long as the verdicts
    _places: dict[int, AllocationPlaces] = field(default_factory=dict)
    _amount_numbers: dict[ClaimAmounts, int] = field(default_factory=lambda: {(): 0})
    _shared_at: int = -1  # last change of shared devices that is applied
    _reader: ShapeReader | None = None
    _next: Iterator[int] = field(default_factory=count)

    def refresh(
        self, ledger: DeviceLedger, claims: Sequence[PendingClaim], rows: int, without: str
    ) -> None:
        """Evaluate the changed rows; rows that are alike are evaluated once."""
        if self.seen == ledger.changes and len(self.codes) >= rows:
            return
        if len(self.codes) < rows:
            more = rows - len(self.codes)
            self.codes, self.scores = extended(self.codes, more), extended(self.scores, more)
            self.shapes, self.taken = extended(self.shapes, more), extended(self.taken, more)
        self._read_shapes(ledger, claims, rows, without)
        stale = np.flatnonzero(ledger.changed_at[:rows] > self.seen)
        if self._shared_at != ledger.shared_changes or len(self._known) > KNOWN:
            self._known.clear()
            self._places.clear()
            self._shared_at = ledger.shared_changes
        keys = self.shapes[stale] << _SHIFT | ledger.usages(stale)
        verdicts = [
            self._known.get(key) or self._find(key, row, ledger, claims, without)
            for key, row in zip(keys.tolist(), stale.tolist(), strict=True)
        ]
        if verdicts:
            self.codes[stale], self.scores[stale], self.taken[stale] = np.array(verdicts).T
        self.seen = ledger.changes

    def _find(
        self,
        key: int,
        row: int,
        ledger: DeviceLedger,
        claims: Sequence[PendingClaim],
        without: str,
    ) -> tuple[int, int, int]:
        """Return the verdict of a row, which holds for all rows of the key."""
        pools = ledger.pools(row, without)
        allocation = allocate(pools, claims, ledger.use, ledger.gates)
        if isinstance(allocation, NodeAllocation):
            self._places[key] = AllocationPlaces.of(allocation, claims, pools)
        amounts = node_amounts(claims, allocation, ledger.gates)
        if isinstance(amounts, NotAllocatable):
            allocation, amounts = amounts, ()
        number = self._amount_numbers.setdefault(amounts, len(self.amounts))
        if number == len(self.amounts):
            self.amounts.append(amounts)
        verdict = self._known[key] = (*verdict_of(allocation), number)
        return verdict

    def allocation(
        self, ledger: DeviceLedger, claims: Sequence[PendingClaim], row: int, without: str
    ) -> NodeAllocation | None:
        """Return the allocation that was found on a row that is alike; None if none is known."""
        if self.seen != ledger.changes or row >= len(self.shapes):
            return None
        key = int(self.shapes[row]) << _SHIFT | int(ledger.usages(np.array([row]))[0])
        places = self._places.get(key)
        return None if places is None else places.on(claims, ledger.pools(row, without))

    def _read_shapes(
        self, ledger: DeviceLedger, claims: Sequence[PendingClaim], rows: int, without: str
    ) -> None:
        stale = np.flatnonzero(ledger.offered_at[:rows] > self.shapes_seen)
        self.shapes_seen = ledger.changes
        if not len(stale):
            return
        if len(self._numbers) > KNOWN:
            self._numbers.clear()  # numbers are never reused
        reader = self._reader = self._reader or ShapeReader(claims, ledger.gates, self.contents)
        reader.begin()
        for row in stale.tolist():
            shape = reader.shape(ledger.pools(row, without))
            number = self._numbers.get(shape)
            if number is None:
                number = self._numbers[shape] = next(self._next)
            self.shapes[row] = number


@dataclass(slots=True)
class ClassCounts:
    """Number of devices of one class, by row."""

    offered: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    taken: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    seen: int = -1  # last change of the ledger that is applied

    def refresh(self, ledger: DeviceLedger, wanted: RequestOption, rows: int) -> None:
        """Count the devices of the changed rows."""
        if len(self.offered) < rows:
            more = rows - len(self.offered)
            self.offered, self.taken = extended(self.offered, more), extended(self.taken, more)
        for row in np.flatnonzero(ledger.changed_at[:rows] > self.seen).tolist():
            self.offered[row], self.taken[row] = _count_devices(ledger, wanted, row)
        self.seen = ledger.changes


def _count_devices(ledger: DeviceLedger, wanted: RequestOption, row: int) -> tuple[int, int]:
    """Return the number of selected devices in reach of a row, and of allocated ones.

    Return zeros if the selector fails to evaluate on one of them.
    """
    devices = [device for pool in ledger.pools(row) for device in pool.devices]
    try:
        selected = [device.id for device in devices if wanted.selects(device)]
    except AllocationError:
        return 0, 0
    return len(selected), sum(device in ledger.use.devices for device in selected)


def verdict_of(allocation: NodeAllocation | NotAllocatable) -> tuple[int, int]:
    """Return the code and the score of an allocation attempt."""
    if isinstance(allocation, NodeAllocation):
        return 0, allocation.score
    if allocation.is_broken:
        return BROKEN, 0
    return (FAULT if allocation.is_fault else _BITS[allocation.reason]), 0


class VerdictTable:
    """Device ledger with cached verdicts of the kinds of claims used last.

    It is a ledger of ``ClusterState``.
    """

    kinds: ClassVar = DeviceLedger.kinds

    def __init__(self, gates: AllocatorGates) -> None:
        self.devices = DeviceLedger(gates)
        self._contents = SliceContents()
        self._by_kind: dict[Hashable, ClaimVerdicts] = {}
        self._by_class: dict[str, ClassCounts] = {}
        self._counted_as_of = -1  # last change of DeviceClasses that is applied

    def catch_up(self, state: ClusterState, changed: LedgerChanges) -> None:
        """Apply the changes since the last call."""
        self.devices.catch_up(state, changed)

    def of_class(self, wanted: PendingClaim, rows: int) -> "ClassCounts":
        """Return the current counts of the devices of a claim's class."""
        name = wanted.requests[0].options[0].device_class.metadata.name
        if self._counted_as_of != self.devices.classes or len(self._by_class) >= KEPT:
            self._by_class.clear()
            self._counted_as_of = self.devices.classes
        counts = self._by_class.setdefault(name, ClassCounts())
        counts.refresh(self.devices, wanted.requests[0].options[0], rows)
        return counts

    def of_claims(
        self, claims: Sequence[PendingClaim], rows: int, without: str = ""
    ) -> ClaimVerdicts:
        """Return current verdicts for ``rows`` rows, without the devices of a driver."""
        kind = self._kind(claims, without)
        known = self._by_kind.pop(kind, None) or ClaimVerdicts(self._contents)
        if len(self._by_kind) >= KEPT:
            del self._by_kind[next(iter(self._by_kind))]  # least recently used
        self._by_kind[kind] = known
        known.refresh(self.devices, claims, rows, without)
        return known

    def allocation(
        self, claims: Sequence[PendingClaim], row: int, without: str = ""
    ) -> NodeAllocation | NotAllocatable:
        """Return the allocation on a row, without a search where an alike row has been judged."""
        ledger, kind = self.devices, self._by_kind.get(self._kind(claims, without))
        known = kind.allocation(ledger, claims, row, without) if kind is not None else None
        if known is not None:
            return known
        return allocate(ledger.pools(row, without), claims, ledger.use, ledger.gates)

    def _kind(self, claims: Sequence[PendingClaim], without: str) -> Hashable:
        return without, self.devices.classes, tuple(encode_part(claim.spec) for claim in claims)


def verdict_table(snapshot: Snapshot, gates: AllocatorGates) -> VerdictTable:
    """Return the current table of a snapshot."""
    return snapshot.ledger((VerdictTable, gates), lambda: VerdictTable(gates))
