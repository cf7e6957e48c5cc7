"""Reserve pods: scheduler-internal pods that represent reservations.

They exist only in the scheduler, which queues, places and charges them.  The uid is the
reservation's uid; the name is the uid with a prefix, because the name of a real pod may equal any
uid. Source: koordinator pkg/util/reservation/reservation.go, ``NewReservePod``.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.annotations.numa import NODE_RESERVATION
from koordinator.api.annotations.reservation import (
    IS_PRE_ALLOCATION,
    RESERVATION_NAME,
    RESERVATION_NODE,
    RESERVE_POD,
)
from koordinator.api.conditions import is_condition_true
from koordinator.api.core import ResourceList, ResourceRequirements, Taint
from koordinator.api.defaults import with_defaults
from koordinator.api.kubescheduler import DEFAULT_SCHEDULER_NAME
from koordinator.api.labels import OPERATING_MODE, POD_PRIORITY, OperatingMode, is_true, parse_int32
from koordinator.api.meta import ApiStruct, ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus
from koordinator.api.reservation import (
    PreAllocationPolicy,
    Reservation,
    ReservationOwner,
    ReservationPhase,
)
from koordinator.domain.amounts import canonical
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.quantity import Quantity

HIGHEST_PRIORITY: Final = 2**31 - 1  # default of reservations: never preempted
DEFAULT_NAMESPACE: Final = "default"
NAME_PREFIX: Final = "reservation:"  # a colon is invalid in pod names
OVER: Final = (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)
_FAKE_CONTAINER = "__internal_fake_container__"  # carries amounts that differ from the template


class ReservePodTerms(ApiStruct, frozen=True, kw_only=True):
    """Terms of a reservation for its pod; all but the policy are set only for pre-allocation."""

    allocate_policy: str = ""
    pre_allocation: PreAllocationPolicy | None = None
    name: str = ""
    uid: str = ""
    owners: tuple[ReservationOwner, ...] = ()
    taints: tuple[Taint, ...] = ()
    withheld: str = ""  # annotation with amounts withheld from owners


TERMS: Final = AnnotationCodec(
    "internal.scheduling.koordinator.sh/reservation-terms", ReservePodTerms
)
#: Annotations that only ``reserve_pod`` sets; they are ignored on objects of the cluster.
INTERNAL_KEYS: Final = frozenset(
    {RESERVE_POD, RESERVATION_NAME, RESERVATION_NODE, IS_PRE_ALLOCATION, TERMS.key}
)


def without_internal_keys(pod: Pod) -> Pod:
    """Return a pod of the cluster without the annotations that mark a reserve pod."""
    meta = pod.metadata
    if not meta.annotations or INTERNAL_KEYS.isdisjoint(meta.annotations):
        return pod
    return replace(pod, metadata=replace(meta, annotations=_external(meta.annotations)))


def _external(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in annotations.items() if key not in INTERNAL_KEYS}


def is_reserve_pod(meta: ObjectMeta) -> bool:
    """Return whether a pod represents a reservation."""
    return is_true(meta.annotations, RESERVE_POD)


def reservation_name(meta: ObjectMeta) -> str:
    """Return the name of the represented reservation; empty if there is none."""
    return meta.annotations.get(RESERVATION_NAME, "") if is_reserve_pod(meta) else ""


def display_name(pod: Pod) -> str:
    """Return the display name of a pod: ``namespace/name``, or ``reservation/name``."""
    name = reservation_name(pod.metadata)
    return f"reservation/{name}" if name else pod.key


def is_for_others(labels: Mapping[str, str]) -> bool:
    """Return whether a pod with these labels offers its amounts as a reservation."""
    return labels.get(OPERATING_MODE) == OperatingMode.RESERVATION


def holds_for_others(pod: Pod) -> bool:
    """Return whether a pod offers its amounts now: it must be running and ready."""
    if not is_for_others(pod.metadata.labels):
        return False
    return pod.status.phase == "Running" and is_condition_true(pod.status.conditions, "Ready")


def is_active(reservation: Reservation) -> bool:
    """Return whether the reservation still needs a node."""
    return not reservation.status.node_name and reservation.status.phase not in OVER


def is_available(reservation: Reservation) -> bool:
    """Return whether the reservation holds amounts on a node."""
    status = reservation.status
    return bool(status.node_name) and status.phase == ReservationPhase.AVAILABLE


def reserve_pod(reservation: Reservation) -> Pod:
    """Return the reserve pod, on its node if the reservation is available."""
    meta, template, status = reservation.metadata, reservation.spec.template, reservation.status
    spec = template.spec
    annotations = {
        **_external(template.metadata.annotations),
        **_external(meta.annotations),
        RESERVE_POD: "true",
        RESERVATION_NAME: meta.name,
        **TERMS.entry(_terms(reservation)),
    }
    if reservation.spec.pre_allocation:
        annotations[IS_PRE_ALLOCATION] = "true"
    if spec.node_name:
        annotations[RESERVATION_NODE] = spec.node_name
    labels = {**template.metadata.labels, **meta.labels}
    if is_available(reservation) and status.allocatable:
        spec = _allocation(spec, status.allocatable)
    pod = Pod(
        metadata=replace(
            meta,
            name=f"{NAME_PREFIX}{meta.uid}",
            generate_name="",
            namespace=template.metadata.namespace or DEFAULT_NAMESPACE,
            labels=labels,
            annotations=annotations,
            owner_references=template.metadata.owner_references,
        ),
        spec=replace(
            spec,
            node_name=status.node_name if is_available(reservation) else "",
            scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER_NAME,
            priority=_priority(spec, meta.labels),
        ),
        status=PodStatus(phase=status.phase if status.phase in OVER else "Pending"),
    )
    return with_defaults(pod)


def _terms(reservation: Reservation) -> ReservePodTerms:
    meta, spec = reservation.metadata, reservation.spec
    if not spec.pre_allocation:
        return ReservePodTerms(allocate_policy=spec.allocate_policy or "")
    return ReservePodTerms(
        allocate_policy=spec.allocate_policy or "",
        pre_allocation=spec.pre_allocation_policy or PreAllocationPolicy(),
        name=meta.name,
        uid=meta.uid,
        owners=spec.owners,
        taints=spec.taints,
        withheld=meta.annotations.get(NODE_RESERVATION.key, ""),
    )


def template_requests(spec: PodSpec) -> ResourceList:
    """Return the requests of a template as quantities for the status."""
    requests = pod_requests(spec)
    notations = {
        name: quantity.notation
        for container in (*spec.containers, *spec.init_containers)
        for name, quantity in container.resources.requests.items()
    }
    return {
        name: Quantity.from_milli(amount)
        if name == "cpu"
        else Quantity.from_int(amount, binary=notations.get(name, "") == "BinarySI")
        for name, amount in requests.items()
    }


def _allocation(spec: PodSpec, allocated: ResourceList) -> PodSpec:
    """Return a spec that requests exactly the amounts in the status."""
    if pod_requests(spec) == {name: canonical(name, amount) for name, amount in allocated.items()}:
        return spec
    fake = Container(name=_FAKE_CONTAINER, resources=ResourceRequirements(requests=allocated))
    empty = ResourceRequirements()
    return replace(
        spec,
        resources=None,
        overhead={},
        containers=(*(replace(each, resources=empty) for each in spec.containers), fake),
        init_containers=tuple(replace(each, resources=empty) for each in spec.init_containers),
    )


def _priority(spec: PodSpec, labels: dict[str, str]) -> int:
    if spec.priority is not None:
        return spec.priority
    labelled = parse_int32(labels.get(POD_PRIORITY, ""))
    return HIGHEST_PRIORITY if labelled is None else labelled
