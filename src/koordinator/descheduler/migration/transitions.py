"""State machine of a PodMigrationJob: one table of states, events and following states.

``state_of`` derives the state from the object; no other copy of the state exists.  ``apply_event``
returns the job after an event and the Kubernetes events to report.  An event that the table does
not have in a state raises an error with the history of the job.  The module does no I/O.

EvictDirectly::

    WAITING ─► ADMITTED ─► DIRECT ─► DIRECT_EVICTING ─► SUCCEEDED

ReservationFirst::

    WAITING ─► ADMITTED ─► UNRESERVED ─► RESERVING ─► RESERVED ─► EVICTING ─► EVICTED ─► BOUND
                             ▲                            │           │                    │
                             └─ first reservation used ───┼───────────┘                    │
                                         of a pending pod └──────────► SUCCEEDED ◄─────────┘

A job may FAIL from every state that is not a final one.
Source: koordinator pkg/descheduler/controllers/migration/controller.go, ``doMigrate``.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.scheduling import PASSED_ARBITRATION, USED_RESERVATION
from koordinator.api.conditions import find_condition, is_condition_true
from koordinator.api.core import ObjectReference
from koordinator.api.meta import Condition
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
    PodMigrationJobMode,
    PodMigrationJobPhase,
    PodMigrationReservationOptions,
)
from koordinator.api.pod_migration_job import PodMigrationJobConditionType as Step
from koordinator.api.pod_migration_job import PodMigrationJobReason as Reason
from koordinator.descheduler.migration.jobs import (
    JobAnnouncement,
    has_passed,
    has_second_reservation,
    has_started,
    mode_of,
    pod_key,
    reason_of,
    reservation_ref,
)
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass

COMPLETE: Final = "Complete"  # PodMigrationJob: the pod was moved
#: PodMigrationJob: another pod has used its reservation, so that a second one is created.
RESERVATION_USED: Final = "ReservationUsed"


class JobState(StrEnum):
    """State of a job; the values appear in error messages."""

    WAITING = "waiting for arbitration"
    ADMITTED = "admitted"
    DIRECT = "to be evicted without a reservation"
    DIRECT_EVICTING = "being evicted without a reservation"
    UNRESERVED = "without a reservation yet"
    RESERVING = "waiting for a node for the reservation"
    RESERVED = "reserved"
    EVICTING = "being evicted"
    EVICTED = "evicted"
    BOUND = "bound to the reservation"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"


class JobEvent(StrEnum):
    """Event in the life of a job; the values appear in error messages."""

    ADMITTED = "arbitration admits the job"
    FORBIDDEN = "the pod must not be result"
    TIMED_OUT = "the ttl has passed"
    POD_REF_INVALID = "spec.podRef names no pod"
    POD_MISSING = "the pod does not exist, and the job has not evicted it"
    POD_FINISHED = "the pod has finished, so that no pod replaces it"
    STARTED_DIRECTLY = "the job starts without a reservation"
    STARTED_RESERVING = "the job starts with a reservation"
    RESERVATION_REFUSED = "the reservation cannot be created"
    RESERVATION_MADE = "the reservation exists"
    RESERVATION_MISSING = "the reservation does not exist"
    RESERVATION_WAITS = "the scheduler finds no node for the reservation"
    RESERVATION_EXPIRED = "the reservation expired unused"
    RESERVATION_FAILED = "the reservation cannot be scheduled any more"
    RESERVATION_ON_SAME_NODE = "the reservation is on the node of the pod"
    RESERVATION_TAKEN = "another pod has used the last reservation of the job"
    RESERVATION_USED = "another pod has used the first reservation of the job"
    RESERVATION_SCHEDULED = "the reservation has a node"
    POD_WAITS = "the pending pod has no node yet"
    POD_ASSIGNED = "the pending pod has a node"
    EVICTION_ISSUED = "the pod is being evicted"
    POD_DELETED = "the evicted pod is deleted"
    NOT_BOUND_YET = "no pod uses the reservation yet"
    POD_BOUND = "a pod uses the reservation"
    POD_NOT_READY = "the new pod is not ready yet"
    POD_READY = "the new pod is ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """Details of an event; fields that do not apply are empty."""

    message: str = ""
    node: str = ""
    pod: ObjectReference | None = None
    reservation: ObjectReference | None = None


NO_FACTS: Final = EventFacts()


@dataclass(frozen=True, slots=True)
class TransitionResult:
    """Job after an event, and the Kubernetes events to report."""

    job: PodMigrationJob
    announcements: tuple[JobAnnouncement, ...] = ()


class IllegalMoveError(BugError):
    """Event that the table does not have in the state of the job."""


Effect = Callable[[PodMigrationJob, EventFacts, dt.datetime], TransitionResult]


def state_of(job: PodMigrationJob, default_mode: str) -> JobState:
    """Return the state of a job, derived from its object."""
    phase = job.status.phase
    if not has_started(job):
        return JobState.ADMITTED if has_passed(job) else JobState.WAITING
    if phase != PodMigrationJobPhase.RUNNING:
        return _ENDED.get(phase, JobState.ABORTED)  # jobs of unknown phases are not touched
    if mode_of(job, default_mode) is PodMigrationJobMode.EVICT_DIRECTLY:
        has_begun = find_condition(job.status.conditions, Step.EVICTION) is not None
        return JobState.DIRECT_EVICTING if has_begun else JobState.DIRECT
    return _reserving_state(job)


def apply_event(
    job: PodMigrationJob,
    event: JobEvent,
    now: dt.datetime,
    facts: EventFacts = NO_FACTS,
    *,
    default_mode: str = PodMigrationJobMode.RESERVATION_FIRST,
) -> TransitionResult:
    """Return the job after an event.

    Raises IllegalMoveError with the history of the job for an event that the table does not have.
    """
    state = state_of(job, default_mode)
    if event not in TRANSITIONS[state]:
        raise IllegalMoveError(
            f'PodMigrationJob {job.metadata.name}: "{event}" cannot happen while it is "{state}"; '
            f"history: {history_of(job)}"
        )
    completes = event is JobEvent.POD_DELETED and TRANSITIONS[state][event] is JobState.SUCCEEDED
    effect = _pod_deleted_directly if completes else EFFECTS[event]
    return effect(job, facts, now)


def history_of(job: PodMigrationJob) -> str:
    """Return the conditions of a job as text, the oldest first."""
    meta, status = job.metadata, job.status
    conditions = [
        (each.last_transition_time, f"{each.type} {each.status} {each.reason}".rstrip())
        for each in status.conditions
    ]
    conditions.sort(key=lambda each: each[0].isoformat() if each[0] is not None else "")
    steps = [f"{'' if at is None else f'{at:%H:%M:%S} '}{text}" for at, text in conditions]
    created = meta.creation_timestamp
    begin = f"created{'' if created is None else f' {created:%H:%M:%S}'} for {_pod(job)}"
    now = f"now {status.phase or 'Pending'} {status.reason}".rstrip()
    return "; ".join([begin, *steps, now])


# -- effects ---------------------------------------------------------------------------------


def _failed(reason: str, text: Callable[[PodMigrationJob, EventFacts], str]) -> Effect:
    def effect(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:  # noqa: ARG001
        message = text(job, facts)
        status = replace(
            job.status, phase=PodMigrationJobPhase.FAILED.value, reason=reason, message=message
        )
        announcement = JobAnnouncement(reason, message or reason, is_warning=True)
        return TransitionResult(replace(job, status=status), (announcement,))

    return effect


def _admitted(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:  # noqa: ARG001
    annotations = {**job.metadata.annotations, PASSED_ARBITRATION: "true"}
    return TransitionResult(replace(job, metadata=replace(job.metadata, annotations=annotations)))


def _started(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:  # noqa: ARG001
    spec = job.spec
    if facts.pod is not None and not spec.pod_ref.uid:
        spec = replace(spec, pod_ref=replace(spec.pod_ref, uid=facts.pod.uid))
    status = replace(job.status, phase=PodMigrationJobPhase.RUNNING.value)
    return TransitionResult(replace(job, spec=spec, status=status))


def _reservation_refused(
    job: PodMigrationJob, facts: EventFacts, now: dt.datetime
) -> TransitionResult:
    reason = Reason.FAILED_CREATE_RESERVATION
    message = f"Failed to create Reservation caused by {facts.message}"
    announcement = JobAnnouncement(reason, message, is_warning=True)
    return _changed(
        job,
        Step.RESERVATION_CREATED,
        "False",
        now,
        reason=reason,
        message=message,
        announcement=announcement,
    )


def _reservation_made(
    job: PodMigrationJob, facts: EventFacts, now: dt.datetime
) -> TransitionResult:
    if facts.reservation is not None:
        options = job.spec.reservation_options or PodMigrationReservationOptions()
        options = replace(options, reservation_ref=facts.reservation)
        job = replace(job, spec=replace(job.spec, reservation_options=options))
    note = f'Successfully create Reservation "{_reservation(job)}"'
    announcement = JobAnnouncement(Step.RESERVATION_CREATED, note)
    return _changed(job, Step.RESERVATION_CREATED, "True", now, announcement=announcement)


def _reservation_waits(
    job: PodMigrationJob, facts: EventFacts, now: dt.datetime
) -> TransitionResult:
    reason, message = Reason.UNSCHEDULABLE, facts.message
    announcement = JobAnnouncement(reason, message or reason, is_warning=True)
    return _changed(
        job,
        Step.RESERVATION_SCHEDULED,
        "False",
        now,
        reason=reason,
        message=message,
        announcement=announcement,
    )


def _reservation_scheduled(
    job: PodMigrationJob, facts: EventFacts, now: dt.datetime
) -> TransitionResult:
    job = replace(job, status=replace(job.status, node_name=facts.node))
    note = f'Assigned Reservation "{_reservation(job)}" to node "{facts.node}"'
    announcement = JobAnnouncement(Step.RESERVATION_SCHEDULED, note)
    return _changed(job, Step.RESERVATION_SCHEDULED, "True", now, announcement=announcement)


def _reservation_used(
    job: PodMigrationJob, facts: EventFacts, now: dt.datetime
) -> TransitionResult:
    """Detach the used reservation, so that the job makes its second and last one."""
    used = facts.reservation.name if facts.reservation is not None else _reservation(job)
    annotations = {**job.metadata.annotations, USED_RESERVATION: used}
    options = job.spec.reservation_options
    if options is not None:
        options = replace(options, reservation_ref=None)
    job = replace(
        job,
        metadata=replace(job.metadata, annotations=annotations),
        spec=replace(job.spec, reservation_options=options),
        status=replace(job.status, node_name=""),
    )
    message = f'Reservation "{used}" is used by another Pod'
    announcement = JobAnnouncement(RESERVATION_USED, message, is_warning=True)
    job = _with_condition(job, Step.RESERVATION_CREATED, "False", now, reason=RESERVATION_USED)
    return _changed(
        job,
        Step.RESERVATION_SCHEDULED,
        "False",
        now,
        reason=RESERVATION_USED,
        message=message,
        announcement=announcement,
    )


def _pod_waits(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:
    reason = Reason.UNSCHEDULABLE
    return _changed(job, Step.POD_SCHEDULED, "False", now, reason=reason, message=facts.message)


def _pod_assigned(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:
    message = f'Assign Pod "{_pod(job)}" to node "{facts.node}"'
    job = _with_condition(job, Step.POD_SCHEDULED, "True", now)
    return _completed(job, message)


def _eviction_issued(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:
    message = f'Pod "{_pod(job)}" evicted from node "{facts.node}" by the reason "{reason_of(job)}"'
    announcement = JobAnnouncement(Reason.EVICTING, message)
    return _changed(
        job,
        Step.EVICTION,
        "False",
        now,
        reason=Reason.EVICTING,
        message=message,
        announcement=announcement,
    )


def _pod_deleted(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:  # noqa: ARG001
    note = f'Pod "{_pod(job)}" has been evicted'
    announcement = JobAnnouncement(Reason.EVICT_COMPLETE, note)
    return _changed(
        job, Step.EVICTION, "True", now, reason=Reason.EVICT_COMPLETE, announcement=announcement
    )


def _not_bound_yet(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:  # noqa: ARG001
    reason = Reason.WAIT_FOR_POD_BIND_RESERVATION
    announcement = JobAnnouncement(reason, "Waiting for Pod bind Reservation")
    return _changed(
        job, Step.POD_BOUND_RESERVATION, "False", now, reason=reason, announcement=announcement
    )


def _pod_bound(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:
    """Record the new pod; ``status.status`` is not changed, as in the original."""
    status = replace(job.status, pod_ref=facts.pod)
    job = _with_condition(replace(job, status=status), Step.RESERVATION_BOUND, "True", now)
    note = f'Reservation bound by pod "{_named(facts.pod)}"'
    return TransitionResult(job, (JobAnnouncement("PodBoundReservation", note),))


def _pod_not_ready(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:
    reason = Reason.WAIT_FOR_BOUND_POD_READY
    announcement = JobAnnouncement(reason, f"Waiting for Bound Pod {_named(facts.pod)} Ready")
    return _changed(
        job, Step.BOUND_POD_READY, "False", now, reason=reason, announcement=announcement
    )


def _pod_ready(job: PodMigrationJob, facts: EventFacts, now: dt.datetime) -> TransitionResult:
    message = f'Bind Pod "{_named(facts.pod)}" in Reservation "{_reservation(job)}"'
    ready = JobAnnouncement("BoundPodReady", f'Bind pod "{_named(facts.pod)}" is ready')
    job = _with_condition(job, Step.BOUND_POD_READY, "True", now)
    job = _with_condition(job, Step.POD_BOUND_RESERVATION, "True", now, message=message)
    result = _completed(replace(job, status=replace(job.status, pod_ref=facts.pod)), message)
    return TransitionResult(result.job, (ready, *result.announcements))


def _pod_deleted_directly(
    job: PodMigrationJob, facts: EventFacts, now: dt.datetime
) -> TransitionResult:
    result = _pod_deleted(job, facts, now)
    message = f'Pod "{_pod(job)}" has been evicted'
    return TransitionResult(_completed(result.job, message).job, result.announcements)


EFFECTS: Final[Mapping[JobEvent, Effect]] = MappingProxyType(
    {
        JobEvent.ADMITTED: _admitted,
        JobEvent.FORBIDDEN: _failed(
            Reason.FORBIDDEN_MIGRATE_POD,
            lambda job, _: (
                f'Pod "{_pod(job)}" is forbidden to migrate because it does not meet the '
                "requirements"
            ),
        ),
        JobEvent.TIMED_OUT: _failed(Reason.TIMEOUT, lambda _, __: "Abort job caused by timeout"),
        JobEvent.POD_REF_INVALID: _failed(
            Reason.INVALID_POD_REF, lambda _, __: "Abort job caused by invalid PodRef"
        ),
        JobEvent.POD_MISSING: _failed(
            Reason.MISSING_POD, lambda job, _: f'Abort job caused by missing Pod "{_pod(job)}"'
        ),
        JobEvent.POD_FINISHED: _failed(
            Reason.MISSING_POD, lambda job, _: f'Abort job caused by finished Pod "{_pod(job)}"'
        ),
        JobEvent.STARTED_DIRECTLY: _started,
        JobEvent.STARTED_RESERVING: _started,
        JobEvent.RESERVATION_REFUSED: _reservation_refused,
        JobEvent.RESERVATION_MADE: _reservation_made,
        JobEvent.RESERVATION_MISSING: _failed(
            Reason.MISSING_RESERVATION,
            lambda job, _: f'Abort job caused by missing Reservation "{_reservation(job)}"',
        ),
        JobEvent.RESERVATION_WAITS: _reservation_waits,
        JobEvent.RESERVATION_EXPIRED: _failed(
            Reason.RESERVATION_EXPIRED, lambda _, __: "Reservation expired"
        ),
        JobEvent.RESERVATION_FAILED: _failed(Reason.UNSCHEDULABLE, lambda _, facts: facts.message),
        JobEvent.RESERVATION_ON_SAME_NODE: _failed(
            Reason.FORBIDDEN_MIGRATE_POD,
            lambda job, _: (
                f'Scheduler assignes the Reservation "{_reservation(job)}" on the same node as '
                "the Pod"
            ),
        ),
        JobEvent.RESERVATION_TAKEN: _failed(
            Reason.FORBIDDEN_MIGRATE_POD,
            lambda _, __: "Reservation is already bound by another Pod",
        ),
        JobEvent.RESERVATION_USED: _reservation_used,
        JobEvent.RESERVATION_SCHEDULED: _reservation_scheduled,
        JobEvent.POD_WAITS: _pod_waits,
        JobEvent.POD_ASSIGNED: _pod_assigned,
        JobEvent.EVICTION_ISSUED: _eviction_issued,
        JobEvent.POD_DELETED: _pod_deleted,
        JobEvent.NOT_BOUND_YET: _not_bound_yet,
        JobEvent.POD_BOUND: _pod_bound,
        JobEvent.POD_NOT_READY: _pod_not_ready,
        JobEvent.POD_READY: _pod_ready,
    }
)

_S, _E = JobState, JobEvent
_ENDS_ANYTIME: Final = {_E.TIMED_OUT: _S.FAILED}
_LOSES_RESERVATION: Final = {
    _E.RESERVATION_MISSING: _S.FAILED,
    _E.RESERVATION_EXPIRED: _S.FAILED,
    _E.RESERVATION_FAILED: _S.FAILED,
}

#: State -> event -> the state that follows.
TRANSITIONS: Final[Mapping[JobState, Mapping[JobEvent, JobState]]] = MappingProxyType(
    {
        _S.WAITING: {
            _E.ADMITTED: _S.ADMITTED,
            _E.FORBIDDEN: _S.FAILED,
            **_ENDS_ANYTIME,
        },
        _S.ADMITTED: {
            _E.POD_REF_INVALID: _S.FAILED,
            _E.POD_MISSING: _S.FAILED,
            _E.POD_FINISHED: _S.FAILED,
            _E.STARTED_DIRECTLY: _S.DIRECT,
            _E.STARTED_RESERVING: _S.UNRESERVED,
            **_ENDS_ANYTIME,
        },
        _S.DIRECT: {
            _E.POD_MISSING: _S.FAILED,
            _E.EVICTION_ISSUED: _S.DIRECT_EVICTING,
            _E.POD_DELETED: _S.SUCCEEDED,  # the answer to the eviction was lost
            **_ENDS_ANYTIME,
        },
        _S.DIRECT_EVICTING: {_E.POD_DELETED: _S.SUCCEEDED, **_ENDS_ANYTIME},
        _S.UNRESERVED: {
            _E.POD_MISSING: _S.FAILED,
            _E.POD_FINISHED: _S.FAILED,
            _E.RESERVATION_REFUSED: _S.UNRESERVED,
            _E.RESERVATION_MADE: _S.RESERVING,
            _E.RESERVATION_USED: _S.UNRESERVED,  # again: the status was not written before
            **_ENDS_ANYTIME,
        },
        _S.RESERVING: {
            _E.POD_FINISHED: _S.FAILED,
            _E.RESERVATION_MADE: _S.RESERVING,  # a reservation that the user named
            _E.RESERVATION_WAITS: _S.RESERVING,
            _E.RESERVATION_ON_SAME_NODE: _S.FAILED,
            _E.RESERVATION_SCHEDULED: _S.RESERVED,
            **_LOSES_RESERVATION,
            **_ENDS_ANYTIME,
        },
        _S.RESERVED: {
            _E.POD_MISSING: _S.FAILED,
            _E.POD_FINISHED: _S.FAILED,
            _E.RESERVATION_ON_SAME_NODE: _S.FAILED,
            _E.RESERVATION_TAKEN: _S.FAILED,
            _E.RESERVATION_USED: _S.UNRESERVED,
            _E.POD_WAITS: _S.RESERVED,
            _E.POD_ASSIGNED: _S.SUCCEEDED,
            _E.EVICTION_ISSUED: _S.EVICTING,
            _E.POD_DELETED: _S.EVICTED,  # the answer to the eviction was lost
            **_LOSES_RESERVATION,
            **_ENDS_ANYTIME,
        },
        _S.EVICTING: {_E.POD_DELETED: _S.EVICTED, **_LOSES_RESERVATION, **_ENDS_ANYTIME},
        _S.EVICTED: {
            _E.NOT_BOUND_YET: _S.EVICTED,
            _E.POD_BOUND: _S.BOUND,
            **_LOSES_RESERVATION,
            **_ENDS_ANYTIME,
        },
        _S.BOUND: {
            _E.POD_NOT_READY: _S.BOUND,
            _E.POD_READY: _S.SUCCEEDED,
            **_ENDS_ANYTIME,
        },
        _S.SUCCEEDED: {},
        _S.FAILED: {},
        _S.ABORTED: {},
    }
)
LAST_STATES: Final = frozenset(state for state, events in TRANSITIONS.items() if not events)

_ENDED: Final[Mapping[str, JobState]] = MappingProxyType(
    {
        PodMigrationJobPhase.SUCCEEDED.value: JobState.SUCCEEDED,
        PodMigrationJobPhase.FAILED.value: JobState.FAILED,
        PodMigrationJobPhase.ABORTED.value: JobState.ABORTED,
    }
)


# -- parts -----------------------------------------------------------------------------------


def _reserving_state(job: PodMigrationJob) -> JobState:
    """Return the state of a running job with a reservation: that of its last step."""
    conditions, reference = job.status.conditions, reservation_ref(job)
    eviction = find_condition(conditions, Step.EVICTION)
    if eviction is None and reference is None and has_second_reservation(job):
        return JobState.UNRESERVED  # even if the status still describes the first reservation
    for reached, state in (
        (is_condition_true(conditions, Step.RESERVATION_BOUND), JobState.BOUND),
        (is_condition_true(conditions, Step.EVICTION), JobState.EVICTED),
        (eviction is not None, JobState.EVICTING),
        (is_condition_true(conditions, Step.RESERVATION_SCHEDULED), JobState.RESERVED),
        (reference is not None, JobState.RESERVING),
    ):
        if reached:
            return state
    return JobState.UNRESERVED


def _changed(
    job: PodMigrationJob,
    kind: Step,
    status: str,
    now: dt.datetime,
    *,
    reason: str = "",
    message: str = "",
    announcement: JobAnnouncement | None = None,
) -> TransitionResult:
    """Return the job with a condition and ``status.status`` set; report an unchanged one never."""
    changed = _with_condition(job, kind, status, now, reason=reason, message=message)
    if changed is job:
        return TransitionResult(job)
    new = replace(changed.status, status=kind.value, reason=reason, message=message)
    return TransitionResult(
        replace(changed, status=new), () if announcement is None else (announcement,)
    )


def _completed(job: PodMigrationJob, message: str) -> TransitionResult:
    phase = PodMigrationJobPhase.SUCCEEDED.value
    status = replace(job.status, phase=phase, status=COMPLETE, reason="", message=message)
    return TransitionResult(replace(job, status=status), (JobAnnouncement(COMPLETE, message),))


def _with_condition(
    job: PodMigrationJob,
    kind: Step,
    status: str,
    now: dt.datetime,
    *,
    reason: str = "",
    message: str = "",
) -> PodMigrationJob:
    """Return the job with the condition; the same object if the condition is equal."""
    new = Condition(
        type=kind.value,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=now,
    )
    old = find_condition(job.status.conditions, kind)
    conditions: tuple[Condition, ...]
    if old is None:
        conditions = (*job.status.conditions, new)
    else:
        if old.status == status:
            new = replace(
                new,
                last_transition_time=old.last_transition_time,
                last_probe_time=old.last_probe_time,
            )
        if new == old:
            return job
        conditions = tuple(new if each is old else each for each in job.status.conditions)
    return replace(job, status=replace(job.status, conditions=conditions))


def _pod(job: PodMigrationJob) -> str:
    return pod_key(job.spec.pod_ref)


def _named(pod: ObjectReference | None) -> str:
    return "" if pod is None else pod_key(pod)


def _reservation(job: PodMigrationJob) -> str:
    reference = reservation_ref(job)
    return "" if reference is None else reference.name
