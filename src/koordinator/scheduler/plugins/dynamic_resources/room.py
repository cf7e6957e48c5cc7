"""Room on nodes for the resources that devices of claims take of them.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/
nodeallocatabledynamicresources.go ``calculateAndCheckNodeAllocatableResources``,
``validateNodeAllocatableDRAClaimSharing``, ``nodeFitsResources``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field

import numpy as np

from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.pod import NodeAllocatableResourceClaimStatus
from koordinator.domain.dynamic_resources.allocation import is_reserved_for
from koordinator.domain.dynamic_resources.allocator import (
    AllocatorGates,
    NodeAllocation,
    NotAllocatable,
)
from koordinator.domain.dynamic_resources.extended_resources import UNNAMED
from koordinator.domain.dynamic_resources.node_amounts import (
    Statuses,
    amounts_of_claim,
    checked_requests,
    claim_statuses,
    consumed_capacity_of,
    is_mapped,
    uncovered,
)
from koordinator.domain.dynamic_resources.requests import AllocationError
from koordinator.domain.pod_requests import Requests, claimed_amounts
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.diagnosis import amount_text
from koordinator.scheduler.plugins.dynamic_resources.claims import PodDeviceClaims
from koordinator.scheduler.plugins.dynamic_resources.device_ledger import DeviceLedger
from koordinator.scheduler.plugins.dynamic_resources.verdicts import (
    SHORT,
    TOO_SMALL,
    ClaimAmounts,
    ClaimVerdicts,
    node_amounts,
    verdict_table,
)
from koordinator.scheduler.snapshot import PodClass, Snapshot

_SHARED = "node allocatable resource claim {} has a mapped device and cannot be shared across pods"
#: The API server accepts such amounts for claims that the pod references only.
_UNREFERENCED = (
    "devices for extended resources take resources of the node, which needs a ResourceClaim that "
    "the pod references"
)


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """Requests of a pod together with its claims, or the problem that no node can serve them."""

    statuses: Statuses = ()
    requests: Requests = field(default_factory=dict)
    problem: str = ""


class _NodeRequests:
    """Requests of a pod on its node, computed from the devices of its pending claims there."""

    def __init__(self, ledger: DeviceLedger, pod: PodClass, claims: PodDeviceClaims) -> None:
        self._pod, self._claims = pod, claims
        self._allocated: dict[str, NodeAllocatableResourceClaimStatus] = {}
        self._problem = ""
        for claim, consumer in zip(claims.claims, claims.consumers, strict=True):
            if claim.status.allocation is not None and not self._problem:
                self._problem = self._add_allocated(ledger, claim, consumer.uid)

    def _add_allocated(self, ledger: DeviceLedger, claim: ResourceClaim, consumer: str) -> str:
        """Add the amounts of an allocated claim; return why the pod cannot use it, if it cannot."""
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        allocated = [(ledger.device((one.driver, one.pool, one.device)), one) for one in results]
        offered = [(device.spec, result) for device, result in allocated if device is not None]
        if not any(spec.node_allocatable_resources for spec, _ in offered):
            return ""
        is_shared = bool(claim.status.reserved_for) and not is_reserved_for(claim, consumer)
        if is_shared and any(is_mapped(spec) for spec, _ in offered):
            return _SHARED.format(claim.metadata.name)
        lost = next((result for device, result in allocated if device is None), None)
        if lost is not None:
            return (
                f"claim {claim.key}, device {lost.device}, driver {lost.driver}: device "
                f"{lost.device} not found in pool {lost.pool} for driver {lost.driver}"
            )
        devices = [(spec, consumed_capacity_of(result)) for spec, result in offered]
        try:
            amounts = amounts_of_claim(claim.key, devices)
        except AllocationError as fault:
            return str(fault)
        if amounts is not None:
            self._allocated[claim.metadata.name] = amounts
        return ""

    def with_pending(self, taken: ClaimAmounts) -> NodeRequest | None:
        """Return the request if the pending claims take these amounts; None: no claim takes any."""
        if self._problem:
            return NodeRequest(problem=self._problem)
        amounts = dict(self._allocated)
        for pending, each in zip(self._claims.pending, taken, strict=False):
            if each is not None:
                amounts[pending.key.partition("/")[2]] = each
        if UNNAMED in amounts:
            return NodeRequest(problem=_UNREFERENCED)
        if not amounts:
            return None
        spec = self._pod.spec
        statuses = claim_statuses(spec, self._pod.claims_made, amounts)
        problem = uncovered(spec, statuses)
        return NodeRequest(statuses, checked_requests(spec, statuses), problem)


@dataclass(frozen=True, slots=True)
class RoomCandidates:
    """Rows of the cluster, the claims that a pod has there, and the verdicts of pending ones."""

    rows: BoolArray | slice
    claims: PodDeviceClaims
    verdicts: ClaimVerdicts | None = None


def judge_room(
    cluster: Snapshot,
    pod: PodClass,
    judged: Iterable[RoomCandidates],
    codes: IntArray,
    gates: AllocatorGates,
) -> None:
    """Set the codes ``(n,)`` of accepted rows with too little room for what claims take of them."""
    ledger = verdict_table(cluster, gates).devices
    for each in judged:
        accepted = np.zeros(len(codes), bool)
        accepted[each.rows] = codes[each.rows] == 0
        rows, verdicts = np.flatnonzero(accepted), each.verdicts
        taken = np.zeros(len(rows), np.int64) if verdicts is None else verdicts.taken[rows]
        requests = _NodeRequests(ledger, pod, each.claims)
        for number in np.unique(taken).tolist():
            amounts = () if verdicts is None else verdicts.amounts[number]
            those = rows[taken == number]
            codes[those] = _room_codes(cluster, those, requests.with_pending(amounts))


def _room_codes(cluster: Snapshot, rows: IntArray, request: NodeRequest | None) -> IntArray:
    """Return ``(k,)`` reject codes of rows for one request."""
    codes = np.zeros(len(rows), np.int64)
    if request is None:
        return codes
    if request.problem:
        return codes + TOO_SMALL
    for name, amount in request.requests.items():
        capacity, free = _room(cluster, rows, name)
        codes = np.maximum(codes, SHORT * (amount > free))
        codes = np.maximum(codes, TOO_SMALL * (amount > capacity))
    return codes


def node_request(
    view: Snapshot, pod: PodClass, claims: PodDeviceClaims, gates: AllocatorGates
) -> tuple[NodeAllocation | NotAllocatable, NodeRequest | None]:
    """Return the allocation on the only row of a view, and the pod's request to it.

    The request is None if no claim takes any resource of the node.
    """
    table, row = verdict_table(view, gates), int(view.names[0][0])
    allocation = table.allocation(claims.pending, row, claims.avoids)
    if not gates.node_amounts:
        return allocation, None
    amounts = node_amounts(claims.pending, allocation, gates)
    if isinstance(amounts, NotAllocatable):
        return amounts, None
    return allocation, _NodeRequests(table.devices, pod, claims).with_pending(amounts)


def room_problems(view: Snapshot, request: NodeRequest | None) -> list[str]:
    """Return why the only row of a view cannot serve a request; empty if it can."""
    if request is None:
        return []
    if request.problem:
        return [request.problem]
    return [f"Insufficient {name}" for name, *_ in _shortfalls(view, request)]


def room_detail(view: Snapshot, request: NodeRequest | None) -> str:
    """Return the amounts of the claims on the only row of a view, and its shortage."""
    if request is None or request.problem:
        return "" if request is None else request.problem
    claimed = claimed_amounts(request.statuses)
    return "; ".join(
        f"{name}: requests {amount_text(name, amount)}, "
        f"{amount_text(name, claimed.get(name, 0))} of it by claims, "
        f"{amount_text(name, free)} of {amount_text(name, capacity)} free"
        for name, amount, free, capacity in _shortfalls(view, request)
    )


def _shortfalls(view: Snapshot, request: NodeRequest) -> Iterator[tuple[str, int, int, int]]:
    """Yield each resource the only row is short of: name, request, free, allocatable."""
    only = np.array([0])
    for name, amount in request.requests.items():
        capacity, free = _room(view, only, name)
        if amount > free[0]:
            yield name, amount, max(int(free[0]), 0), int(capacity[0])


def _room(view: Snapshot, rows: IntArray, name: str) -> tuple[IntArray, IntArray]:
    """Return the allocatable and the free amounts of a resource on rows, ``(k,)`` each."""
    names = view.resources
    if name not in names:
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    column = names.index(name)
    capacity = view.allocatable[rows, column]
    return capacity, capacity - view.requested[rows, column]
