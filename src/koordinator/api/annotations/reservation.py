"""Annotations of reservations and of the pods that use them.

Source: koordinator apis/extension/reservation.go, operating_pod.go; pkg/util/reservation.
"""

from typing import Final

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.core import NodeSelectorTerm, ObjectReference, ResourceList, Toleration
from koordinator.api.labels import parse_int32
from koordinator.api.meta import ApiStruct, ObjectMeta
from koordinator.api.reservation import ReservationOwner
from koordinator.api.selectors import check_node_selector_term

RESERVE_POD: Final = "scheduling.koordinator.sh/reserve-pod"  # "true": a reserve pod
#: name of the reservation of a reserve pod
RESERVATION_NAME: Final = "scheduling.koordinator.sh/reservation-name"
RESERVATION_NODE: Final = "scheduling.koordinator.sh/reservation-node"  # node of the reservation
#: true: the reserve pod takes the place of a running pod
IS_PRE_ALLOCATION: Final = "scheduling.koordinator.sh/is-pre-allocation"
_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution.reservationSelectorTerms"
#: order among candidates for pre-allocation
PRE_ALLOCATABLE_PRIORITY: Final = "pod.koordinator.sh/pre-allocatable-priority"

OWNERS = AnnotationCodec(
    "scheduling.koordinator.sh/reservation-owners", tuple[ReservationOwner, ...]
)  # pods that may use the room of this pod
CURRENT_OWNER = AnnotationCodec(
    "scheduling.koordinator.sh/reservation-current-owner", ObjectReference
)  # pod that uses the reservation


class ReservationAllocated(ApiStruct, frozen=True, kw_only=True):
    """The reservation that a pod uses."""

    name: str = ""  # name of the reservation
    uid: str = ""  # UID of the reservation


class ReservationAffinitySelector(ApiStruct, frozen=True, kw_only=True):
    """ORed terms over the labels of the reservation and its node."""

    reservation_selector_terms: tuple[NodeSelectorTerm, ...] = ()  # terms; one must match


class ReservationAffinity(ApiStruct, frozen=True, kw_only=True):
    """Selector of the reservation that a pod must use; a name overrides all other fields."""

    name: str = ""  # name of the only reservation that the pod may use
    #: terms that the reservation must match
    required_during_scheduling_ignored_during_execution: ReservationAffinitySelector | None = None
    reservation_selector: dict[str, str] = {}  # labels that the reservation must have
    tolerations: tuple[Toleration, ...] = ()  # taints of reservations that the pod tolerates


class ExactMatchReservation(ApiStruct, frozen=True, kw_only=True):
    """Resources whose reserved amount must equal the request of the pod."""

    resource_names: tuple[str, ...] = ()  # names of the resources


class RestrictedOptions(ApiStruct, frozen=True, kw_only=True):
    """The resources that policy Restricted is about; none means all that are reserved."""

    resources: tuple[str, ...] = ()  # names of the resources


class ResizeAllocatable(ApiStruct, frozen=True, kw_only=True):
    """Amounts that a reservation keeps in place of what its template requests."""

    resources: ResourceList = {}  # reserved amounts by resource


#: reservation that the pod uses
ALLOCATED = AnnotationCodec("scheduling.koordinator.sh/reservation-allocated", ReservationAllocated)
EXACT_MATCH = AnnotationCodec(
    "scheduling.koordinator.sh/exact-match-reservation", ExactMatchReservation
)  # resources that a reservation must match exactly
RESTRICTED_OPTIONS = AnnotationCodec(
    "scheduling.koordinator.sh/reservation-restricted-options", RestrictedOptions
)  # resources of the policy Restricted
RESIZE_ALLOCATABLE = AnnotationCodec(
    "scheduling.koordinator.sh/reservation-resize-allocatable", ResizeAllocatable
)  # amounts that the reservation keeps
#: reservations that the pod must use
AFFINITY = AnnotationCodec("scheduling.koordinator.sh/reservation-affinity", ReservationAffinity)


def read_reservation_affinity(meta: ObjectMeta) -> ReservationAffinity | None:
    """Return the affinity; an empty annotation selects any reservation.

    Raises InputError if the annotation can't be read, or has terms that can't be meant.
    """
    if AFFINITY.key not in meta.annotations:
        return None
    affinity = AFFINITY.read(meta) or ReservationAffinity()
    required = affinity.required_during_scheduling_ignored_during_execution
    for index, term in enumerate(required.reservation_selector_terms if required else ()):
        check_node_selector_term(term, f"{AFFINITY.path}.{_TERMS}[{index}]")
    return affinity


def pre_allocatable_priority(meta: ObjectMeta, key: str = PRE_ALLOCATABLE_PRIORITY) -> int:
    """Return the order in which pods give up resources, larger first; 0 if there is none."""
    return parse_int32(meta.annotations.get(key, "")) or 0
