"""Which rows can serve claims of one kind; kept, and brought up to date row by row.

Claims that ask for the same are of one kind, be they of different pods: those made of one template.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from koordinator.api.codec import encode_part
from koordinator.domain.dynamic_resources.allocator import (
    CANNOT_ALLOCATE,
    INVALID_POOLS,
    TIMED_OUT,
    AllocatorGates,
    NodeAllocation,
    NotAllocatable,
    allocate,
)
from koordinator.domain.dynamic_resources.requests import PendingClaim
from koordinator.scheduler.plugins.dynamic_resources.device_ledger import DeviceLedger
from koordinator.scheduler.snapshot import Changed, ClusterState, IntArray, Snapshot

NOT_AVAILABLE = "resourceclaim not available on the node"
REASONS = (CANNOT_ALLOCATE, INVALID_POOLS, TIMED_OUT, NOT_AVAILABLE)
_BITS = {reason: 1 << bit for bit, reason in enumerate(REASONS)}
ELSEWHERE = _BITS[NOT_AVAILABLE]
FAULT = 1 << len(REASONS)  # another reason, of the row alone
KEPT = 64  # kinds of claims; bounds memory


@dataclass(slots=True)
class ClaimVerdicts:
    """For one kind of claims, by row."""

    codes: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    scores: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    seen: int = -1  # the last change of the ledger that has been looked at

    def refresh(
        self, ledger: DeviceLedger, claims: Sequence[PendingClaim], rows: int, without: str
    ) -> None:
        """Look again at the rows that have changed."""
        if len(self.codes) < rows:
            more = (0, rows - len(self.codes))
            self.codes, self.scores = np.pad(self.codes, more), np.pad(self.scores, more)
        stale = np.flatnonzero(ledger.changed_at[:rows] > self.seen)
        alike: dict[Hashable, tuple[int, int]] = {}
        for row in stale.tolist():
            pools = ledger.pools(row, without)
            seen = tuple(id(part) for pool in pools for part in pool.slices)
            verdict = alike.get(seen)
            if verdict is None:
                verdict = alike[seen] = _verdict(allocate(pools, claims, ledger.use, ledger.gates))
            self.codes[row], self.scores[row] = verdict
        self.seen = ledger.changes


def _verdict(found: NodeAllocation | NotAllocatable) -> tuple[int, int]:
    if isinstance(found, NodeAllocation):
        return 0, found.score
    return (FAULT if found.is_fault else _BITS[found.reason]), 0


class VerdictTable:
    """What is offered and allocated, and the verdicts of the kinds of claims asked about last.

    A ledger of ``ClusterState``.
    """

    kinds: ClassVar = DeviceLedger.kinds

    def __init__(self, gates: AllocatorGates) -> None:
        self.devices = DeviceLedger(gates)
        self._by_kind: dict[Hashable, ClaimVerdicts] = {}

    def catch_up(self, state: ClusterState, changed: Changed) -> None:
        """Take in what changed since the last time."""
        self.devices.catch_up(state, changed)

    def of_claims(
        self, claims: Sequence[PendingClaim], rows: int, without: str = ""
    ) -> ClaimVerdicts:
        """Return the verdicts as things are now, for so many rows; without a driver's devices."""
        kind = without, self.devices.classes, tuple(encode_part(claim.spec) for claim in claims)
        known = self._by_kind.pop(kind, None) or ClaimVerdicts()
        if len(self._by_kind) >= KEPT:
            del self._by_kind[next(iter(self._by_kind))]  # the one not asked about for longest
        self._by_kind[kind] = known
        known.refresh(self.devices, claims, rows, without)
        return known


def verdict_table(snapshot: Snapshot, gates: AllocatorGates) -> VerdictTable:
    """Return the table as things are now."""
    return snapshot.ledger((VerdictTable, gates), lambda: VerdictTable(gates))
