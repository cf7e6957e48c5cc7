"""Extension points of DynamicResources.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from koordinator.api.dynamic_resources import (
    RESERVATIONS_MAX,
    ResourceClaim,
)
from koordinator.api.kube_version import V1_36, V1_37
from koordinator.api.kubescheduler import DynamicResourcesArgs, FeatureGates
from koordinator.api.kubescheduler.gates import (
    DRA_BINDING_CONDITIONS,
    DRA_CONSUMABLE_CAPACITY,
    DRA_DEVICE_TAINT_RULES,
    DRA_DEVICE_TAINTS,
    DRA_EXTENDED_RESOURCE,
    DRA_FRACTIONAL_RANGES,
    DRA_LIST_ATTRIBUTES,
    DRA_NODE_ALLOCATABLE,
    DRA_PARTITIONABLE_DEVICES,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodExtendedResourceClaimStatus
from koordinator.api.pod_groups import SchedulingPodGroup
from koordinator.domain.dynamic_resources.allocation import (
    allocation_of,
    claim_names,
    is_reserved_for,
    sharing_groups,
)
from koordinator.domain.dynamic_resources.allocator import (
    NO_GATES,
    AllocatorGates,
    NodeAllocation,
    NotAllocatable,
)
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.lazy_module import lazy_module
from koordinator.scheduler.contract import (
    Action,
    AllocationResult,
    EventHint,
    ObjectRemedy,
    Permit,
    PluginHints,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
    SizeRemedies,
    spread_of,
)
from koordinator.scheduler.plugins.dynamic_resources.changes import (
    TRIED,
    deletion,
    find_made_claim,
    freed_by_group,
    make_claim,
    release,
    reservation,
    too_many,
)
from koordinator.scheduler.plugins.dynamic_resources.claims import (
    EVENTS,
    PodDeviceClaims,
    conditional_drivers,
    delegations,
    forget_claims,
    on_claimed_amounts,
    one_of_class,
    read_claims,
    readiness,
    unserved,
    why_lost,
    why_not_ready,
    with_extended,
)
from koordinator.scheduler.plugins.dynamic_resources.messages import (
    device_problems,
    objects_to_create,
    unknown_attribute,
)
from koordinator.scheduler.plugins.dynamic_resources.room import (
    RoomCandidates,
    judge_room,
    node_request,
    room_detail,
    room_problems,
)
from koordinator.scheduler.plugins.dynamic_resources.verdicts import (
    BROKEN,
    ELSEWHERE,
    EXAMPLE,
    FAULT,
    LEFT_BEHIND,
    NOT_AVAILABLE,
    REASONS,
    SHORT,
    STALE,
    UNSERVED,
    verdict_table,
)
from koordinator.scheduler.post_filter import Attempt, PostFilterResult, WhatIf
from koordinator.scheduler.snapshot import (
    ObjectChange,
    ObjectTable,
    PodAllocation,
    PodClass,
    ResourceAxis,
    Snapshot,
)
from koordinator.scheduler.snapshot.selection import matches_required, matches_selector

if TYPE_CHECKING:
    from koordinator.scheduler.plugins.dynamic_resources import constraints, remedies
else:  # of pods that are explained
    constraints = lazy_module("koordinator.scheduler.plugins.dynamic_resources.constraints")
    remedies = lazy_module("koordinator.scheduler.plugins.dynamic_resources.remedies")

NOTHING_TO_FREE = "no new claims to deallocate"
STILL_NOT = "still not schedulable"
FREED = "deallocation of ResourceClaim completed"
DELETED = "deletion of ResourceClaim completed"


@dataclass(frozen=True, slots=True)
class DynamicResources:
    """Filter, score and allocation of claims; claims are written before the bind."""

    binding_timeout_s: float = 600.0
    gates: AllocatorGates = NO_GATES
    is_terse: bool = False  # empty PostFilter message
    extended: bool = False  # create claims for extended resources of DeviceClasses
    #: kind of PodGroups whose claims their pods share; None: no claims are shared
    groups: type[SchedulingPodGroup] | None = None
    reads: ClassVar = Reads.CLUSTER

    def with_gates(self, gates: FeatureGates) -> Self:
        """Return the plugin with the gated parts and the messages of the release."""
        on = AllocatorGates(
            taints=DRA_DEVICE_TAINTS in gates,
            taint_rules=DRA_DEVICE_TAINT_RULES in gates,
            counters=DRA_PARTITIONABLE_DEVICES in gates,
            capacity=DRA_CONSUMABLE_CAPACITY in gates,
            binding_conditions=DRA_BINDING_CONDITIONS in gates,
            lists=DRA_LIST_ATTRIBUTES in gates,
            node_amounts=DRA_NODE_ALLOCATABLE in gates,
            repeats=gates.level < V1_36,
            fractional_ranges=DRA_FRACTIONAL_RANGES in gates,
            from_1_37=gates.level >= V1_37,
        )
        return replace(
            self,
            gates=on,
            extended=DRA_EXTENDED_RESOURCE in gates,
            groups=sharing_groups(gates),
            is_terse=gates.level >= V1_37,
        )

    def applies(self, pod: PodClass) -> bool:
        # A pod with a uid may have a claim that was created before its class was deleted.
        return bool(pod.spec.resource_claims or (self.extended and (pod.served or pod.uid)))

    def _concerns(self, snapshot: Snapshot, pod: PodClass) -> bool:
        if pod.spec.resource_claims:
            return True
        return self.extended and bool(pod.served or pod.uid in snapshot.extended.claims)

    def pre_enqueue(self, pod: Pod, objects: ObjectTable) -> Refusal | None:
        """Return which claim of the pod does not exist yet."""
        if not pod.spec.resource_claims:
            return None
        why = why_not_ready(pod, objects, shares=self.groups is not None)
        return Refusal(why) if why else None

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        if not self._concerns(snapshot, pod):
            return None
        claims = read_claims(snapshot, pod, self.groups)
        return claims if isinstance(claims, Refusal) else self._broken(snapshot, pod, claims)

    def _broken(self, snapshot: Snapshot, pod: PodClass, claims: PodDeviceClaims) -> Refusal | None:
        """Return which selector fails to evaluate on a node that the pod selects.

        Other feasible nodes do not matter: scheduling there would hide the faulty selector.
        """
        cluster = snapshot.cluster
        codes, _ = self._filter_and_score(cluster, pod, claims)
        if not np.any(codes == BROKEN):
            return None
        rows = np.flatnonzero((codes == BROKEN) & matches_required(cluster, pod))
        if not len(rows):
            return None
        row = int(rows[0])
        why = self.why_fault(cluster, row, pod, claims)
        return Refusal(f"node {cluster.node_names[row]}: {why}")

    def refusal_detail(self, snapshot: Snapshot, pod: PodClass) -> str:
        """Return which attribute a selector may mean that reads a missing one."""
        claims = read_claims(snapshot, pod, self.groups)
        broken = None if isinstance(claims, Refusal) else self._broken(snapshot, pod, claims)
        ledger = verdict_table(snapshot, self.gates).devices
        return unknown_attribute(ledger, broken.reason) if broken is not None else ""

    def remedy(self, snapshot: Snapshot, pod: PodClass) -> tuple[str, bool]:
        """Return the claims, templates and classes to create."""
        text = objects_to_create(snapshot.objects, pod)
        return text, bool(text)

    @property
    def hints(self) -> PluginHints:
        return PluginHints(filters=self._concerns, scores=self._scores)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        claims = read_claims(snapshot, pod, self.groups)
        if isinstance(claims, Refusal):
            return Rejections.where(np.ones(len(snapshot), bool), claims.reason, unresolvable=True)
        codes, _ = self._filter_and_score(snapshot, pod, claims)
        explain = None
        if np.any(codes >= FAULT):
            explain = _Explained(self, snapshot, pod, claims, codes)
        unresolvable = True if not np.any(codes == SHORT) else lambda: codes != SHORT
        return Rejections(codes, REASONS, unresolvable, explain, may_end=True)

    def _filter_and_score(
        self, snapshot: Snapshot, pod: PodClass, claims: PodDeviceClaims
    ) -> tuple[IntArray, IntArray]:
        """Return reject codes and raw scores of the rows of a view, ``(n,)`` each."""
        cluster = snapshot.cluster
        if self.extended and claims.stale is not None:
            return np.full(len(snapshot), STALE), np.zeros(len(snapshot), np.int64)
        codes, scores = np.zeros(len(cluster), np.int64), np.zeros(len(cluster), np.int64)
        served: list[RoomCandidates] = []
        for columns, rows in self._delegations(cluster, pod):
            pod_claims = with_extended(snapshot, pod, claims, columns)
            if isinstance(pod_claims, Refusal):
                codes[rows] = FAULT
            elif pod_claims.pending:
                table = verdict_table(snapshot, self.gates)
                verdicts = table.of_claims(pod_claims.pending, len(cluster), pod_claims.avoids)
                codes[rows] = verdicts.codes[: len(cluster)][rows]
                scores[rows] = verdicts.scores[: len(cluster)][rows]
                served.append(RoomCandidates(rows, pod_claims, verdicts))
            else:
                served.append(RoomCandidates(rows, pod_claims))
        if self.extended and pod.served:
            codes[unserved(cluster, pod)] = UNSERVED
        is_unavailable = self._unavailable(cluster, claims)
        if is_unavailable is not None:
            codes = np.where(is_unavailable & (codes == 0), ELSEWHERE, codes)
        if self.gates.node_amounts:
            judge_room(cluster, pod, served, codes, self.gates)
        return (
            (codes, scores)
            if snapshot.rows is None
            else (codes[snapshot.rows], scores[snapshot.rows])
        )

    def _delegations(
        self, snapshot: Snapshot, pod: PodClass
    ) -> list[tuple[tuple[int, ...], BoolArray | slice]]:
        """Return the sets of columns that devices have to serve, with the rows of each."""
        if self.extended and pod.served:
            return [*delegations(snapshot, pod)]
        return [((), slice(None))]

    def _at(
        self, view: Snapshot, pod: PodClass, claims: PodDeviceClaims
    ) -> PodDeviceClaims | Refusal:
        """Return the claims on the only row of a view, with one for extended resources."""
        ((columns, _),) = self._delegations(view, pod)
        return with_extended(view, pod, claims, columns)

    def why_fault(self, snapshot: Snapshot, row: int, pod: PodClass, known: PodDeviceClaims) -> str:
        """Return why the allocation on a row could not be evaluated."""
        claims = self._at(snapshot.cluster[np.array([row])], pod, known)
        if isinstance(claims, Refusal):
            return claims.reason
        allocation, _ = node_request(snapshot.cluster[np.array([row])], pod, claims, self.gates)
        return allocation.reason if isinstance(allocation, NotAllocatable) else ""

    def why_no_room(
        self, snapshot: Snapshot, row: int, pod: PodClass, known: PodDeviceClaims
    ) -> Sequence[str]:
        """Return why a row has too little capacity for the amounts of the claims."""
        view = snapshot.cluster[np.array([row])]
        claims = self._at(view, pod, known)
        if isinstance(claims, Refusal):
            return [claims.reason]
        return room_problems(view, node_request(view, pod, claims, self.gates)[1])

    def _scores(self, snapshot: Snapshot, pod: PodClass) -> bool:
        if not pod.spec.resource_claims:  # those that are made have no alternatives
            return False
        claims = read_claims(snapshot, pod, self.groups)
        return not isinstance(claims, Refusal) and claims.has_alternatives

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``: the score of the alternatives that the pod would get."""
        claims = read_claims(snapshot, pod, self.groups)
        if isinstance(claims, Refusal):
            return np.zeros(len(snapshot), np.int64)
        return self._filter_and_score(snapshot, pod, claims)[1]

    def device_counts(self, cluster: Snapshot, device_class: str) -> tuple[IntArray, IntArray]:
        """Return two ``(n,)``: devices of a class in reach of each row, and allocated ones."""
        wanted = one_of_class(cluster, device_class)
        if isinstance(wanted, str):
            return np.zeros(len(cluster), np.int64), np.zeros(len(cluster), np.int64)
        counts = verdict_table(cluster, self.gates).of_class(wanted, len(cluster))
        return counts.offered[: len(cluster)], counts.taken[: len(cluster)]

    def device_version(self, snapshot: Snapshot) -> Hashable:
        ledger = verdict_table(snapshot, self.gates).devices
        return ledger.changes, ledger.classes

    def normalize(self, raw: IntArray) -> IntArray:
        return spread_of(raw)

    def reserve(
        self, view: Snapshot, pod: PodClass, _preference: IntArray | None
    ) -> AllocationResult | Refusal:
        """Allocate devices to pending claims, and reserve all claims for the pod."""
        if not self._concerns(view, pod):
            return AllocationResult()
        known = read_claims(view, pod, self.groups)
        forget_claims(pod)
        claims = known if isinstance(known, Refusal) else self._at(view, pod, known)
        if isinstance(claims, Refusal):
            return claims
        allocation, request = node_request(view, pod, claims, self.gates)
        why = self._why_not(view, claims)
        if not why and isinstance(allocation, NotAllocatable):
            why = allocation.reason
        why = why or ", ".join(room_problems(view, request))
        if why or isinstance(allocation, NotAllocatable):
            return Refusal(why)
        result = self._reserved(view, pod, claims, allocation)
        if request is None or isinstance(result, Refusal):
            return result
        return result.joined(AllocationResult(PodAllocation(claimed=request.statuses)))

    def _why_not(self, view: Snapshot, claims: PodDeviceClaims) -> str:
        """Return why the pod cannot use its allocated claims; empty if it can."""
        if self.extended and claims.stale is not None:
            return LEFT_BEHIND
        is_unavailable = self._unavailable(view.cluster, claims)
        if is_unavailable is not None and is_unavailable[int(view.names[0][0])]:
            return NOT_AVAILABLE
        for claim, consumer in zip(claims.claims, claims.consumers, strict=True):
            is_full = len(claim.status.reserved_for) >= RESERVATIONS_MAX
            if is_full and not is_reserved_for(claim, consumer.uid):
                return f'running PreBind plugin "DynamicResources": {too_many(claim)}'
        return ""

    def _reserved(
        self,
        view: Snapshot,
        pod: PodClass,
        claims: PodDeviceClaims,
        node_allocation: NodeAllocation,
    ) -> AllocationResult | Refusal:
        """Return the changes of the claims; the last one found may have to be created."""
        node, objects = view.node_names[0], view.objects
        allocations = {
            pending.key: allocation_of(pending, devices, node, self.gates, view.now_s)
            for pending, devices in zip(claims.pending, node_allocation.claims, strict=True)
        }
        meta = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
        changes = tuple(
            reservation(objects, claim, allocations.get(claim.key), consumer)
            for claim, consumer in zip(claims.claims, claims.consumers, strict=True)
        )
        if claims.extended is None:
            return AllocationResult(changes=changes)
        allocation = allocations[claims.pending[-1].key]
        making = make_claim(objects, meta, claims.extended, allocation)
        if isinstance(making, Refusal):
            return making
        change, name = making
        named = PodExtendedResourceClaimStatus(
            request_mappings=claims.extended.mappings, resource_claim_name=name
        )
        return AllocationResult(changes=(*changes, change), device_claim=named)

    def pre_bind(self, objects: ObjectTable, pod: Pod, _node: str) -> Permit:
        """Wait until drivers report the binding conditions of the devices."""
        if not self.gates.binding_conditions:
            return Permit()
        waits, spec, status = False, pod.spec, pod.status
        names = [
            name for _, name in claim_names(spec.resource_claims, status.resource_claim_statuses)
        ]
        named = [objects.get(ResourceClaim, f"{pod.metadata.namespace}/{name}") for name in names]
        if self.extended:
            named.append(find_made_claim(objects, pod.metadata))
        claims = [claim for claim in named if claim is not None]
        drivers = tuple(driver for claim in claims for driver in conditional_drivers(claim))
        for claim in claims:
            answer = readiness(claim)
            if isinstance(answer, str):
                return Permit(refusal=Refusal(answer), drivers=drivers)
            waits |= not answer
        return Permit(wait_s=self.binding_timeout_s if waits else 0.0, drivers=drivers)

    def cleanup_before_retry(self, snapshot: Snapshot, pod: PodClass) -> ObjectChange | None:
        """Return the deletion of a claim that an earlier attempt created."""
        key = snapshot.extended.claims.get(pod.uid) if self.extended and pod.uid else None
        return deletion(key, pod.uid) if key is not None else None

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Deallocate a claim that excludes nodes, if no other pod has reserved it."""
        if attempt.members:
            return PostFilterResult()
        pod, snapshot = attempt.pod_class, attempt.what_if.snapshot
        if not self._concerns(snapshot, pod) or attempt.refused_by:
            return self._nothing_done(NOTHING_TO_FREE)
        claims = read_claims(snapshot, pod, self.groups)
        if isinstance(claims, Refusal):
            return self._nothing_done(NOTHING_TO_FREE)
        left = self.cleanup_before_retry(snapshot, pod)
        if left is not None:
            return PostFilterResult(DELETED, changes=(left,))
        codes, _ = self._filter_and_score(snapshot, pod, claims)
        suspects = attempt.rejected[codes[attempt.rejected] == ELSEWHERE][:TRIED]
        rows = [
            row
            for row in suspects.tolist()
            if NOT_AVAILABLE in attempt.what_if.why_not(attempt.pod_class, row, ())
        ]
        for claim in claims.allocated if rows else ():
            is_unavailable = self._unavailable(snapshot, replace(claims, claims=(claim,)))
            if is_unavailable is None or not is_unavailable[rows].any():
                continue
            if all(one.uid == pod.uid for one in claim.status.reserved_for):
                return PostFilterResult(FREED, changes=(release(claim, pod.uid),))
        return self._nothing_done(STILL_NOT)

    def free_group_claim(
        self, what_if: WhatIf, members: Sequence[PodClass], group: SchedulingPodGroup
    ) -> ObjectChange | None:
        """Return the change that frees a claim of a PodGroup without placed members."""
        if self.groups is None or not self.gates.from_1_37:
            return None
        unavailable = partial(self._unavailable, what_if.snapshot)
        return freed_by_group(what_if, members, self.groups, group, unavailable)

    def _nothing_done(self, why: str) -> PostFilterResult:
        return PostFilterResult("" if self.is_terse else why)

    def _unavailable(self, cluster: Snapshot, claims: PodDeviceClaims) -> BoolArray | None:
        """Return ``(n,)``: a claim's devices are out of reach; None if no claim is bound to nodes.

        Devices that failed to become ready exclude every node.
        """
        if any(self._why_not_ready(claim, cluster.now_s) for claim in claims.allocated):
            return np.ones(len(cluster), bool)
        return _unreachable(cluster, claims)

    def _why_not_ready(self, claim: ResourceClaim, now_s: float) -> str:
        waits = self.gates.binding_conditions
        return why_lost(claim, now_s, self.binding_timeout_s) if waits else ""

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return per device of the node which selector it fails or which claim has it."""
        claims = self._claims_at(view, pod)
        if claims is None:
            return ""
        if self.extended and claims.stale is not None:
            return f"claim {claims.stale.key} of an earlier attempt must be deleted first"
        row = int(view.names[0][0])
        parts = []
        for claim in claims.allocated:
            lost = self._why_not_ready(claim, view.now_s)
            is_unavailable = self._unavailable(view.cluster, replace(claims, claims=(claim,)))
            if lost:
                parts.append(lost)
            elif is_unavailable is not None and is_unavailable[row]:
                parts.append(f"claim {claim.key} has devices that only other nodes reach")
        if claims.pending and not parts:
            ledger = verdict_table(view, self.gates).devices
            _, request = node_request(view, pod, claims, self.gates)
            room = room_detail(view, request)
            constrained = "" if room else constraints.constraint_problems(ledger, row, claims)
            parts.append(room or constrained or device_problems(ledger, row, claims))
        elif not parts:
            parts.append(room_detail(view, node_request(view, pod, claims, self.gates)[1]))
        return "; ".join(filter(None, parts))

    def object_remedies(self, view: Snapshot, pod: PodClass) -> Sequence[ObjectRemedy]:
        """Return the claims to release, the taints to remove and the smaller requests."""
        claims = self._claims_at(view, pod)
        if claims is None:
            return ()
        ledger = verdict_table(view, self.gates).devices
        row, node = int(view.names[0][0]), view.node_names[0]
        return [
            *remedies.claim_remedies(ledger, view.objects, row, node, claims),
            *constraints.unconstrained(ledger, view.objects, row, node, claims),
        ]

    def size_remedies(self, view: Snapshot, pod: PodClass) -> SizeRemedies:
        """Return the devices that a node must offer."""
        claims = self._claims_at(view, pod)
        if claims is None:
            return SizeRemedies()
        ledger = verdict_table(view, self.gates).devices
        return SizeRemedies(node=remedies.devices_to_add(ledger, int(view.names[0][0]), claims))

    def _claims_at(self, view: Snapshot, pod: PodClass) -> PodDeviceClaims | None:
        """Return the claims of the pod on the only row; None if it has no schedulable ones."""
        known = read_claims(view, pod, self.groups)
        claims = known if isinstance(known, Refusal) else self._at(view, pod, known)
        return None if isinstance(claims, Refusal) else claims


@dataclass(frozen=True, slots=True)
class _Explained:
    """Reasons by row, where the fault of a row is evaluated on demand."""

    plugin: DynamicResources
    snapshot: Snapshot
    pod: PodClass
    claims: PodDeviceClaims
    codes: IntArray

    def __call__(self, row: int) -> Sequence[str]:
        code = int(self.codes[row])
        if code >= FAULT:
            number = row if self.snapshot.rows is None else int(self.snapshot.rows[row])
            if code >= SHORT:
                return self.plugin.why_no_room(self.snapshot, number, self.pod, self.claims)
            return [self.plugin.why_fault(self.snapshot, number, self.pod, self.claims)]
        return [reason for bit, reason in enumerate(REASONS) if code >> bit & 1]


def _unreachable(cluster: Snapshot, claims: PodDeviceClaims) -> BoolArray | None:
    unreachable: BoolArray | None = None
    for claim in claims.allocated:
        allocation = claim.status.allocation
        if allocation is None or allocation.node_selector is None:
            continue
        is_outside = ~matches_selector(cluster, allocation.node_selector)
        unreachable = is_outside if unreachable is None else unreachable | is_outside
    return unreachable


def build(args: DynamicResourcesArgs, _axis: ResourceAxis) -> DynamicResources:
    if args.binding_timeout is None:
        return DynamicResources()
    return DynamicResources(args.binding_timeout.total_seconds())


PLUGIN = PluginSpec(
    "DynamicResources",
    DynamicResourcesArgs,
    build,
    events=EVENTS,
    # Devices take resources of the node, which other pods give back.
    gated_events=(
        (
            DRA_NODE_ALLOCATABLE,
            EventHint("AssignedPod", Action.DELETE | Action.UPDATE_SCALE_DOWN),
        ),
        (DRA_NODE_ALLOCATABLE, EventHint("Node", Action.UPDATE_ALLOCATABLE, on_claimed_amounts)),
    ),
    example=EXAMPLE,
)
