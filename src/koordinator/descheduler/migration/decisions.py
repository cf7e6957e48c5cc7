"""Decision about the next step of a job, from its pod and its reservation.

``decide`` is a pure function of a ``JobSituation``.  The caller carries the decision out and calls
it again, so that a new process continues where the last one stopped.
Source: koordinator pkg/descheduler/controllers/migration/controller.go, ``doMigrate``.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from koordinator.api.annotations.scheduling import (
    EVICT,
    SOFT_EVICTION,
    USED_RESERVATION,
    EvictionAttempt,
)
from koordinator.api.conditions import find_condition
from koordinator.api.core import ObjectReference
from koordinator.api.labels import RESERVATION_ORDER
from koordinator.api.meta import Condition
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobMode
from koordinator.api.pod_migration_job import PodMigrationJobConditionType as Step
from koordinator.api.pod_migration_job import PodMigrationJobReason as Reason
from koordinator.api.reservation import (
    Reservation,
    ReservationConditionType,
    ReservationPhase,
    ReservationReason,
)
from koordinator.descheduler.migration.jobs import (
    attempt_of,
    has_second_reservation,
    mode_of,
)
from koordinator.descheduler.migration.reservation_template import (
    is_for_pending_pod,
    job_uid_of,
)
from koordinator.descheduler.migration.transitions import (
    LAST_STATES,
    NO_FACTS,
    EventFacts,
    JobEvent,
    JobState,
    state_of,
)
from koordinator.descheduler.migration.workloads import is_ready
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass

RETRY_S = 3.0
_BEFORE_EVICTION = frozenset(
    (JobState.DIRECT, JobState.UNRESERVED, JobState.RESERVING, JobState.RESERVED)
)
#: States in which the job with a reservation has not evicted its pod.
_BEFORE_ITS_EVICTION = frozenset(
    (JobState.ADMITTED, JobState.UNRESERVED, JobState.RESERVING, JobState.RESERVED)
)
_WAITS_FOR_NEXT_POD = frozenset((JobState.EVICTING, JobState.EVICTED))
_NEEDS_RESERVATION = frozenset((JobState.RESERVED, JobState.EVICTING, JobState.EVICTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSituation:
    """A job and the objects that it depends on.

    ``pod`` has the name in ``spec.podRef`` and any uid.  ``next_eviction_s`` is the earliest time
    that the object limiters allow.
    """

    job: PodMigrationJob
    now_s: float
    default_mode: str
    pod: Pod | None = None
    reservation: Reservation | None = None
    bound_pod: Pod | None = None
    next_eviction_s: float = 0.0

    @property
    def state(self) -> JobState:
        """State of the job."""
        return state_of(self.job, self.default_mode)

    @property
    def its_pod(self) -> Pod | None:
        """Pod to move, None if it does not exist or a pod of another uid has its name."""
        uid = self.job.spec.pod_ref.uid
        if self.pod is None or (uid and self.pod.metadata.uid != uid):
            return None
        return self.pod


@dataclass(frozen=True, slots=True)
class Transition:
    """Write an event to the job."""

    event: JobEvent
    facts: EventFacts = NO_FACTS


@dataclass(frozen=True, slots=True)
class CreateReservation:
    """Create a reservation for the pod."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class AssignReservationOrder:
    """Set the order label of a reservation that has none."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class OpenReservation:
    """Open the reservation to pods: the pod of the job is terminating or deleted."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class CloseReservation:
    """Close the reservation to pods: it was opened for an eviction that was not made."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the pod; ``reservation`` is for its replacement."""

    pod: Pod
    reservation: Reservation | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a time, or for events (None)."""

    until_s: float | None = None


JobDecision = (
    Transition
    | CreateReservation
    | AssignReservationOrder
    | OpenReservation
    | CloseReservation
    | Evict
    | Wait
)

_WAIT = Wait()


def decide(seen: JobSituation) -> JobDecision:
    """Return what to do next for a job."""
    job, state = seen.job, seen.state
    if job.spec.paused or state in LAST_STATES:
        return _WAIT
    if (end := _failure_of(seen)) is not None:
        return Transition(end)
    if (early := _opened_early(seen)) is not None:
        return CloseReservation(early)
    if state in _BEFORE_EVICTION and not _was_evicted(seen):
        is_limited = seen.its_pod is not None and seen.next_eviction_s > seen.now_s
        if is_limited and EVICT not in job.metadata.annotations:
            return Wait(seen.next_eviction_s)
    if state in _NEEDS_RESERVATION and (failure := _reservation_failure(seen)) is not None:
        return failure
    closed = _closed_reservation(seen) if state in _WAITS_FOR_NEXT_POD else None
    return _STEPS[state](seen) if closed is None else OpenReservation(closed)


def ttl_s(job: PodMigrationJob) -> float:
    """Return the time limit of a job; 0 means none."""
    return 0.0 if job.spec.ttl is None else max(0.0, job.spec.ttl.total_seconds())


def deadline_s(job: PodMigrationJob) -> float | None:
    """Return when an unfinished job fails; None means never."""
    lasts_s = ttl_s(job)
    return to_epoch_s(job.metadata.creation_timestamp) + lasts_s if lasts_s else None


def is_timed_out(job: PodMigrationJob, now_s: float) -> bool:
    """Return whether the deadline of the job has passed."""
    at_s = deadline_s(job)
    return at_s is not None and now_s >= at_s


def is_usable(reservation: Reservation, pod: Pod) -> bool:
    """Return whether a reservation is available on another node and unused."""
    status = reservation.status
    return (
        status.phase == ReservationPhase.AVAILABLE
        and bool(status.node_name)
        and status.node_name != pod.spec.node_name
        and not (reservation.spec.allocate_once and status.current_owners)
    )


def bound_reference(reservation: Reservation | None) -> ObjectReference | None:
    """Return the pod that uses the reservation."""
    owners = () if reservation is None else reservation.status.current_owners
    return owners[0] if owners else None


# -- states ----------------------------------------------------------------------------------


def _start(seen: JobSituation) -> JobDecision:
    reference, pod = seen.job.spec.pod_ref, seen.its_pod
    if not (reference.namespace and reference.name):
        return Transition(JobEvent.POD_REF_INVALID)
    if pod is None:
        return Transition(JobEvent.POD_MISSING)
    directly = mode_of(seen.job, seen.default_mode) is PodMigrationJobMode.EVICT_DIRECTLY
    event = JobEvent.STARTED_DIRECTLY if directly else JobEvent.STARTED_RESERVING
    return Transition(event, EventFacts(pod=reference_to_pod(pod)))


def _evict(seen: JobSituation) -> JobDecision:
    """Evict the pod unless an earlier eviction, whose answer was lost, has succeeded."""
    pod = seen.its_pod
    if pod is None:
        attempted = attempt_of(seen.job) is not None
        return Transition(JobEvent.POD_DELETED if attempted else JobEvent.POD_MISSING)
    if _was_evicted(seen):
        return Transition(JobEvent.EVICTION_ISSUED, EventFacts(node=pod.spec.node_name))
    return Evict(pod, seen.reservation if seen.state is JobState.RESERVED else None)


def _reserve(seen: JobSituation) -> JobDecision:
    job, pod = seen.job, seen.its_pod
    scheduled = find_condition(job.status.conditions, Step.RESERVATION_SCHEDULED)
    if scheduled is not None and scheduled.status == "True":  # of the first reservation
        used = ObjectReference(name=job.metadata.annotations.get(USED_RESERVATION, ""))
        return Transition(JobEvent.RESERVATION_USED, EventFacts(reservation=used))
    return Transition(JobEvent.POD_MISSING) if pod is None else CreateReservation(pod)


def _await_reservation(seen: JobSituation) -> JobDecision:
    job, reservation = seen.job, seen.reservation
    if reservation is None:
        return Transition(JobEvent.RESERVATION_MISSING)
    if not _has_condition(job, Step.RESERVATION_CREATED, "True"):
        return Transition(JobEvent.RESERVATION_MADE)
    if RESERVATION_ORDER not in reservation.metadata.labels:
        return AssignReservationOrder(reservation)
    unschedulable = _unschedulable(reservation)
    message = "" if unschedulable is None else unschedulable.message
    if unschedulable is not None and not _has_condition(
        job, Step.RESERVATION_SCHEDULED, "False", Reason.UNSCHEDULABLE, message
    ):
        return Transition(JobEvent.RESERVATION_WAITS, EventFacts(message=message))
    if reservation.status.phase in {"", ReservationPhase.PENDING}:
        return _WAIT
    return Transition(*_outcome_of(reservation, seen.pod, message))


def _outcome_of(
    reservation: Reservation, pod: Pod | None, message: str
) -> tuple[JobEvent, EventFacts]:
    """Return the event of a reservation that the scheduler has processed."""
    node = reservation.status.node_name
    if _is_expired(reservation):
        return JobEvent.RESERVATION_EXPIRED, NO_FACTS
    if not _is_scheduled(reservation):
        return JobEvent.RESERVATION_FAILED, EventFacts(message=message)
    if pod is not None and pod.spec.node_name == node:
        return JobEvent.RESERVATION_ON_SAME_NODE, NO_FACTS
    return JobEvent.RESERVATION_SCHEDULED, EventFacts(node=node)


def _use_reservation(seen: JobSituation) -> JobDecision:
    reservation, pod = seen.reservation, seen.its_pod
    if reservation is None:
        return Transition(JobEvent.RESERVATION_MISSING)
    if is_for_pending_pod(reservation):
        return _await_assignment(seen, reservation)
    if pod is not None and not _was_evicted(seen):
        if reservation.status.node_name == pod.spec.node_name:
            return Transition(JobEvent.RESERVATION_ON_SAME_NODE)
        if not is_usable(reservation, pod):
            return _taken(seen.job, reservation)
    return _evict(seen)


def _await_assignment(seen: JobSituation, reservation: Reservation) -> JobDecision:
    """Wait until the pending pod itself is scheduled: it needs no eviction."""
    pod = seen.its_pod
    if pod is None:
        return Transition(JobEvent.POD_MISSING)
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status != "False":
        return Transition(JobEvent.POD_ASSIGNED, EventFacts(node=pod.spec.node_name))
    bound = bound_reference(reservation)
    is_over = reservation.status.phase == ReservationPhase.SUCCEEDED
    if is_over and (bound is None or bound.uid != pod.metadata.uid):
        return _taken(seen.job, reservation)
    message = "" if scheduled is None else scheduled.message
    if _has_condition(seen.job, Step.POD_SCHEDULED, "False", Reason.UNSCHEDULABLE, message):
        return _WAIT
    return Transition(JobEvent.POD_WAITS, EventFacts(message=message))


def _taken(job: PodMigrationJob, reservation: Reservation) -> Transition:
    """Return the event of a reservation that another pod used: retry once, then fail."""
    may_retry = _is_own(job, reservation) and not has_second_reservation(job)
    return Transition(JobEvent.RESERVATION_USED if may_retry else JobEvent.RESERVATION_TAKEN)


def _opened_early(seen: JobSituation) -> Reservation | None:
    """Return the reservation of the job if pods may use it although its pod is not evicted."""
    reservation = seen.reservation
    if (
        reservation is None
        or seen.state is not JobState.RESERVED
        or reservation.spec.unschedulable
        or not _is_own(seen.job, reservation)
        or is_for_pending_pod(reservation)
        or _was_evicted(seen)
    ):
        return None
    pod = seen.its_pod
    return reservation if pod is not None and is_usable(reservation, pod) else None


def _closed_reservation(seen: JobSituation) -> Reservation | None:
    reservation = seen.reservation
    if reservation is None or not reservation.spec.unschedulable:
        return None
    return reservation if _is_own(seen.job, reservation) else None


def _is_own(job: PodMigrationJob, reservation: Reservation) -> bool:
    return job_uid_of(reservation.metadata) == job.metadata.uid


def _wait(seen: JobSituation) -> JobDecision:  # noqa: ARG001 -- as the others
    return _WAIT


def _await_end(seen: JobSituation) -> JobDecision:
    return Transition(JobEvent.POD_DELETED) if seen.its_pod is None else _WAIT


def _await_bound_pod(seen: JobSituation) -> JobDecision:
    bound = bound_reference(seen.reservation)
    if bound is not None:
        return Transition(JobEvent.POD_BOUND, EventFacts(pod=bound))
    reason = Reason.WAIT_FOR_POD_BIND_RESERVATION
    if _has_condition(seen.job, Step.POD_BOUND_RESERVATION, "False", reason):
        return _WAIT
    return Transition(JobEvent.NOT_BOUND_YET)


def _await_ready_pod(seen: JobSituation) -> JobDecision:
    pod, reference = seen.bound_pod, seen.job.status.pod_ref
    # A pod that was deleted or has finished since has been bound, and does not become ready.
    if pod is None or is_terminal(pod) or is_ready(pod):
        return Transition(JobEvent.POD_READY, EventFacts(pod=reference))
    reason = Reason.WAIT_FOR_BOUND_POD_READY
    if _has_condition(seen.job, Step.BOUND_POD_READY, "False", reason):
        return _WAIT
    return Transition(JobEvent.POD_NOT_READY, EventFacts(pod=reference))


def _reservation_failure(seen: JobSituation) -> Transition | None:
    reservation = seen.reservation
    if reservation is None:
        return Transition(JobEvent.RESERVATION_MISSING)
    if reservation.status.phase == ReservationPhase.FAILED:
        return Transition(JobEvent.RESERVATION_EXPIRED)
    return None


_STEPS: Mapping[JobState, Callable[[JobSituation], JobDecision]] = MappingProxyType(
    {
        JobState.WAITING: _wait,
        JobState.ADMITTED: _start,
        JobState.DIRECT: _evict,
        JobState.DIRECT_EVICTING: _await_end,
        JobState.UNRESERVED: _reserve,
        JobState.RESERVING: _await_reservation,
        JobState.RESERVED: _use_reservation,
        JobState.EVICTING: _await_end,
        JobState.EVICTED: _await_bound_pod,
        JobState.BOUND: _await_ready_pod,
    }
)


# -- parts -----------------------------------------------------------------------------------


def _failure_of(seen: JobSituation) -> JobEvent | None:
    """Return why the job fails regardless of its reservation: a timeout, or the end of its pod.

    No pod would use the reservation for a pod that ended by itself.
    """
    if is_timed_out(seen.job, seen.now_s):
        return JobEvent.TIMED_OUT
    pod = seen.its_pod
    if pod is None or not is_terminal(pod) or seen.state not in _BEFORE_ITS_EVICTION:
        return None
    is_direct = mode_of(seen.job, seen.default_mode) is PodMigrationJobMode.EVICT_DIRECTLY
    return None if is_direct or _was_evicted(seen) else JobEvent.POD_FINISHED


def _was_evicted(seen: JobSituation) -> bool:
    attempt = attempt_of(seen.job)
    return attempt is not None and is_evicted(seen.pod, attempt)


def is_evicted(pod: Pod | None, attempt: EvictionAttempt) -> bool:
    """Return whether an attempted eviction has taken effect.

    It has if the pod is deleted, terminating or annotated with a soft eviction.  ``pod`` is the pod
    that has the name now.
    """
    if pod is None or pod.metadata.uid != attempt.pod_uid:
        return True
    is_terminating = pod.metadata.deletion_timestamp is not None
    return is_terminating or SOFT_EVICTION.is_in(pod.metadata.annotations)


def _has_condition(
    job: PodMigrationJob, kind: Step, status: str, reason: str = "", message: str = ""
) -> bool:
    known = find_condition(job.status.conditions, kind)
    return known is not None and (known.status, known.reason, known.message) == (
        status,
        reason,
        message,
    )


def _unschedulable(reservation: Reservation) -> Condition | None:
    wanted = (ReservationConditionType.SCHEDULED, ReservationReason.UNSCHEDULABLE)
    conditions = reservation.status.conditions
    return next((each for each in conditions if (each.type, each.reason) == wanted), None)


def _is_scheduled(reservation: Reservation) -> bool:
    wanted = (ReservationConditionType.SCHEDULED, ReservationReason.SCHEDULED, "True")
    return bool(reservation.status.node_name) and any(
        (each.type, each.reason, each.status) == wanted for each in reservation.status.conditions
    )


def _is_expired(reservation: Reservation) -> bool:
    wanted = (ReservationConditionType.READY, ReservationReason.EXPIRED)
    return reservation.status.phase == ReservationPhase.FAILED and any(
        (each.type, each.reason) == wanted for each in reservation.status.conditions
    )


def reference_to_pod(pod: Pod) -> ObjectReference:
    """Return a reference with the uid, so that no later pod of the same name matches."""
    meta = pod.metadata
    return ObjectReference(namespace=meta.namespace, name=meta.name, uid=meta.uid)
