"""Whether a pod may use a reservation.

Source: koordinator pkg/scheduler/plugins/reservation/transformer.go,
``checkReservationMatchedOrIgnored``; pkg/util/reservation/reservation.go,
``GetRequiredReservationAffinity``; apis/extension/reservation.go, ``ExactMatchReservation``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from koordinator.api.annotations.reservation import (
    EXACT_MATCH,
    ExactMatchReservation,
    ReservationAffinity,
    read_reservation_affinity,
)
from koordinator.api.core import NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration
from koordinator.api.labels import RESERVATION_IGNORED, is_true
from koordinator.api.meta import ObjectMeta
from koordinator.domain.tolerations import FORBIDDING, UNSCHEDULABLE, untolerated
from koordinator.scheduler.rules.reservations.fit import in_terms_of
from koordinator.scheduler.rules.reservations.offer import Amounts, ReservationOffer
from koordinator.scheduler.rules.reservations.owners import OwnerCandidate

_NAME = "metadata.name"


class MatchResult(Enum):
    """What came of it; the first reason that holds."""

    MATCHED = auto()
    IGNORED = auto()  # the pod takes what is held as if it were free, and uses no reservation
    NOT_OWNER = auto()
    NAME_MATCHED = auto()  # the pod asked for it by name
    OTHER_NAME = auto()
    UNSCHEDULABLE = auto()
    TAINTED = auto()
    OTHER_AFFINITY = auto()
    NOT_EXACT = auto()


TAKEN = (MatchResult.MATCHED, MatchResult.NAME_MATCHED, MatchResult.IGNORED)


@dataclass(frozen=True, slots=True)
class ReservationSelector:
    """What a pod says of reservations; no ``affinity``: it also runs without one."""

    affinity: ReservationAffinity | None = None
    exact: ExactMatchReservation | None = None
    ignores: bool = False


def read_reservation_selector(meta: ObjectMeta) -> ReservationSelector:
    """Return what a pod's labels and annotations say.  Raises InputError."""
    return ReservationSelector(
        affinity=read_reservation_affinity(meta),
        exact=EXACT_MATCH.read(meta),
        ignores=is_true(meta.labels, RESERVATION_IGNORED),
    )


@dataclass(frozen=True, slots=True)
class ReservationRequester:
    """A pod as reservations see it; ``requests`` are canonical."""

    owner_candidate: OwnerCandidate
    selector: ReservationSelector
    requests: Amounts
    is_strict: bool = False  # owners are of the namespaces that a reservation names
    tolerations: tuple[Toleration, ...] = ()  # of the pod itself, for one without affinity

    def of(self, offer: ReservationOffer, node_labels: Mapping[str, str]) -> MatchResult:
        """Return whether the pod may use the offer; amounts that are left are not looked at."""
        if self.selector.ignores and offer.serves(self.owner_candidate.namespace):
            return MatchResult.IGNORED
        if not offer.is_for(self.owner_candidate, is_strict=self.is_strict):
            return MatchResult.NOT_OWNER
        return self.as_owner(offer, node_labels)

    def as_owner(self, offer: ReservationOffer, node_labels: Mapping[str, str]) -> MatchResult:
        """Return whether the pod, known as an owner, may use the offer, whatever is left of it."""
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

        Of a pod without one it is the first that its own tolerations don't.
        """
        affinity = self.selector.affinity
        tolerations = affinity.tolerations if affinity is not None else self.tolerations
        found = untolerated(offer.taints, tolerations, FORBIDDING)
        return found[0] if found else None


def is_exact_match(
    requests: Amounts, reserved: Amounts, wanted: ExactMatchReservation | None
) -> bool:
    """Return whether the named resources are asked for as they are reserved.

    A name that neither has says nothing, wherever it stands; in the original the comparison ends
    there.
    """
    names = wanted.resource_names if wanted is not None else ()
    return all(requests.get(name) == reserved.get(name) for name in names)


def matches_affinity(
    affinity: ReservationAffinity, offer: ReservationOffer, node_labels: Mapping[str, str]
) -> bool:
    """Return whether selector and terms hold; labels of the reservation hide those of its node."""
    labels = {**node_labels, **offer.labels}
    if any(labels.get(key) != value for key, value in affinity.reservation_selector.items()):
        return False
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return True
    terms = required.reservation_selector_terms
    return any(_matches_term(term, labels, offer.name) for term in terms)


def _matches_term(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Return whether all of a term holds; an empty one holds nowhere."""
    if not (term.match_expressions or term.match_fields):
        return False
    return all(_holds(each, labels) for each in term.match_expressions) and all(
        each.key == _NAME and _holds(each, {_NAME: name}) for each in term.match_fields
    )


def _holds(wanted: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(wanted, value)


def _compares(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    """Return whether a number is above (Gt) or below (Lt) another; what is no number is not."""
    found = _integer(value)
    bound = _integer(wanted.values[0]) if len(wanted.values) == 1 else None
    if found is None or bound is None:
        return False
    return {"Gt": found > bound, "Lt": found < bound}.get(wanted.operator, False)


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
