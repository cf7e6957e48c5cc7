"""Terms of a reservation: its owners, its resources, its allocate policy.

Source: koordinator pkg/util/reservation/reservation.go, ``MatchReservationOwners``; koordinator
pkg/scheduler/frameworkext/reservation_info.go.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from koordinator.api.annotations.numa import NODE_RESERVATION
from koordinator.api.annotations.reservation import (
    CURRENT_OWNER,
    OWNERS,
    RESTRICTED_OPTIONS,
)
from koordinator.api.core import ObjectReference, ResourceList, Taint
from koordinator.api.defaults import DEFAULT_NAMESPACE
from koordinator.api.labels import reservation_order
from koordinator.api.meta import ObjectMeta, OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.reservation import (
    PreAllocationPolicy,
    Reservation,
    ReservationControllerReference,
    ReservationOwner,
)
from koordinator.api.resource_names import CPU
from koordinator.api.selectors import matches
from koordinator.domain.pod_requests import bounded
from koordinator.domain.reserve_pod import held_amounts
from koordinator.domain.resized_pods import least_requests
from koordinator.foundation.cpu_list import parse_cpu_list
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


Amounts = Mapping[str, int]  # canonical, by resource


class AllocatePolicy(StrEnum):
    """How far pods may go beyond what is reserved."""

    DEFAULT = ""  # as Aligned, but shares no node with the other two
    ALIGNED = "Aligned"  # pods take what is reserved and, beyond it, what the node has left
    RESTRICTED = "Restricted"  # of what is reserved, pods get nothing but that


@dataclass(frozen=True, slots=True)
class ReservationOffer:
    """The terms of one reservation.  Equal while nothing changed that pods could tell."""

    uid: str
    name: str
    owners: tuple[ReservationOwner, ...]
    amounts: Amounts  # what is reserved; ``pods`` is how many pods may use it
    policy: AllocatePolicy
    allocate_once: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False  # as one that is being deleted is
    order: int = 0  # smaller first; 0 is none
    withheld: Amounts = field(default_factory=dict)  # of what is reserved, not for owners
    restricted: frozenset[str] = frozenset()  # what Restricted is about; all with other policies
    is_pod: bool = False  # an ordinary pod that offers what it holds, to its namespace
    namespace: str = ""  # of that pod; empty: to all namespaces
    owners_namespace: str = ""  # with strict tenancy: of owners that name none
    takes_over_any: bool = False  # also pods that are no owners, by a label: mode Cluster
    current_owner: ObjectReference | None = None  # who uses what an ordinary pod offers

    def is_for(self, owner_candidate: OwnerCandidate, *, is_strict: bool = False) -> bool:
        """Return whether such pods are owners; ``is_strict``: of the namespaces that are named."""
        if not self.serves(owner_candidate.namespace):
            return False
        namespace = self.owners_namespace if is_strict else ""
        return is_owner(self.owners, owner_candidate, namespace)

    def may_have_been_given_to(self, owner_candidate: OwnerCandidate) -> bool:
        """Return whether the scheduler can have given it to such pods, with strict tenancy.

        That is, to owners, and by pre-allocation in the mode Cluster to pods of its namespace.
        """
        if self.takes_over_any and owner_candidate.namespace == self.owners_namespace:
            return True
        return self.is_for(owner_candidate, is_strict=True)

    def serves(self, namespace: str) -> bool:
        """Return whether pods of a namespace may be owners at all."""
        return self.namespace in ("", namespace)

    @property
    def is_restricted(self) -> bool:
        """Whether pods get of what is reserved nothing but that."""
        return self.policy is AllocatePolicy.RESTRICTED


def offer_of(reservation: Reservation) -> ReservationOffer:
    """Return what an available reservation offers.

    Raises InputError if one of its annotations can't be read: then it offers nothing.
    """
    meta, spec = reservation.metadata, reservation.spec
    held = reservation.status.allocatable or held_amounts(spec.template.spec)
    amounts, policy = _canonical(held), AllocatePolicy(spec.allocate_policy or "")
    return ReservationOffer(
        uid=meta.uid,
        name=meta.name,
        owners=spec.owners,
        amounts=amounts,
        policy=policy,
        allocate_once=spec.allocate_once,
        labels=meta.labels,
        taints=spec.taints,
        unschedulable=spec.unschedulable or meta.deletion_timestamp is not None,
        order=reservation_order(meta.labels),
        withheld=withheld_in(meta),
        restricted=restricted_of(amounts, policy, meta),
        owners_namespace=spec.template.metadata.namespace or DEFAULT_NAMESPACE,
        takes_over_any=takes_over_any(spec.pre_allocation_policy) and spec.pre_allocation,
    )


def offer_of_pod(pod: Pod) -> ReservationOffer:
    """Return what an ordinary pod offers that holds its amounts for others of its namespace.

    Of a pod that is resized in place, it is the least of what is asked for, granted and in force.
    Raises InputError if it doesn't say for whom, or who uses it, in a way that can be read.
    """
    meta = pod.metadata
    amounts = least_requests(pod)
    return ReservationOffer(
        uid=meta.uid,
        name=meta.name,
        owners=OWNERS.read(meta) or (),
        amounts=amounts,
        policy=AllocatePolicy.ALIGNED,
        labels=meta.labels,
        unschedulable=meta.deletion_timestamp is not None,
        order=reservation_order(meta.labels),
        restricted=frozenset(amounts),
        is_pod=True,
        namespace=meta.namespace,
        current_owner=CURRENT_OWNER.read(meta),
    )


def takes_over_any(policy: PreAllocationPolicy | None) -> bool:
    """Return whether a reservation may take over pods that are no owners."""
    return policy is not None and policy.mode == "Cluster"


def withheld_in(meta: ObjectMeta) -> Amounts:
    """Return what an annotation withholds from owners; CPUs by number count as ``cpu``.

    Raises InputError if it can't be read.
    """
    inner = NODE_RESERVATION.read(meta)
    if inner is None:
        return {}
    withheld = dict(_canonical(inner.resources))
    if inner.reserved_cpus:
        withheld[CPU] = parse_cpu_list(inner.reserved_cpus).bit_count() * 1000
    return withheld


def restricted_of(amounts: Amounts, policy: AllocatePolicy, meta: ObjectMeta) -> frozenset[str]:
    """Return the resources that count: all, unless Restricted is about some of them only.

    Raises InputError if the annotation that says so can't be read.
    """
    options = RESTRICTED_OPTIONS.read(meta) if policy is AllocatePolicy.RESTRICTED else None
    limited = frozenset(options.resources if options else ()).intersection(amounts)
    return limited or frozenset(amounts)


def _canonical(resources: ResourceList) -> Amounts:
    return {name: bounded(name, quantity) for name, quantity in resources.items()}
