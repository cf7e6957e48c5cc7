"""Pre-allocation: reservations over running pods, which become users of the reservation.

Source: koordinator pkg/scheduler/plugins/reservation: transformer.go,
``prepareMatchReservationStateForReservePod``; plugin.go, ``filterWithPreAllocatablePod``,
``filterWithMultiplePreAllocatablePods``.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np

from koordinator.api.annotations.numa import NODE_RESERVATION
from koordinator.api.annotations.reservation import RESERVE_POD, pre_allocatable_priority
from koordinator.api.kubescheduler import ReservationArgs
from koordinator.api.labels import PRE_ALLOCATION_REQUIRED, is_true
from koordinator.api.meta import ObjectMeta
from koordinator.domain.amounts import Amounts
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.reserve_pod import ReservePodTerms
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import (
    MAX_SCORE,
    NOTHING,
    Refusal,
)
from koordinator.scheduler.rules.reservations.match import (
    PODS,
    PREFIX,
    TAKEN,
    IgnoredResources,
    ReservationRequester,
    read_reservation_selector,
    score,
    short_in_reservation,
    short_on_node,
)
from koordinator.scheduler.rules.reservations.offer import (
    AllocatePolicy,
    OwnerCandidate,
    ReservationOffer,
    is_owner,
    missing_parts,
    owner_candidate_of,
    restricted_of,
    takes_over_any,
    withheld_in,
)
from koordinator.scheduler.snapshot import (
    Hold,
    PlacedPod,
    PodClass,
    RestorableHolds,
    Snapshot,
    standing_hold,
)

UNSUPPORTED: Final = "node(s) reservation pre allocation is unsupported with current attributes"
NO_CLUSTER_MODE: Final = "reservation requires cluster mode pre-allocation which is disabled"
NO_CANDIDATES: Final = "node(s) no pod match reservation with pre allocation required"
NOT_ENOUGH: Final = "node(s) no pod(s) to meet the pre-allocation requirements"


@dataclass(frozen=True, slots=True)
class PreAllocationPlan:
    """Plan for a node: the pods to take over, or why there is none."""

    taken: tuple[Hold, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class PreAllocation:
    """State of one class of reservations that may take over pods."""

    terms: ReservePodTerms
    offer: ReservationOffer
    args: ReservationArgs
    ignored: IgnoredResources
    is_required: bool
    parts: Sequence[Any]  # plugins for parts of nodes
    is_strict: bool = False  # owners must be in the listed namespaces
    restorable: RestorableHolds = field(default_factory=RestorableHolds)
    _position: int = -1

    @staticmethod
    def of(
        pod: PodClass,
        terms: ReservePodTerms,
        args: ReservationArgs,
        parts: Sequence[Any],
        *,
        is_strict: bool = False,
    ) -> "PreAllocation":
        """Return the state for a reservation with these terms.

        Raise InputError for a malformed annotation that restricts what pods get.
        """
        amounts, policy = pod_requests(pod.spec), AllocatePolicy(terms.allocate_policy)
        meta = ObjectMeta(annotations={**pod.annotations, NODE_RESERVATION.key: terms.withheld})
        offer = ReservationOffer(
            uid=terms.uid,
            name=terms.name,
            owners=terms.owners,
            amounts=amounts,
            policy=policy,
            labels=pod.labels,
            taints=terms.taints,
            withheld=withheld_in(meta),
            restricted=restricted_of(amounts, policy, meta),
            owners_namespace=pod.namespace,
            takes_over_any=takes_over_any(terms.pre_allocation),
        )
        ignored = IgnoredResources(
            frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)
        )
        required = is_true(pod.labels, PRE_ALLOCATION_REQUIRED)
        return PreAllocation(terms, offer, args, ignored, required, parts, is_strict)

    @property
    def _is_of_cluster(self) -> bool:
        return self.offer.takes_over_any

    @property
    def refusal(self) -> Refusal | None:
        """Return why such a reservation cannot be placed at all; None if it can."""
        if not self.offer.is_restricted:
            return Refusal(UNSUPPORTED)
        if self._is_of_cluster and not self.args.pre_allocation_config.enable_cluster_mode:
            return Refusal(NO_CLUSTER_MODE)
        return None

    def shortlist(self, snapshot: Snapshot) -> frozenset[str] | None:
        """Return the nodes with candidates if one is required, else None."""
        if not self.is_required:
            return None
        names = snapshot.cluster.node_names
        return frozenset(names[row] for row in self.restorable.on_row)

    # -- candidates --------------------------------------------------------------------------

    def refresh(self, snapshot: Snapshot) -> RestorableHolds | None:
        """Return the candidates as restorable holds; None without any."""
        _, position = snapshot.rows_since(-1)
        if position != self._position:
            self._position, self.restorable = position, RestorableHolds()
            if self.refusal is None:
                pods = snapshot.pods.values()
                taken_over = {uid for placed in pods for uid in placed.pod_allocation.takes_over}
                candidates = [
                    placed
                    for placed in pods
                    if self._is_candidate(snapshot, placed)
                    and placed.pod.metadata.uid not in taken_over
                ]
                for number, placed in enumerate(sorted(candidates, key=self._rank), 1):
                    self.restorable.add(standing_hold(placed, self.offer, -number))
        return self.restorable if len(self.restorable) else None

    def _is_candidate(self, snapshot: Snapshot, placed: PlacedPod) -> bool:
        if (
            not placed.pod.spec.node_name  # it may still fail
            or placed.pod_allocation.uses
            or placed.pod_allocation.offer is not None
            or RESERVE_POD in placed.pod_class.annotations
        ):
            return False
        owner_candidate = owner_candidate_of(placed.pod)
        if not self._is_listed(owner_candidate):
            return False
        if self.is_strict and not self.offer.may_have_been_given_to(owner_candidate):
            return False
        try:
            selector = read_reservation_selector(placed.pod.metadata)
        except InputError:
            return False
        spec = placed.pod.spec
        requester = ReservationRequester(
            owner_candidate, selector, pod_requests(spec), tolerations=spec.tolerations
        )
        return requester.as_owner(self.offer, snapshot.node_labels(placed.row)) in TAKEN

    def _is_listed(self, owner_candidate: OwnerCandidate) -> bool:
        """Return whether a pod is labelled as candidate, or matches an owner by labels."""
        if self._is_of_cluster:
            return is_true(
                owner_candidate.labels, self.args.pre_allocation_config.cluster_label_key
            )
        owners = self.terms.owners
        by_labels = any(owner.label_selector is not None for owner in owners)
        return by_labels and is_owner(owners, owner_candidate)

    def _rank(self, placed: PlacedPod) -> tuple[int, str]:
        """Return the sort key of candidates: by annotation in the mode Cluster."""
        if not self._is_of_cluster:
            return 0, placed.key
        key = self.args.pre_allocation_config.cluster_priority_annotation_key
        return -pre_allocatable_priority(placed.pod.metadata, key), placed.pod.metadata.uid

    # -- nodes -------------------------------------------------------------------------------

    def places(self, snapshot: Snapshot, pod: PodClass, candidates: Container[int]) -> list[int]:
        """Return the places in the view to evaluate; the stock filters decide about others.

        These are the rows with candidates, all rows if a candidate is required, and full rows if
        free capacity is preferred to pods.
        """
        rows = snapshot.row_numbers.tolist()
        if self.is_required:
            return list(range(len(rows)))
        full: BoolArray = np.zeros(len(rows), bool)
        if self.args.pre_allocation_config.prefer_no_pre_allocated_pods:
            free = snapshot.allocatable[:, pod.columns] - snapshot.requested[:, pod.columns]
            full = np.any(free < pod.amounts, axis=1)
        return [at for at, row in enumerate(rows) if full[at] or row in candidates]

    def at(
        self, snapshot: Snapshot, place: int, candidates: Iterable[Hold], pod: PodClass
    ) -> PreAllocationPlan:
        """Return the plan for a row of the snapshot with these candidates, all restored."""
        candidates = tuple(candidates)
        if self.is_required and not candidates:
            return PreAllocationPlan(reasons=(NO_CANDIDATES,))
        free = _free(snapshot, place, candidates, pod)

        def short_with(*taken: Hold) -> tuple[str, ...]:
            if not any(hold.has_parts for hold in candidates):
                return ()  # the filters of these plugins have checked the row
            return short_of_parts(snapshot[np.array([place])], pod, taken, self.parts)

        without_pods = tuple(f"Insufficient {n} by node" for n in sorted(self._short(free)))
        without_pods = without_pods or (() if self.is_required else short_with())
        prefers_none = self.args.pre_allocation_config.prefer_no_pre_allocated_pods
        if not self.is_required and not without_pods and (prefers_none or not candidates):
            return PreAllocationPlan()
        taken, short, reasons = self._select(free, candidates, short_with)
        if taken:
            return PreAllocationPlan(taken)
        by_node = tuple(f"Insufficient {name} by node" for name in sorted(short))
        if self.is_required:
            return PreAllocationPlan(reasons=(*by_node, *reasons) or (NOT_ENOUGH,))
        return PreAllocationPlan(reasons=by_node or without_pods)

    def _select(
        self,
        free: Mapping[str, int],
        candidates: Sequence[Hold],
        short_with: Callable[..., tuple[str, ...]],
    ) -> tuple[tuple[Hold, ...], set[str], list[str]]:
        """Return the pods to take over, or the short resources and the reasons.

        ``short_with`` returns why devices or CPUs do not suffice with some pods taken over.
        """
        policy = self.terms.pre_allocation
        several = policy is not None and policy.enable_multiple
        ranked = list(candidates)
        if not (several and self._is_of_cluster):
            ranked.sort(key=lambda hold: -self.score(hold))
        chosen: list[Hold] = []
        together: dict[str, int] = {}
        short: set[str] = set()
        reasons: list[str] = []
        for hold in ranked:
            own = hold.placed.pod_class.effective.requests
            if not any(own.get(name) for name in self.offer.restricted if name != PODS):
                continue
            trial = {n: together.get(n, 0) + own.get(n, 0) for n in {*together, *own}}
            inside = short_in_reservation(
                trial, self.offer, {}, len(chosen), self.ignored, detailed=False
            )
            if inside:
                reasons += inside
                continue
            given = {**trial, PODS: len(chosen) + 1}
            shortfall = self._short({**free, PODS: free[PODS] + given.pop(PODS)}, given)
            if not shortfall:
                parts = short_with(*chosen, hold)
                if not parts:
                    return (*chosen, hold), set(), []
                reasons += (f"{PREFIX}{reason}" for reason in parts)
                continue
            short = set(shortfall) if several else short | set(shortfall)
            if several:
                chosen.append(hold)
                together = trial
        return (), short, reasons

    def _short(self, free: Mapping[str, int], given: Amounts | None = None) -> tuple[str, ...]:
        return short_on_node(self.offer.amounts, free, given or {}, self.ignored)

    def score(self, hold: Hold) -> int:
        """Return the utilisation of the reservation with one pod, 0..100."""
        return score(self.offer, {}, hold.placed.pod_class.effective.requests)

    def score_of(self, plan: PreAllocationPlan) -> int:
        """Return the score of a plan: few pods to take over, or the pod that fills most."""
        policy = self.terms.pre_allocation
        if policy is not None and policy.enable_multiple:
            return MAX_SCORE // (1 + len(plan.taken))
        return self.score(plan.taken[0]) if plan.taken else 0


def _free(
    snapshot: Snapshot, place: int, candidates: Iterable[Hold], pod: PodClass
) -> dict[str, int]:
    """Return the free amounts of the node with all candidates in place."""
    columns, names = pod.columns, snapshot.resources
    rest = snapshot.allocatable[place, columns] - snapshot.requested[place, columns]
    free = dict(zip(columns.tolist(), rest.tolist(), strict=True))
    for hold in candidates:
        for column, amount in hold.left.demand if hold.restored else ():
            if column in free:
                free[column] -= amount
    return {names[column]: amount for column, amount in free.items()}


def short_of_parts(
    node: Snapshot, pod: PodClass, taken: Sequence[Hold], parts: Sequence[Any]
) -> tuple[str, ...]:
    """Return why a reservation cannot allocate devices and CPUs with these pods taken over.

    It must get the parts of the pods and may get others.  ``parts`` are the allocating plugins.
    """
    allocation, view = NOTHING, node.nominating(None, tuple(taken))
    with node.restoring_only(*taken):
        for plugin in parts:
            if plugin.hints.filters(view, pod):
                part = plugin.reserve(view, pod, None)
                if isinstance(part, Refusal):
                    return (part.reason,)
                allocation = allocation.joined(part)
    pod_allocation = allocation.pod_allocation
    return missing_parts(
        pod_allocation.devices,
        pod_allocation.numa,
        [(hold.placed.pod_allocation.devices, hold.placed.pod_allocation.numa) for hold in taken],
    )
