"""The status of a reservation as time passes and pods come and go.

Every function takes the reservation and returns its new status, or whether something is due.

Source: koordinator pkg/util/reservation/reservation.go, ``SetReservation…``;
pkg/scheduler/plugins/reservation/controller. Different here: what is due is due at its time, not
at the next of the original's rounds (3 to 15 s); koordinator
pkg/scheduler/frameworkext/eventhandlers/reservation_handler.go,
``generatePodEventOnReservationLevel``.
"""

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.reservation import RESIZE_ALLOCATABLE
from koordinator.api.conditions import find_condition
from koordinator.api.core import ObjectReference, ResourceList
from koordinator.api.meta import Condition
from koordinator.api.pod import Pod
from koordinator.api.reservation import (
    Reservation,
    ReservationConditionType,
    ReservationPhase,
    ReservationReason,
    ReservationStatus,
)
from koordinator.domain.amounts import canonical
from koordinator.domain.reserve_pod import OVER, is_available, template_requests
from koordinator.domain.resized_pods import ResizeRules, effective_requests
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.rules.reservations.match import in_terms_of

SCHEDULED, READY = ReservationConditionType.SCHEDULED, ReservationConditionType.READY

_HEAD: Final = re.compile(r"^0/\d+ nodes are available: ")
_ITEM: Final = re.compile(r"^\d+ Reservation\(s\) ")
_TOTAL: Final = re.compile(r"^(\d+) Reservation\(s\) matched owner total$")
_FIRST: Final = "exactly matches the requested reservation name"
_LAST: Final = "for node reason that"


def available(reservation: Reservation, node: str, now: dt.datetime) -> ReservationStatus:
    """Return the status of a reservation that was placed on a node.

    Raises InputError if the annotation with resized amounts can't be parsed.
    """
    resized = RESIZE_ALLOCATABLE.read(reservation.metadata)
    requests = template_requests(reservation.spec.template.spec)
    return replace(
        reservation.status,
        phase=ReservationPhase.AVAILABLE,
        node_name=node,
        allocatable={**requests, **(resized.resources if resized else {})},
        conditions=(
            _condition(SCHEDULED, ReservationReason.SCHEDULED, now, status="True"),
            _condition(READY, ReservationReason.AVAILABLE, now, status="True"),
        ),
    )


def unschedulable(
    reservation: Reservation, message: str, now: dt.datetime
) -> ReservationStatus | None:
    """Return the status of an unschedulable reservation; None if it is unchanged or placed."""
    known = find_condition(reservation.status.conditions, SCHEDULED)
    if known is not None and (known.status == "True" or known.message == message):
        return None
    since = known.last_transition_time if known is not None else None
    failed = _condition(SCHEDULED, ReservationReason.UNSCHEDULABLE, now, message=message)
    if since is not None:
        failed = replace(failed, last_transition_time=since)
    return replace(
        reservation.status,
        phase=reservation.status.phase or ReservationPhase.PENDING,
        conditions=_with(reservation, failed),
    )


def expired(reservation: Reservation, now: dt.datetime) -> ReservationStatus:
    """Return the status of a reservation that expired or whose node was deleted."""
    return _ended(reservation, ReservationPhase.FAILED, ReservationReason.EXPIRED, now)


def used(
    reservation: Reservation, owners: Iterable[Pod], now: dt.datetime, rules: ResizeRules
) -> ReservationStatus | None:
    """Return the status with these pods as owners; None if it is unchanged.

    Pods that are resized count by ``rules``.  A reservation with allocateOnce has succeeded then.
    """
    pods = sorted(owners, key=lambda pod: pod.metadata.uid)
    status = reservation.status
    references = tuple(
        ObjectReference(
            namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid
        )
        for pod in pods
    )
    allocated = _allocated(pods, status.allocatable, rules)
    if references == status.current_owners and allocated == {
        name: amount for name, amount in status.allocated.items() if amount.nanos
    }:
        return None
    status = replace(status, current_owners=references, allocated=allocated)
    if not references or not reservation.spec.allocate_once:
        return status
    ended = _ended(reservation, ReservationPhase.SUCCEEDED, ReservationReason.SUCCEEDED, now)
    return replace(status, phase=ended.phase, conditions=ended.conditions)


def expires_s(reservation: Reservation) -> float | None:
    """Return the expiry of an available reservation, in seconds since the epoch.

    None: never, as with a ttl of 0.  The earlier of ttl and expires applies.
    """
    spec = reservation.spec
    ttl_s = spec.ttl.total_seconds()
    if not is_available(reservation) or not ttl_s:
        return None
    created_s = to_epoch_s(reservation.metadata.creation_timestamp)
    times = [created_s + ttl_s]
    if spec.expires is not None:
        times.append(to_epoch_s(spec.expires))
    return min(times)


def is_collectable(reservation: Reservation) -> bool:
    """Return whether a reservation may be garbage-collected: it expired or succeeded.

    Reservations that failed for other reasons are left to their users.
    """
    if reservation.status.phase == ReservationPhase.SUCCEEDED:
        return True
    ready = find_condition(reservation.status.conditions, READY)
    return (
        reservation.status.phase == ReservationPhase.FAILED
        and ready is not None
        and (ready.status, ready.reason) == ("False", ReservationReason.EXPIRED)
    )


def ended_s(reservation: Reservation) -> float | None:
    """Return the end of a collectable reservation, in seconds since the epoch; None if unknown."""
    for condition in reservation.status.conditions:
        if condition.reason == ReservationReason.EXPIRED:
            return to_epoch_s(condition.last_transition_time)
        if condition.reason == ReservationReason.SUCCEEDED:
            return to_epoch_s(condition.last_probe_time)
    return None


def _allocated(pods: Sequence[Pod], allocatable: ResourceList, rules: ResizeRules) -> ResourceList:
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in in_terms_of(allocatable, effective_requests(pod, rules)).items():
            if name in allocatable:
                total[name] = total.get(name, 0) + amount
    return {name: _quantity(name, amount, allocatable) for name, amount in total.items() if amount}


def _quantity(name: str, amount: int, like: ResourceList) -> Quantity:
    if canonical(name, like[name]) == amount:
        return like[name]
    if name == "cpu":
        return Quantity.from_milli(amount)
    return Quantity.from_int(amount, binary=like[name].notation == "BinarySI")


def _ended(
    reservation: Reservation, phase: ReservationPhase, reason: ReservationReason, now: dt.datetime
) -> ReservationStatus:
    if reservation.status.phase in OVER:
        return reservation.status
    condition = _condition(READY, reason, now)
    return replace(reservation.status, phase=phase, conditions=_with(reservation, condition))


def _with(reservation: Reservation, new: Condition) -> tuple[Condition, ...]:
    conditions = reservation.status.conditions
    if not any(c.type == new.type for c in conditions):
        return (*conditions, new)
    return tuple(new if c.type == new.type else c for c in conditions)


def _condition(
    kind: str, reason: str, now: dt.datetime, *, status: str = "False", message: str = ""
) -> Condition:
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_probe_time=now,
        last_transition_time=now,
    )


def reservation_message(message: str) -> str:
    """Return the reservation part of a pod's message; empty if the pod owns none.

    Named reservations come first, reasons of nodes last.
    """
    items = [
        item.strip().rstrip(".")
        for item in _HEAD.sub("", message).replace(". ", ", ").split(",")
        if _ITEM.match(item.strip())
    ]
    totals = [match.group(1) for item in items if (match := _TOTAL.match(item))]
    if not totals:
        return ""
    left = [item for item in items if not _TOTAL.match(item)]
    left.sort(key=lambda item: (_LAST in item) - (_FIRST in item))
    return f"0/{totals[0]} reservations are available: {', '.join(left)}."
