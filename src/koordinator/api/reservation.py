"""Reservations: resources of a node that are kept for pods to come.

Source: koordinator apis/scheduling/v1alpha1/reservation_types.go; pkg/util/reservation,
``ValidateReservation``.
"""

import datetime as dt
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from koordinator.api.core import ObjectReference, ResourceList, Taint
from koordinator.api.crd import CustomResource, PrinterColumn, UntypedPodTemplate
from koordinator.api.meta import ApiStruct, Condition, LabelSelector
from koordinator.api.pod_validation import TAINT_EFFECTS
from koordinator.api.resource_validation import check_amounts
from koordinator.api.selectors import check_label_selector
from koordinator.api.syntax import check_one_of
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError

DEFAULT_TTL = Duration(hours=24)


class ReservationPhase(StrEnum):
    """Phase of a reservation; Waiting is never set."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    SUCCEEDED = "Succeeded"
    WAITING = "Waiting"
    FAILED = "Failed"


class ReservationConditionType(StrEnum):
    """Types of conditions of a reservation."""

    SCHEDULED = "Scheduled"  # whether the reservation has a node
    READY = "Ready"  # whether pods can use the reservation


class ReservationReason(StrEnum):
    """Reason of a condition of a reservation."""

    SCHEDULED = "Scheduled"  # a node was chosen
    UNSCHEDULABLE = "Unschedulable"  # no node has room
    AVAILABLE = "Available"  # its amounts are reserved on its node
    SUCCEEDED = "Succeeded"  # a pod has used a reservation for one pod
    EXPIRED = "Expired"  # its time is over, or its node was deleted


class ReservationControllerReference(ApiStruct, frozen=True, kw_only=True):
    """The controller whose pods may use the reservation."""

    api_version: str  # API version of the controller
    kind: str  # kind of the controller
    name: str  # name of the controller
    uid: str  # UID of the controller
    controller: bool | None = None  # whether it is the controller of the pods
    block_owner_deletion: bool | None = None  # whether the pods delay its deletion
    namespace: str = ""  # namespace of the controller


class ReservationOwner(ApiStruct, frozen=True, kw_only=True):
    """Pods that may use the reservation: what is given is ANDed, and something has to be given."""

    object: ObjectReference | None = None  # a single pod
    controller: ReservationControllerReference | None = None  # pods of a controller
    label_selector: LabelSelector | None = None  # pods with certain labels


class PreAllocationPolicy(ApiStruct, frozen=True, kw_only=True):
    """Pods whose resources may be reserved in advance; Cluster: any pod marked for it."""

    #: candidates: pods that match the owners, or in Cluster mode pods with a label
    mode: Literal["Default", "Cluster"] = "Default"
    enable_multiple: bool = False  # whether several pods may be taken over


class ReservationSpec(ApiStruct, frozen=True, kw_only=True):
    """Resources to reserve, and their owners.

    Without ``allocate_policy`` it is Aligned, and shares no node with reservations of the other
    policies.  A ``ttl`` of 0 means no expiry, even if ``expires`` is set; else the earlier of both
    applies.
    """

    template: UntypedPodTemplate  # pod whose resources and placement are reserved
    #: pods that may use the reservation; one of the owners has to match
    owners: Annotated[tuple[ReservationOwner, ...], Meta(min_length=1)]
    ttl: Duration = DEFAULT_TTL  # time after creation until it expires; 0: never
    expires: dt.datetime | None = None  # time at which it expires
    pre_allocation: bool = False  # whether resources of running pods may be reserved
    pre_allocation_policy: PreAllocationPolicy | None = None  # how these running pods are chosen
    allocate_once: bool = True  # whether it ends with the first pod that uses it
    #: whether pods may take more of the reserved resources from the node (Aligned) or not
    allocate_policy: Literal["Aligned", "Restricted"] | None = None
    unschedulable: bool = False  # whether new pods are kept from using it
    taints: tuple[Taint, ...] = ()  # taints that its users have to tolerate


class ReservationStatus(ApiStruct, frozen=True, kw_only=True):
    """Node of a reservation, and its reserved and used amounts."""

    phase: str = ReservationPhase.PENDING.value  # a ReservationPhase
    conditions: tuple[Condition, ...] = ()  # conditions of the reservation
    current_owners: tuple[ObjectReference, ...] = ()  # pods that use it
    node_name: str = ""  # node of the reservation
    allocatable: ResourceList = {}  # reserved resources
    allocated: ResourceList = {}  # resources that pods use


class Reservation(CustomResource, frozen=True, kw_only=True):
    """Resources that are scheduled like a pod and then wait for pods."""

    API_VERSION: ClassVar[str] = "scheduling.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "Reservation"
    PLURAL: ClassVar[str] = "reservations"
    NAMESPACED: ClassVar[bool] = False
    SUBRESOURCE_STATUS: ClassVar[bool] = True
    PRINTER_COLUMNS: ClassVar[tuple[PrinterColumn, ...]] = (
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        PrinterColumn("Node", ".status.nodeName"),
        PrinterColumn("TTL", ".spec.ttl"),
        PrinterColumn("Expires", ".spec.expires"),
    )

    spec: ReservationSpec
    status: ReservationStatus = ReservationStatus()


def validate_reservation(reservation: Reservation) -> None:
    """Raise InputError for owners, amounts or taints that can't be meant."""
    spec = reservation.spec
    check_owners(spec.owners, "spec.owners")
    for field, containers in (
        ("containers", spec.template.spec.containers),
        ("initContainers", spec.template.spec.init_containers),
    ):
        for index, container in enumerate(containers):
            path = f"spec.template.spec.{field}[{index}].resources.requests"
            check_amounts(container.resources.requests, path)
    for index, taint in enumerate(spec.taints):
        check_one_of(taint.effect, TAINT_EFFECTS, f"spec.taints[{index}].effect")


def check_owners(owners: tuple[ReservationOwner, ...], path: str) -> None:
    """Raise InputError for an owner without criteria and for an invalid selector."""
    for index, owner in enumerate(owners):
        field_path = f"{path}[{index}]"
        if owner == ReservationOwner():
            raise InputError(
                "must set at least one of object, controller, labelSelector",
                path=field_path,
            )
        check_label_selector(owner.label_selector, f"{field_path}.labelSelector")


KINDS = (Reservation,)
