"""The extension points of DynamicResources.

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from koordinator.api.dynamic_resources import (
    RESERVATIONS_MAX,
    ClaimAllocation,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from koordinator.api.kubescheduler import DynamicResourcesArgs, FeatureGates
from koordinator.api.kubescheduler.gates import (
    DRA_BINDING_CONDITIONS,
    DRA_CONSUMABLE_CAPACITY,
    DRA_DEVICE_TAINT_RULES,
    DRA_DEVICE_TAINTS,
    DRA_PARTITIONABLE_DEVICES,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.domain.dynamic_resources.allocation import (
    allocation_of,
    claim_names,
    consumer,
    is_reserved_for,
    is_same_allocation,
    with_allocation,
    with_consumer,
    without_allocation,
)
from koordinator.domain.dynamic_resources.allocator import (
    NO_GATES,
    AllocatorGates,
    NotAllocatable,
    allocate,
)
from koordinator.foundation.errors import ConflictError, InvalidError
from koordinator.scheduler.contract import (
    AllocationResult,
    Attempt,
    Permit,
    PluginExample,
    PluginSpec,
    PostFilterResult,
    Reads,
    Refusal,
    Rejections,
    Speed,
    spread_of,
)
from koordinator.scheduler.plugins.dynamic_resources.claims import (
    PodDeviceClaims,
    read_claims,
    why_not_ready,
)
from koordinator.scheduler.plugins.dynamic_resources.hints import EVENTS
from koordinator.scheduler.plugins.dynamic_resources.messages import device_problems
from koordinator.scheduler.plugins.dynamic_resources.verdicts import (
    ELSEWHERE,
    FAULT,
    NOT_AVAILABLE,
    REASONS,
    verdict_table,
)
from koordinator.scheduler.snapshot import (
    BoolArray,
    IntArray,
    ObjectChange,
    ObjectTable,
    PodClass,
    ResourceAxis,
    Snapshot,
)
from koordinator.scheduler.snapshot.selection import matches_selector

NOTHING_TO_FREE = "no new claims to deallocate"
STILL_NOT = "still not schedulable"
FREED = "deallocation of ResourceClaim completed"
TRIED = 100  # nodes that would do without an allocation, at most; one is enough


@dataclass(frozen=True, slots=True)
class DynamicResources:
    """Filter, score, reserve; what it takes is written with the claims before the bind."""

    binding_timeout_s: float = 600.0
    gates: AllocatorGates = NO_GATES
    reads: ClassVar = Reads.CLUSTER

    def with_gates(self, gates: FeatureGates) -> Self:
        """Return the plugin with those parts that Kubernetes has off by default."""
        on = AllocatorGates(
            taints=DRA_DEVICE_TAINTS in gates,
            taint_rules=DRA_DEVICE_TAINT_RULES in gates,
            counters=DRA_PARTITIONABLE_DEVICES in gates,
            capacity=DRA_CONSUMABLE_CAPACITY in gates,
            binding_conditions=DRA_BINDING_CONDITIONS in gates,
        )
        return replace(self, gates=on)

    def applies(self, pod: PodClass) -> bool:
        return bool(pod.spec.resource_claims)

    def pre_enqueue(self, pod: Pod, objects: ObjectTable) -> Refusal | None:
        """Return which claim of the pod is not there yet."""
        why = why_not_ready(pod, objects) if pod.spec.resource_claims else ""
        return Refusal(why) if why else None

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        if not pod.spec.resource_claims:
            return None
        claims = read_claims(snapshot, pod)
        return claims if isinstance(claims, Refusal) else None

    @property
    def speed(self) -> Speed:
        return Speed(filters=lambda _snapshot, pod: self.applies(pod), scores=self._scores)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        claims = read_claims(snapshot, pod)
        if isinstance(claims, Refusal):
            return Rejections.where(np.ones(len(snapshot), bool), claims.reason, unresolvable=True)
        codes, _ = self._judge(snapshot, claims)
        explain = None
        if np.any(codes == FAULT):
            explain = _Explained(self, snapshot, claims, codes)
        return Rejections(codes, REASONS, True, explain, may_end=True)

    def _judge(self, snapshot: Snapshot, claims: PodDeviceClaims) -> tuple[IntArray, IntArray]:
        """Return reject codes and raw scores of the rows of a view, ``(n,)`` each."""
        cluster = snapshot.cluster
        codes = scores = np.zeros(len(cluster), np.int64)
        if claims.pending:
            table = verdict_table(snapshot, self.gates)
            found = table.of_claims(claims.pending, len(cluster), claims.avoids)
            codes, scores = found.codes[: len(cluster)], found.scores[: len(cluster)]
        elsewhere = _unavailable(cluster, claims)
        if elsewhere is not None:
            codes = np.where(elsewhere & (codes == 0), ELSEWHERE, codes)
        if snapshot.rows is None:
            return codes.copy(), scores.copy()
        return codes[snapshot.rows], scores[snapshot.rows]

    def why_fault(self, snapshot: Snapshot, row: int, claims: PodDeviceClaims) -> str:
        """Return why it could not be found out whether a row can serve the claims."""
        ledger = verdict_table(snapshot, self.gates).devices
        found = allocate(ledger.pools(row, claims.avoids), claims.pending, ledger.use, self.gates)
        return found.reason if isinstance(found, NotAllocatable) else ""

    def _scores(self, snapshot: Snapshot, pod: PodClass) -> bool:
        if not pod.spec.resource_claims:
            return False
        claims = read_claims(snapshot, pod)
        return not isinstance(claims, Refusal) and claims.has_alternatives

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return what the alternatives are worth that the pod would get, ``(n,)``."""
        claims = read_claims(snapshot, pod)
        if isinstance(claims, Refusal):
            return np.zeros(len(snapshot), np.int64)
        return self._judge(snapshot, claims)[1]

    def normalize(self, raw: IntArray) -> IntArray:
        return spread_of(raw)

    def reserve(
        self, view: Snapshot, pod: PodClass, _preference: IntArray | None
    ) -> AllocationResult | Refusal:
        """Take devices for the claims that have none, and all claims for the pod."""
        if not pod.spec.resource_claims:
            return AllocationResult()
        claims = read_claims(view, pod)
        if isinstance(claims, Refusal):
            return claims
        row, node = int(view.names[0][0]), view.node_names[0]
        elsewhere = _unavailable(view.cluster, claims)
        if elsewhere is not None and elsewhere[row]:
            return Refusal(NOT_AVAILABLE)
        for claim in claims.claims:
            is_full = len(claim.status.reserved_for) >= RESERVATIONS_MAX
            if is_full and not is_reserved_for(claim, pod.uid):
                return Refusal(f'running PreBind plugin "DynamicResources": {too_many(claim)}')
        ledger = verdict_table(view, self.gates).devices
        found = allocate(ledger.pools(row, claims.avoids), claims.pending, ledger.use, self.gates)
        if isinstance(found, NotAllocatable):
            return Refusal(found.reason)
        allocations = {
            pending.key: allocation_of(pending, devices, node, self.gates)
            for pending, devices in zip(claims.pending, found.claims, strict=True)
        }
        who = consumer(ObjectMeta(name=pod.name, uid=pod.uid))
        return AllocationResult(
            changes=tuple(
                _reservation(view.objects, claim, allocations.get(claim.key), who)
                for claim in claims.claims
            )
        )

    def pre_bind(self, objects: ObjectTable, pod: Pod, _node: str) -> Permit:
        """Wait until drivers have made ready the devices that have to be."""
        if not self.gates.binding_conditions:
            return Permit()
        waits = False
        for _, name in claim_names(pod.spec.resource_claims, pod.status.resource_claim_statuses):
            claim = objects.get(ResourceClaim, f"{pod.metadata.namespace}/{name}")
            answer = _readiness(claim) if claim is not None else True
            if isinstance(answer, str):
                return Permit(refusal=Refusal(answer))
            waits |= not answer
        return Permit(wait_s=self.binding_timeout_s) if waits else Permit()

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Free an allocated claim that keeps the pod from nodes, if nobody else has it."""
        if attempt.members:
            return PostFilterResult()
        pod = attempt.pod_class
        if not pod.spec.resource_claims or attempt.refused_by:
            return PostFilterResult(NOTHING_TO_FREE)
        snapshot = attempt.what_if.snapshot
        claims = read_claims(snapshot, pod)
        if isinstance(claims, Refusal):
            return PostFilterResult(NOTHING_TO_FREE)
        codes, _ = self._judge(snapshot, claims)
        suspects = attempt.rejected[codes[attempt.rejected] == ELSEWHERE][:TRIED]
        rows = [
            row
            for row in suspects.tolist()
            if NOT_AVAILABLE in attempt.what_if.why_not(attempt.pod_class, row, ())
        ]
        for claim in claims.allocated if rows else ():
            elsewhere = _unavailable(snapshot, replace(claims, claims=(claim,)))
            if elsewhere is None or not elsewhere[rows].any():
                continue
            if all(one.uid == pod.uid for one in claim.status.reserved_for):
                return PostFilterResult(FREED, changes=(_release(claim, pod.uid),))
        return PostFilterResult(STILL_NOT)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return which device of the node failed which selector, and who has which."""
        claims = read_claims(view, pod)
        if isinstance(claims, Refusal):
            return ""
        row = int(view.names[0][0])
        said = []
        for claim in claims.allocated:
            elsewhere = _unavailable(view.cluster, replace(claims, claims=(claim,)))
            if elsewhere is not None and elsewhere[row]:
                said.append(f"claim {claim.key} has devices that only other nodes reach")
        if claims.pending and not said:
            ledger = verdict_table(view, self.gates).devices
            said.append(device_problems(ledger, row, claims))
        return "; ".join(said)


@dataclass(frozen=True, slots=True)
class _Explained:
    """The reasons of rows, where some are those of one row alone."""

    plugin: DynamicResources
    snapshot: Snapshot
    claims: PodDeviceClaims
    codes: IntArray

    def __call__(self, row: int) -> Sequence[str]:
        code = int(self.codes[row])
        if code == FAULT:
            number = row if self.snapshot.rows is None else int(self.snapshot.rows[row])
            return [self.plugin.why_fault(self.snapshot, number, self.claims)]
        return [reason for bit, reason in enumerate(REASONS) if code >> bit & 1]


def _unavailable(cluster: Snapshot, claims: PodDeviceClaims) -> BoolArray | None:
    """Return ``(n,)``: a claim has devices that the node does not reach; None: none has."""
    found: BoolArray | None = None
    for claim in claims.allocated:
        allocation = claim.status.allocation
        if allocation is None or allocation.node_selector is None:
            continue
        elsewhere = ~matches_selector(cluster, allocation.node_selector)
        found = elsewhere if found is None else found | elsewhere
    return found


def _reservation(
    objects: ObjectTable,
    claim: ResourceClaim,
    new: ClaimAllocation | None,
    who: ResourceClaimConsumerReference,
) -> ObjectChange:
    """Return the change that lets a pod use a claim, and gives it devices if it has ``new`` ones.

    An allocation that another pod only assumes, too, is written by whoever comes first.
    """
    uid, allocation = claim.metadata.uid, new or claim.status.allocation
    stored = objects.stored(ResourceClaim, claim.key)
    was_stored = stored is not None and stored.status.allocation is not None

    def amend(now: ResourceClaim) -> ResourceClaim:
        if now.metadata.uid != uid:
            raise ConflictError(f"ResourceClaim {now.key} is another one by now")
        has = now.status.allocation
        if has is None:
            if was_stored or allocation is None:
                raise ConflictError(f"ResourceClaim {now.key} has lost its devices")
            if now.metadata.deletion_timestamp is not None:
                raise ConflictError(f"ResourceClaim {now.key} is being deleted")
            now = with_allocation(now, allocation)
        elif allocation is None or not is_same_allocation(has, allocation):
            raise ConflictError(f"ResourceClaim {now.key} has got other devices")
        reserved = with_consumer(now, who)
        if len(reserved.status.reserved_for) > RESERVATIONS_MAX:
            raise InvalidError(too_many(now))
        return reserved

    return ObjectChange(ResourceClaim, claim.key, amend)


def too_many(claim: ResourceClaim) -> str:
    """Return what the API server says to one consumer more than a claim may have."""
    return (
        f"add reservation to claim {claim.key}: ResourceClaim.resource.k8s.io "
        f'"{claim.metadata.name}" is invalid: status.reservedFor: Too many: '
        f"{RESERVATIONS_MAX + 1}: must have at most {RESERVATIONS_MAX} items"
    )


def _release(claim: ResourceClaim, pod_uid: str) -> ObjectChange:
    """Return the change that takes a claim's devices away, unless somebody has come to use it."""
    uid = claim.metadata.uid

    def amend(now: ResourceClaim) -> ResourceClaim:
        if now.metadata.uid != uid:
            raise ConflictError(f"ResourceClaim {now.key} is another one by now")
        if any(one.uid != pod_uid for one in now.status.reserved_for):
            raise ConflictError(f"ResourceClaim {now.key} is in use")
        return without_allocation(now)

    return ObjectChange(ResourceClaim, claim.key, amend)


def _readiness(claim: ResourceClaim) -> bool | str:
    """Return whether all conditions of the claim's devices hold, or which one says they never will.

    Source: Kubernetes enhancement 5007.
    """
    allocation = claim.status.allocation
    held = {
        (one.driver, one.pool, one.device): {c.type for c in one.conditions if c.status == "True"}
        for one in claim.status.devices
    }
    is_ready = True
    for result in allocation.devices.results if allocation is not None else ():
        known = held.get((result.driver, result.pool, result.device), set())
        failed = known.intersection(result.binding_failure_conditions)
        if failed:
            device = f"{result.driver}/{result.pool}/{result.device}"
            return f"claim {claim.key}: device {device} reports {', '.join(sorted(failed))}"
        is_ready &= known.issuperset(result.binding_conditions)
    return is_ready


def build(args: DynamicResourcesArgs, _axis: ResourceAxis) -> DynamicResources:
    return DynamicResources(args.binding_timeout.total_seconds())


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

PLUGIN = PluginSpec("DynamicResources", DynamicResourcesArgs, build, events=EVENTS, example=EXAMPLE)
