"""Terms of a reservation: its owners, its resources, its policy, and what its users leave.

Source: koordinator pkg/util/reservation/reservation.go, ``MatchReservationOwners``; koordinator
pkg/scheduler/frameworkext/reservation_info.go.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum

from koordinator.api.annotations.numa import NODE_RESERVATION
from koordinator.api.annotations.reservation import (
    CURRENT_OWNER,
    OWNERS,
    RESTRICTED_OPTIONS,
)
from koordinator.api.core import ObjectReference, ResourceList, Taint
from koordinator.api.defaults import DEFAULT_NAMESPACE
from koordinator.api.device import DeviceType
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
from koordinator.domain.amounts import Amounts, bounded, remaining, total
from koordinator.domain.devices.allocation import NO_DEVICE, Allocation, TakenDevice
from koordinator.domain.reserve_pod import template_requests
from koordinator.domain.resized_pods import least_requests
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.trial import NOT_ENOUGH_CPUS

_POD_API_VERSION = "v1"


@dataclass(frozen=True, slots=True)
class OwnerCandidate:
    """Pod attributes for owner matching; name and uid are empty if no reservation names the pod."""

    namespace: str
    labels: Mapping[str, str]
    owner_references: tuple[OwnerReference, ...] = ()
    name: str = ""
    uid: str = ""


def owner_candidate_of(pod: Pod) -> OwnerCandidate:
    """Return the attributes of a single pod."""
    meta = pod.metadata
    return OwnerCandidate(meta.namespace, meta.labels, meta.owner_references, meta.name, meta.uid)


def is_owner(
    owners: Iterable[ReservationOwner], owner_candidate: OwnerCandidate, namespace: str = ""
) -> bool:
    """Return whether any entry matches; an invalid selector makes none match.

    With a ``namespace``, entries without one match only pods of that namespace.
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
    """Return whether any entry names single pods, by name or uid."""
    return any(owner.object and (owner.object.name or owner.object.uid) for owner in owners)


def index_keys(owners: Iterable[ReservationOwner]) -> list[Hashable]:
    """Return the index keys of an offer: one per entry, None for one that must be evaluated."""
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
    """Return whether an entry names a namespace, which ``_matches`` compares."""
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
    """Compare the given fields, except the kind, as in the original."""
    return all(
        not expected or expected == actual
        for expected, actual in (
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


def _is_controller(wanted: ReservationControllerReference, actual: OwnerReference) -> bool:
    if wanted.controller is not None and wanted.controller != bool(actual.controller):
        return False
    return all(
        not expected or expected == value
        for expected, value in (
            (wanted.uid, actual.uid),
            (wanted.name, actual.name),
            (wanted.kind, actual.kind),
            (wanted.api_version, actual.api_version),
        )
    )


class AllocatePolicy(StrEnum):
    """Permission to use amounts beyond the reserved ones."""

    DEFAULT = ""  # like Aligned, but not combined with the others on a node
    ALIGNED = "Aligned"  # reserved amounts, then free amounts of the node
    RESTRICTED = "Restricted"  # for reserved resources, reserved amounts only


@dataclass(frozen=True, slots=True)
class ReservationOffer:
    """Amounts and terms of one reservation; equal while nothing relevant to pods changed."""

    uid: str
    name: str
    owners: tuple[ReservationOwner, ...]
    amounts: Amounts  # reserved amounts; ``pods`` is the maximum number of pods
    policy: AllocatePolicy
    allocate_once: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False  # also set while it is being deleted
    order: int = 0  # smaller first; 0: no order
    withheld: Amounts = field(default_factory=dict)  # reserved amounts withheld from owners
    restricted: frozenset[str] = frozenset()  # resources under Restricted; all with other policies
    is_pod: bool = False  # an operating pod that offers its amounts to its namespace
    namespace: str = ""  # namespace of that pod; empty: any namespace
    owners_namespace: str = ""  # with strict tenancy: default namespace of owners
    takes_over_any: bool = False  # pre-allocation mode Cluster: also non-owners, by label
    current_owner: ObjectReference | None = None  # current user of an operating pod

    def is_for(self, owner_candidate: OwnerCandidate, *, is_strict: bool = False) -> bool:
        """Return whether such pods are owners; ``is_strict`` also checks namespaces."""
        if not self.serves(owner_candidate.namespace):
            return False
        namespace = self.owners_namespace if is_strict else ""
        return is_owner(self.owners, owner_candidate, namespace)

    def may_have_been_given_to(self, owner_candidate: OwnerCandidate) -> bool:
        """Return whether the scheduler can have assigned it to such pods, with strict tenancy.

        These are owners and, with pre-allocation in mode Cluster, pods of its namespace.
        """
        if self.takes_over_any and owner_candidate.namespace == self.owners_namespace:
            return True
        return self.is_for(owner_candidate, is_strict=True)

    def serves(self, namespace: str) -> bool:
        """Return whether pods of a namespace can be owners."""
        return self.namespace in ("", namespace)

    @property
    def is_restricted(self) -> bool:
        """Whether pods get only reserved amounts of the reserved resources."""
        return self.policy is AllocatePolicy.RESTRICTED


def offer_of(reservation: Reservation) -> ReservationOffer:
    """Return the offer of an available reservation.

    Raises InputError if an annotation can't be parsed: then there is no offer.
    """
    meta, spec = reservation.metadata, reservation.spec
    allocatable = reservation.status.allocatable or template_requests(spec.template.spec)
    amounts, policy = _canonical(allocatable), AllocatePolicy(spec.allocate_policy or "")
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
    """Return the offer of a pod that provides its amounts to its namespace.

    During a resize, the minimum of requested, granted and in-force amounts is offered. Raises
    InputError if the annotation of owners or of the current owner can't be parsed.
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
    """Return whether a reservation may take over pods that are not owners."""
    return policy is not None and policy.mode == "Cluster"


def withheld_in(meta: ObjectMeta) -> Amounts:
    """Return the amounts that an annotation withholds from owners; listed CPUs count as ``cpu``.

    Raises InputError if it can't be parsed.
    """
    inner = NODE_RESERVATION.read(meta)
    if inner is None:
        return {}
    withheld = dict(_canonical(inner.resources))
    if inner.reserved_cpus:
        withheld[CPU] = parse_cpu_list(inner.reserved_cpus).bit_count() * 1000
    return withheld


def restricted_of(amounts: Amounts, policy: AllocatePolicy, meta: ObjectMeta) -> frozenset[str]:
    """Return the restricted resources: all, unless an annotation limits Restricted to some.

    Raises InputError if the annotation can't be parsed.
    """
    options = RESTRICTED_OPTIONS.read(meta) if policy is AllocatePolicy.RESTRICTED else None
    limited = frozenset(options.resources if options else ()).intersection(amounts)
    return limited or frozenset(amounts)


def _canonical(resources: ResourceList) -> Amounts:
    return {name: bounded(name, quantity) for name, quantity in resources.items()}


def devices_left(allocated: Allocation, users: Iterable[Allocation]) -> Allocation:
    """Return the devices with their remaining amounts; exhausted devices are left out.

    Usage of other devices, or beyond the held amounts, is charged to the users.
    """
    taken: dict[tuple[DeviceType, int], list[TakenDevice]] = {}
    for allocation in users:
        for kind, devices in allocation.items():
            for device in devices:
                taken.setdefault((kind, device.minor), []).append(device)
    if not taken:
        return allocated
    left = {
        kind: tuple(
            rest
            for device in devices
            if (rest := _rest(device, taken.get((kind, device.minor), ()))) is not None
        )
        for kind, devices in allocated.items()
    }
    return {kind: devices for kind, devices in left.items() if devices}


def _rest(device: TakenDevice, taken: Iterable[TakenDevice]) -> TakenDevice | None:
    amounts = list(device.amounts)
    functions = device.functions
    for part in taken:
        amounts = [
            max(mine - theirs, 0) for mine, theirs in zip(amounts, part.amounts, strict=True)
        ]
        allocated = {function.bus_id for function in part.functions}
        functions = tuple(function for function in functions if function.bus_id not in allocated)
    if not any(amounts):
        return None
    return TakenDevice(device.minor, tuple(amounts), functions, device.template)


def numa_left(
    allocated: NumaAllocation | None, users: Iterable[NumaAllocation]
) -> NumaAllocation | None:
    """Return the remaining CPUs and amounts by NUMA node; None if nothing is left."""
    if allocated is None:
        return None
    cpus, taken = allocated.cpus, list(users)
    if not taken:
        return allocated
    for user in taken:
        cpus &= ~user.cpus
    zones = {
        zone: remaining(amounts, total(user.zones.get(zone, {}) for user in taken))
        for zone, amounts in allocated.zones.items()
    }
    zones = {zone: {n: a for n, a in amounts.items() if a} for zone, amounts in zones.items()}
    zones = {zone: amounts for zone, amounts in zones.items() if amounts}
    if not cpus and not zones:
        return None
    return NumaAllocation(cpus, zones, allocated.exclusive_policy)


def missing_parts(
    allocated: Allocation,
    numa: NumaAllocation | None,
    users: Iterable[tuple[Allocation, NumaAllocation | None]],
) -> tuple[str, ...]:
    """Return reasons for devices and CPUs of users that the reservation does not hold.

    Types that the reservation does not hold are ignored.
    """
    reasons: dict[str, None] = {}
    for devices, cpus in users:
        for kind, taken in allocated.items():
            minors = {device.minor for device in devices.get(kind, ())}
            if not minors <= {device.minor for device in taken}:
                reasons[NO_DEVICE[kind].reason] = None
        if numa is not None and numa.cpus and cpus is not None and cpus.cpus & ~numa.cpus:
            reasons[NOT_ENOUGH_CPUS] = None
    return tuple(reasons)
