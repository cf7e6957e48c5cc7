"""Whose pods a reservation is for.

Source: koordinator pkg/util/reservation/reservation.go, ``MatchReservationOwners``.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from koordinator.api.core import ObjectReference
from koordinator.api.meta import OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.reservation import ReservationControllerReference, ReservationOwner
from koordinator.api.selectors import matches
from koordinator.foundation.errors import InputError

_POD_API_VERSION = "v1"


@dataclass(frozen=True, slots=True)
class OwnerCandidate:
    """What of a pod says whose it is; no ``name`` and ``uid``: no reservation names the pod."""

    namespace: str
    labels: Mapping[str, str]
    owner_references: tuple[OwnerReference, ...] = ()
    name: str = ""
    uid: str = ""


def owner_candidate_of(pod: Pod) -> OwnerCandidate:
    """Return what a single pod says."""
    meta = pod.metadata
    return OwnerCandidate(meta.namespace, meta.labels, meta.owner_references, meta.name, meta.uid)


def is_owner(
    owners: Iterable[ReservationOwner], owner_candidate: OwnerCandidate, namespace: str = ""
) -> bool:
    """Return whether some entry matches; an entry whose selector can't be read makes none match.

    With a ``namespace``, entries that name none are about pods of that one.
    """
    try:
        return any(
            _matches(owner, owner_candidate)
            for owner in owners
            if namespace in ("", owner_candidate.namespace) or _names_namespace(owner)
        )
    except InputError:
        return False


def names_pods(owners: Iterable[ReservationOwner]) -> bool:
    """Return whether some entry means single pods, by their name or uid."""
    return any(owner.object and (owner.object.name or owner.object.uid) for owner in owners)


def index_keys(owners: Iterable[ReservationOwner]) -> list[Hashable]:
    """Return what to look an offer up by: a key per entry, None for one that has to be tried."""
    return [_index_key(owner) for owner in owners]


def look_up_keys(owner_candidate: OwnerCandidate) -> Iterator[Hashable]:
    """Yield the keys of all entries that may match."""
    yield None
    yield from owner_candidate.labels.items()
    for reference in owner_candidate.owner_references:
        yield "controller", reference.name, reference.uid
    if owner_candidate.name:
        yield "object", owner_candidate.name
        yield "object", owner_candidate.uid


def _names_namespace(owner: ReservationOwner) -> bool:
    """Return whether an entry is about one namespace, which ``_matches`` compares."""
    return any(part is not None and part.namespace for part in (owner.object, owner.controller))


def _index_key(owner: ReservationOwner) -> Hashable:
    selector, controller, named = owner.label_selector, owner.controller, owner.object
    if selector is not None and selector.match_labels:
        return next(iter(selector.match_labels.items()))
    if controller is not None and controller.name and controller.uid:
        return "controller", controller.name, controller.uid
    if named is not None and (named.uid or named.name):
        return "object", named.uid or named.name
    return None


def _matches(owner: ReservationOwner, owner_candidate: OwnerCandidate) -> bool:
    return (
        (owner.object is None or _is_object(owner.object, owner_candidate))
        and (owner.controller is None or _has_controller(owner.controller, owner_candidate))
        and (owner.label_selector is None or matches(owner.label_selector, owner_candidate.labels))
    )


def _is_object(wanted: ObjectReference, owner_candidate: OwnerCandidate) -> bool:
    """Compare what is given; the kind is not, as in the original."""
    return all(
        not expected or expected == found
        for expected, found in (
            (wanted.uid, owner_candidate.uid),
            (wanted.name, owner_candidate.name),
            (wanted.namespace, owner_candidate.namespace),
            (wanted.api_version, _POD_API_VERSION),
        )
    )


def _has_controller(
    wanted: ReservationControllerReference, owner_candidate: OwnerCandidate
) -> bool:
    if wanted.namespace and wanted.namespace != owner_candidate.namespace:
        return False
    return any(_is_controller(wanted, reference) for reference in owner_candidate.owner_references)


def _is_controller(wanted: ReservationControllerReference, found: OwnerReference) -> bool:
    if wanted.controller is not None and wanted.controller != bool(found.controller):
        return False
    return all(
        not expected or expected == there
        for expected, there in (
            (wanted.uid, found.uid),
            (wanted.name, found.name),
            (wanted.kind, found.kind),
            (wanted.api_version, found.api_version),
        )
    )
