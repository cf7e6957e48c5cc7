"""Reservations that a pod may use, and the room of a reservation and of its node.

Source: koordinator pkg/scheduler/plugins/reservation/plugin.go, ``fitsNode``,
``fitsReservation``; scoring.go, ``ScoreReservation``. One difference: what owners took beyond the
reservation stays charged to the node; the original takes it off, too; koordinator
pkg/scheduler/plugins/reservation/transformer.go, ``checkReservationMatchedOrIgnored``;
pkg/util/reservation/reservation.go, ``GetRequiredReservationAffinity``;
apis/extension/reservation.go, ``ExactMatchReservation``.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto

from koordinator.api.annotations.reservation import (
    EXACT_MATCH,
    ExactMatchReservation,
    ReservationAffinity,
    read_reservation_affinity,
)
from koordinator.api.core import Taint, Toleration
from koordinator.api.labels import RESERVATION_IGNORED, is_true
from koordinator.api.meta import ObjectMeta
from koordinator.api.resource_names import GPU, GPU_CORE, GPU_MEMORY_RATIO
from koordinator.domain.amounts import Amounts
from koordinator.domain.node_selection import FORBIDDING, UNSCHEDULABLE, matches_term, untolerated
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.rules.reservations.offer import (
    AllocatePolicy,
    OwnerCandidate,
    ReservationOffer,
)

PODS = "pods"
BY_NODE = " by node"  # suffix of reasons of the node outside its reservations
CPU = "cpu"
PREFIX = "Reservation(s) "
GPU_SPELLINGS = frozenset((GPU, GPU_CORE, GPU_MEMORY_RATIO))


@dataclass(frozen=True, slots=True)
class IgnoredResources:
    """Extended resources that are not compared, by name and by domain prefix."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.names or ("/" in name and name.partition("/")[0] in self.groups)


def in_terms_of(offered: Collection[str], requests: Amounts) -> Amounts:
    """Return requests with GPU requests added in the resource names that are offered.

    ``koordinator.sh/gpu: 200`` is 200 percent of cores and of memory, and the pod webhook writes it
    in that form; a reservation keeps its author's form.  Returns ``requests`` itself if the names
    match already.
    """
    if GPU_SPELLINGS.isdisjoint(offered) or GPU_SPELLINGS.isdisjoint(requests):
        return requests
    if GPU in requests:
        percent = requests[GPU]
        missing = [name for name in (GPU_CORE, GPU_MEMORY_RATIO) if name not in requests]
    else:
        percent = max(requests.get(GPU_CORE, 0), requests.get(GPU_MEMORY_RATIO, 0))
        missing = [GPU]
    more = {name: percent for name in missing if name in offered}
    return {**requests, **more} if more else requests


def remaining(offer: ReservationOffer, used: Amounts) -> Amounts:
    """Return the reserved amounts that owners may still take."""
    if not used and not offer.withheld:
        return offer.amounts
    return {
        name: max(amount - used.get(name, 0) - offer.withheld.get(name, 0), 0)
        for name, amount in offer.amounts.items()
    }


def short_on_node(
    requests: Amounts, free: Mapping[str, int], given: Amounts, ignored: IgnoredResources
) -> tuple[str, ...]:
    """Return the resources that node and reservation together have too little of.

    ``free`` are the node's free amounts (``pods``: the number), ``given`` is added to them.
    """
    short = [PODS] if free.get(PODS, 0) < 1 else []
    short += [
        name
        for name, amount in requests.items()
        if name != PODS
        and name not in ignored
        and amount > 0
        and amount > free.get(name, 0) + given.get(name, 0)
    ]
    return tuple(short)


def short_in_reservation(
    requests: Amounts,
    offer: ReservationOffer,
    used: Amounts,
    users: int,
    ignored: IgnoredResources,
    *,
    detailed: bool,
) -> tuple[str, ...]:
    """Return the reservation's reasons for a rejection: number of pods, and amounts if Restricted.

    ``used`` are the amounts of the ``users`` pods.  ``detailed`` adds amounts, milli for cpu.
    """
    reasons = []
    most = offer.amounts.get(PODS)
    if most is not None and users + 1 > most:
        text = f", requested: 1, used: {users}, capacity: {most}" if detailed else ""
        reasons.append(f"{PREFIX}Too many pods{text}")
    if offer.policy is not AllocatePolicy.RESTRICTED:
        return tuple(reasons)
    for name in sorted(offer.restricted):
        amount = requests.get(name, 0)
        if name == PODS or not amount or name in ignored:
            continue
        capacity = offer.amounts.get(name, 0) - offer.withheld.get(name, 0)
        taken = used.get(name, 0)
        if amount > capacity - taken:
            text = f", requested: {amount}, used: {taken}, capacity: {capacity}" if detailed else ""
            reasons.append(f"{PREFIX}Insufficient {name}{text}")
    return tuple(reasons)


def score(offer: ReservationOffer, used: Amounts, requests: Amounts) -> int:
    """Return the utilization of the reservation, 0..100: the mean over reserved resources.

    An insufficient resource counts as 0.
    """
    terms = [
        0 if (full := used.get(name, 0) + requests.get(name, 0)) > amount else full * 100 // amount
        for name, amount in offer.amounts.items()
        if amount > 0
    ]
    return sum(terms) // len(terms) if terms else 0


def first_by_order(offers: Iterable[ReservationOffer]) -> ReservationOffer | None:
    """Return the offer with the smallest order label; None if none has one."""
    ordered = [offer for offer in offers if offer.order]
    return min(ordered, key=lambda offer: offer.order, default=None)


class MatchResult(Enum):
    """Result of matching; the first reason that applies."""

    MATCHED = auto()
    IGNORED = auto()  # the pod ignores reservations and may take their amounts
    NOT_OWNER = auto()
    NAME_MATCHED = auto()  # the pod names the reservation
    OTHER_NAME = auto()
    UNSCHEDULABLE = auto()
    TAINTED = auto()
    OTHER_AFFINITY = auto()
    NOT_EXACT = auto()


TAKEN = (MatchResult.MATCHED, MatchResult.NAME_MATCHED, MatchResult.IGNORED)


@dataclass(frozen=True, slots=True)
class ReservationSelector:
    """Reservation requirements of a pod; without ``affinity`` a reservation is optional."""

    affinity: ReservationAffinity | None = None
    exact: ExactMatchReservation | None = None
    ignores: bool = False


def read_reservation_selector(meta: ObjectMeta) -> ReservationSelector:
    """Parse a pod's labels and annotations.  Raises InputError."""
    return ReservationSelector(
        affinity=read_reservation_affinity(meta),
        exact=EXACT_MATCH.read(meta),
        ignores=is_true(meta.labels, RESERVATION_IGNORED),
    )


@dataclass(frozen=True, slots=True)
class ReservationRequester:
    """A pod in the view of reservations; ``requests`` are canonical."""

    owner_candidate: OwnerCandidate
    selector: ReservationSelector
    requests: Amounts
    is_strict: bool = False  # owners must be in the reservation's namespaces
    tolerations: tuple[Toleration, ...] = ()  # the pod's own, used without affinity

    def of(self, offer: ReservationOffer, node_labels: Mapping[str, str]) -> MatchResult:
        """Return whether the pod may use the offer, regardless of the remaining amounts."""
        if self.selector.ignores and offer.serves(self.owner_candidate.namespace):
            return MatchResult.IGNORED
        if not offer.is_for(self.owner_candidate, is_strict=self.is_strict):
            return MatchResult.NOT_OWNER
        return self.as_owner(offer, node_labels)

    def as_owner(self, offer: ReservationOffer, node_labels: Mapping[str, str]) -> MatchResult:
        """Return whether the pod, known as an owner, may use the offer, used up or not."""
        affinity = self.selector.affinity
        requests = in_terms_of(offer.amounts, self.requests)
        is_exact = is_exact_match(requests, offer.amounts, self.selector.exact)
        if affinity is not None and affinity.name:
            if affinity.name != offer.name:
                return MatchResult.OTHER_NAME
            return MatchResult.NAME_MATCHED if is_exact else MatchResult.NOT_EXACT
        tolerations = affinity.tolerations if affinity is not None else ()
        if offer.unschedulable and untolerated((UNSCHEDULABLE,), tolerations, FORBIDDING):
            return MatchResult.UNSCHEDULABLE
        if self.untolerated(offer) is not None:
            return MatchResult.TAINTED
        if affinity is not None and not matches_affinity(affinity, offer, node_labels):
            return MatchResult.OTHER_AFFINITY
        return MatchResult.MATCHED if is_exact else MatchResult.NOT_EXACT

    def untolerated(self, offer: ReservationOffer) -> Taint | None:
        """Return the first taint that the pod's reservation affinity does not tolerate.

        Without affinity, the pod's own tolerations apply.
        """
        affinity = self.selector.affinity
        tolerations = affinity.tolerations if affinity is not None else self.tolerations
        taints = untolerated(offer.taints, tolerations, FORBIDDING)
        return taints[0] if taints else None


def is_exact_match(
    requests: Amounts, reserved: Amounts, wanted: ExactMatchReservation | None
) -> bool:
    """Return whether the listed resources are requested exactly as reserved.

    A name that neither side has is ignored; in the original it ends the comparison.
    """
    names = wanted.resource_names if wanted is not None else ()
    return all(requests.get(name) == reserved.get(name) for name in names)


def matches_affinity(
    affinity: ReservationAffinity, offer: ReservationOffer, node_labels: Mapping[str, str]
) -> bool:
    """Return whether selector and terms match; the reservation's labels override the node's."""
    labels = {**node_labels, **offer.labels}
    if any(labels.get(key) != value for key, value in affinity.reservation_selector.items()):
        return False
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return True
    terms = required.reservation_selector_terms
    return any(matches_term(term, labels, offer.name) for term in terms)
