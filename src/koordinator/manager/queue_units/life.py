"""State machine of one unit: pure functions of the unit and its job, level-triggered.

The request of a unit counts from the write that admits it until its job is suspended and has no
pods.
The rule depends only on the current objects, so lost and repeated writes can't release the quota of
running pods.

| phase          | becomes        | when                                                        |
|----------------|----------------|-------------------------------------------------------------|
| Enqueued       | Reserved, SchedReady, Dequeued | it is admitted (``admission``)              |
| Reserved       | SchedReady, Dequeued | all its admission checks are Ready                    |
| Reserved       | TimeoutBackoff | a check is Retry                                            |
| Reserved       | Enqueued, inactive | a check is Rejected                                     |
| SchedReady     | SchedSucceed, SchedFailed | a scheduler sets the phase                       |
| SchedFailed    | Enqueued       | its backoff is over                                         |
| Dequeued, SchedSucceed | Running | all pods of its job run                                    |
| Dequeued       | TimeoutBackoff | its pods do not run in time, if its queue waits for them    |
| any of these   | Enqueued       | it is preempted, deactivated, or its job suspended by hand  |
| Dequeued, Running | Failed      | its maximum execution time is exceeded                      |
| TimeoutBackoff | Enqueued       | it has no pods and its backoff is over                      |
| any            | Succeed, Failed | its job has succeeded or failed                            |
"""

from typing import Final, Literal

from msgspec.structs import replace

from koordinator.api.conditions import find_condition, is_condition_true
from koordinator.api.crd import StandardCondition
from koordinator.api.queue_unit import (
    AdmissionCheckState,
    QueueUnit,
    QueueUnitStatus,
    UnitAdmission,
    UnitPhase,
    UnitPodState,
    UnitRequeueState,
)
from koordinator.domain.amounts import Amounts, add, amounts_of, to_quantities
from koordinator.foundation.clock import to_datetime, to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.queue_units.jobs import ADMISSION, QueuedJobState, WaitingJob

QUOTA_RESERVED: Final = "QuotaReserved"  # whether the quota has room for the job
ADMITTED: Final = "Admitted"  # whether the job may start
PODS_READY: Final = "PodsReady"  # whether all pods of the job are ready
FINISHED: Final = "Finished"  # whether the job has ended
EVICTED: Final = "Evicted"  # whether the job was stopped after its admission

DEACTIVATED: Final = "Deactivated"  # spec.active is false
BACKOFF_TIMEOUT: Final = "BackoffTimeout"  # its pods were not ready in time
PREEMPTED: Final = "Preempted"  # another job of the quota takes its place
TOO_LONG: Final = "MaximumExecutionTimeExceeded"  # it ran longer than it may
SUSPENDED: Final = "Suspended"  # a user has suspended the job; the original has no such reason
CHECK_FAILED: Final = "AdmissionCheck"  # an admission check requests another try, as in Kueue
REJECTED: Final = "AdmissionCheckRejected"  # an admission check forbids the job
NOT_SCHEDULED: Final = "SchedulingFailed"  # no nodes fit; the original has no such reason

PENDING: Final = "Pending"
READY: Final = "Ready"
RETRY: Final = "Retry"
REJECTED_STATE: Final = "Rejected"

#: Phases in which a unit has reserved its quota and its job may not start yet.
GATED_PHASES: Final = frozenset((UnitPhase.RESERVED, UnitPhase.SCHED_READY))
#: Phases of units that have been admitted and hold their quota.
ADMITTED_PHASES: Final = GATED_PHASES | {
    UnitPhase.SCHED_SUCCEEDED,
    UnitPhase.DEQUEUED,
    UnitPhase.RUNNING,
}
#: Phases that schedulers write; they are ignored for units without reserved quota.
_SCHEDULER_PHASES: Final = frozenset((UnitPhase.SCHED_READY, UnitPhase.SCHED_SUCCEEDED))
ENDED: Final = frozenset((UnitPhase.SUCCEEDED, UnitPhase.FAILED))
_LONGEST_EXPONENT: Final = 20


@dataclass(frozen=True, slots=True)
class UnitTimes:
    """Timeouts of a unit.  With ``pods_ready_s`` None, it waits for its pods without limit."""

    pods_ready_s: float | None = None
    initial_backoff_s: float = 1.0
    longest_backoff_s: float = 20.0
    steady_backoff_s: float | None = None  # constant backoff; None: exponential

    def backoff_s(self, count: int) -> float:
        """Return the backoff after ``count`` requeues, 1 or more."""
        if self.steady_backoff_s is not None:
            return self.steady_backoff_s
        backoff_s: float = self.initial_backoff_s * 2 ** min(count - 1, _LONGEST_EXPONENT)
        return min(backoff_s, self.longest_backoff_s)


@dataclass(frozen=True, slots=True)
class UnitGates:
    """Gates between quota reservation and start; ``checks`` None: the checks of its status."""

    checks: tuple[str, ...] | None = ()
    is_strict: bool = False  # a scheduler must confirm the unit

    @property
    def first(self) -> UnitPhase:
        """The phase of a unit after admission."""
        return UnitPhase.RESERVED if self.checks else self.after_checks

    @property
    def after_checks(self) -> UnitPhase:
        """The phase of a unit that has passed its admission checks."""
        return UnitPhase.SCHED_READY if self.is_strict else UnitPhase.DEQUEUED


OPEN: Final = UnitGates()


@dataclass(frozen=True, slots=True)
class UnitStep:
    """New status of a unit, the switch of its job, and the time to requeue it."""

    status: QueueUnitStatus
    job: Literal["", "resume", "suspend"] = ""
    again_s: float | None = None
    deactivate: bool = False  # spec.active becomes false: the unit must not be retried


@dataclass(frozen=True, slots=True)
class _Reason:
    """Reason of a backoff, and the phase during it."""

    reason: str
    message: str
    phase: UnitPhase = UnitPhase.TIMEOUT_BACKOFF


def phase_of(unit: QueueUnit) -> UnitPhase:
    """Return the phase; an unknown one, and one that a scheduler set too early, is Enqueued."""
    try:
        phase = UnitPhase(unit.status.phase or UnitPhase.ENQUEUED)
    except ValueError:
        return UnitPhase.ENQUEUED
    if phase in _SCHEDULER_PHASES and not _is_reserved(unit.status):
        return UnitPhase.ENQUEUED
    return phase


def is_counted(unit: QueueUnit, job: WaitingJob) -> bool:
    """Return whether a unit counts in its quota: it is admitted, or its job may have pods."""
    if job.is_over:
        return False
    return phase_of(unit) in ADMITTED_PHASES or not job.is_suspended or job.has_pods


def admitted_amounts(unit: QueueUnit, job: WaitingJob) -> Amounts:
    """Return the counted resources of a unit: as admitted, by default the job's request."""
    if not unit.status.admissions:
        return job.request
    admitted: dict[str, int] = {}
    for admission in unit.status.admissions:
        add(admitted, amounts_of(admission.resources))
    return admitted


def is_candidate(unit: QueueUnit, job: WaitingJob) -> bool:
    """Return whether a unit is pending admission and nothing of an earlier attempt is counted."""
    return (
        phase_of(unit) is UnitPhase.ENQUEUED
        and unit.spec.active is not False
        and not job.is_over
        and not is_counted(unit, job)
    )


def admission_stamp(unit: QueueUnit) -> str:
    """Return the annotation of a job that identifies the admission that resumed it."""
    return f"{unit.metadata.uid}/{unit.status.attempts}"


def admit(
    unit: QueueUnit, job: WaitingJob, now_s: float, gates: UnitGates = OPEN
) -> QueueUnitStatus:
    """Return the status of a unit that is admitted now, up to its first gate."""
    status = with_condition(unit.status, QUOTA_RESERVED, "True", "QuotaReserved", now_s)
    status = with_condition(status, EVICTED, "False", "QuotaReserved", now_s)
    at = to_datetime(now_s)
    checks = tuple(
        AdmissionCheckState(name=name, state=PENDING, message="", last_transition_time=at)
        for name in gates.checks or ()
    )
    status = replace(status, admission_checks=checks)
    phase = gates.first
    if phase is UnitPhase.DEQUEUED:
        status = _admitted(status, now_s)
    return _changed(
        status,
        phase,
        _gate_message(phase, status) or f"admitted from queue {unit.spec.queue}",
        now_s,
        attempts=unit.status.attempts + 1,
        last_allocate_time=to_datetime(now_s),
        admissions=tuple(
            UnitAdmission(
                name=pod_set.name,
                replicas=pod_set.count,
                running=0,
                resources=to_quantities({n: a * pod_set.count for n, a in pod_set.request.items()}),
            )
            for pod_set in job.pod_sets
        ),
    )


def evicted(
    unit: QueueUnit, reason: str, message: str, now_s: float, phase: UnitPhase = UnitPhase.ENQUEUED
) -> QueueUnitStatus:
    """Return the status of a unit that must release its quota."""
    past_s = unit.status.accumulated_past_execution_time_seconds or 0
    status = with_condition(unit.status, EVICTED, "True", reason, now_s, message=message)
    for kind in (QUOTA_RESERVED, ADMITTED, PODS_READY):
        status = with_condition(status, kind, "False", reason, now_s, message=message)
    ran_s = past_s + int(_running_s(unit.status, now_s))
    return _changed(
        status, phase, message, now_s, accumulated_past_execution_time_seconds=ran_s or None
    )


def step(
    unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float, gates: UnitGates = OPEN
) -> UnitStep:
    """Return the next state of a unit, except for admission."""
    phase, status = phase_of(unit), _counted(unit.status, job)
    if job.is_over:
        return UnitStep(_ended(status, job, now_s))
    if phase in ENDED:  # its maximum execution time was exceeded
        return UnitStep(status, "" if job.is_suspended else "suspend")
    if unit.spec.active is False and phase is not UnitPhase.ENQUEUED:
        return UnitStep(evicted(unit, DEACTIVATED, "spec.active is false", now_s), "suspend")
    unit = replace(unit, status=status)
    if phase in GATED_PHASES:
        return _pass_gates(unit, job, times, now_s, gates)
    if phase in ADMITTED_PHASES:
        return _run(unit, job, times, now_s)
    return _step_pending(unit, job, times, now_s)


def _step_pending(unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float) -> UnitStep:
    """Return the step of a unit without reserved quota."""
    phase = phase_of(unit)
    if phase is UnitPhase.TIMEOUT_BACKOFF:
        return _back_off(unit.status, job, times, now_s)
    if phase is UnitPhase.SCHED_FAILED:
        return _step_unschedulable(unit, job, times, now_s)
    return _wait(unit, job, now_s)


def _wait(unit: QueueUnit, job: WaitingJob, now_s: float) -> UnitStep:
    status = unit.status
    if job.is_suspended:
        return UnitStep(replace(status, phase=UnitPhase.ENQUEUED))
    if unit.spec.active is False or is_condition_true(status.conditions, EVICTED):
        return UnitStep(status, "suspend")  # an earlier write of the job has failed
    return UnitStep(_adopted(unit, job, now_s))


def _pass_gates(
    unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float, gates: UnitGates
) -> UnitStep:
    """Return the step of a unit with reserved quota that waits for checks or a scheduler."""
    status = unit.status
    if not job.is_suspended:
        status = _admitted(status, now_s)
        message = "the job was resumed by another client before its admission was complete"
        return UnitStep(_changed(status, UnitPhase.DEQUEUED, message, now_s))
    if phase_of(unit) is UnitPhase.SCHED_READY:
        return UnitStep(status)
    unit = replace(unit, status=_with_checks(status, gates.checks, now_s))
    status = unit.status
    by_state = {check.state: check for check in reversed(status.admission_checks)}
    if REJECTED_STATE in by_state:
        message = f"admission check {_described(by_state[REJECTED_STATE])} rejected the unit"
        return UnitStep(evicted(unit, REJECTED, message, now_s), deactivate=True)
    if RETRY in by_state:
        message = f"admission check {_described(by_state[RETRY])} requires a retry"
        return _requeue(unit, job, _Reason(CHECK_FAILED, message), times, now_s)
    phase = UnitPhase.RESERVED
    if all(check.state == READY for check in status.admission_checks):
        phase = gates.after_checks
    message = _gate_message(phase, status) or "all admission checks are Ready"
    if phase is UnitPhase.DEQUEUED:
        status = _changed(_admitted(status, now_s), phase, message, now_s)
        return UnitStep(status, "resume")
    if (status.phase, status.message) != (phase, message):
        status = _changed(status, phase, message, now_s)
    return UnitStep(status)


def _step_unschedulable(
    unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float
) -> UnitStep:
    """Return the step of a unit that a scheduler could not place."""
    if not _is_reserved(unit.status):
        return _back_off(unit.status, job, times, now_s)
    message = unit.status.message or "the scheduler found no placement"
    reason = _Reason(NOT_SCHEDULED, message, UnitPhase.SCHED_FAILED)
    return _requeue(unit, job, reason, times, now_s)


def _requeue(
    unit: QueueUnit,
    job: WaitingJob,
    reason: "_Reason",
    times: UnitTimes,
    now_s: float,
) -> UnitStep:
    """Return the step of a unit that releases its quota and backs off."""
    state = unit.status.requeue_state
    count = (state.count if state is not None else 0) + 1
    again_s = now_s + times.backoff_s(count)
    status = evicted(unit, reason.reason, reason.message, now_s, reason.phase)
    requeue = UnitRequeueState(count=count, requeue_at=to_datetime(again_s))
    if job.is_suspended and not job.has_pods:  # marks the release where a CRD drops conditions
        status = replace(status, admissions=())
    switch: Literal["", "suspend"] = "" if job.is_suspended else "suspend"
    return UnitStep(replace(status, requeue_state=requeue), switch, again_s)


def _with_checks(
    status: QueueUnitStatus, names: tuple[str, ...] | None, now_s: float
) -> QueueUnitStatus:
    """Return the status with the current checks of its queue; new checks are Pending."""
    if names is None:
        return status
    known = {check.name: check for check in status.admission_checks}
    checks = tuple(
        known.get(name)
        or AdmissionCheckState(
            name=name, state=PENDING, message="", last_transition_time=to_datetime(now_s)
        )
        for name in names
    )
    return status if checks == status.admission_checks else replace(status, admission_checks=checks)


def _gate_message(phase: UnitPhase, status: QueueUnitStatus) -> str:
    """Return the message of a unit that waits at a gate; empty for other phases."""
    if phase is UnitPhase.SCHED_READY:
        return "quota reserved; waiting for a scheduler to report SchedSucceed or SchedFailed"
    if phase is UnitPhase.RESERVED:
        waiting = [check.name for check in status.admission_checks if check.state != READY]
        return f"quota reserved; waiting for admission checks: {', '.join(waiting)}"
    return ""


def _described(check: AdmissionCheckState) -> str:
    return f"{check.name} ({check.message})" if check.message else check.name


def _admitted(status: QueueUnitStatus, now_s: float) -> QueueUnitStatus:
    return with_condition(status, ADMITTED, "True", "Admitted", now_s)


def _run(unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float) -> UnitStep:
    status = unit.status
    if phase_of(unit) is UnitPhase.SCHED_SUCCEEDED:
        status = _admitted(status, now_s)
        unit = replace(unit, status=status)
    if job.is_suspended:
        if job.obj.metadata.annotations.get(ADMISSION) == admission_stamp(unit):
            message = "the job was suspended by another client"
            return UnitStep(evicted(unit, SUSPENDED, message, now_s))
        return UnitStep(status, "resume", _deadline(status, times))
    if job.state is QueuedJobState.RUNNING and phase_of(unit) is not UnitPhase.RUNNING:
        status = with_condition(status, PODS_READY, "True", "PodsReady", now_s)
        status = _changed(status, UnitPhase.RUNNING, "", now_s, requeue_state=None)
        unit = replace(unit, status=status)
    ends_s = _ends_s(unit, now_s)
    if ends_s is not None and now_s >= ends_s:
        limit = unit.spec.maximum_execution_time_seconds
        message = f"the job exceeded its maximum execution time of {limit} s"
        status = evicted(unit, TOO_LONG, message, now_s, UnitPhase.FAILED)
        return UnitStep(status, "suspend", deactivate=True)
    deadline_s = _deadline(status, times) if phase_of(unit) is not UnitPhase.RUNNING else None
    if deadline_s is not None and now_s >= deadline_s:
        message = (
            f"not all pods were running within {times.pods_ready_s:g} s, attempt {status.attempts}"
        )
        return _requeue(unit, job, _Reason(BACKOFF_TIMEOUT, message), times, now_s)
    due = [at for at in (ends_s, deadline_s) if at is not None]
    return UnitStep(status, "", min(due, default=None))


def _back_off(status: QueueUnitStatus, job: WaitingJob, times: UnitTimes, now_s: float) -> UnitStep:
    if not job.is_suspended:
        return UnitStep(status, "suspend")
    state = status.requeue_state
    ready_s = to_epoch_s(state.requeue_at if state is not None else None, default=0.0)
    if state is None and status.last_update_time is not None:  # the original's CRD drops it
        ready_s = to_epoch_s(status.last_update_time) + times.backoff_s(1)
    if now_s < ready_s:
        return UnitStep(status, "", ready_s)
    if job.has_pods:
        return UnitStep(status)
    return UnitStep(_changed(status, UnitPhase.ENQUEUED, status.message, now_s))


def _adopted(unit: QueueUnit, job: WaitingJob, now_s: float) -> QueueUnitStatus:
    """Return the status of a unit whose job was resumed by another client; it counts from now."""
    status = admit(unit, job, now_s)
    message = "the job was resumed by another client, without a check of its quota"
    return replace(status, message=message)


def _ended(status: QueueUnitStatus, job: WaitingJob, now_s: float) -> QueueUnitStatus:
    succeeded = job.state is QueuedJobState.SUCCEEDED
    phase = UnitPhase.SUCCEEDED if succeeded else UnitPhase.FAILED
    if status.phase == phase and not status.admissions:
        return status
    reason = "JobSucceeded" if succeeded else "JobFailed"
    status = with_condition(status, FINISHED, "True", reason, now_s)
    return _changed(status, phase, "", now_s, admissions=())


def _counted(status: QueueUnitStatus, job: WaitingJob) -> QueueUnitStatus:
    pods = UnitPodState(running=job.running, pending=job.pending)
    return status if status.pod_state == pods else replace(status, pod_state=pods)


def _is_reserved(status: QueueUnitStatus) -> bool:
    """Return whether a unit has reserved quota; schedulers may not preserve its conditions."""
    known = find_condition(status.conditions, QUOTA_RESERVED)
    return bool(status.admissions) if known is None else known.status == "True"


def _deadline(status: QueueUnitStatus, times: UnitTimes) -> float | None:
    admitted, since = find_condition(status.conditions, ADMITTED), status.last_allocate_time
    if admitted is not None and admitted.status == "True":
        since = admitted.last_transition_time
    if times.pods_ready_s is None or since is None:
        return None
    return to_epoch_s(since) + times.pods_ready_s


def _ends_s(unit: QueueUnit, now_s: float) -> float | None:
    limit = unit.spec.maximum_execution_time_seconds
    if limit is None or phase_of(unit) is not UnitPhase.RUNNING:
        return None
    past_s = unit.status.accumulated_past_execution_time_seconds or 0
    return now_s + limit - past_s - _running_s(unit.status, now_s)


def _running_s(status: QueueUnitStatus, now_s: float) -> float:
    """Return the seconds since all pods of the current admission have been running."""
    ready = find_condition(status.conditions, PODS_READY)
    if ready is None or ready.status != "True":
        return 0.0
    return max(now_s - to_epoch_s(ready.last_transition_time), 0.0)


def with_condition(
    status: QueueUnitStatus,
    kind: str,
    value: Literal["True", "False", "Unknown"],
    reason: str,
    now_s: float,
    *,
    message: str = "",
) -> QueueUnitStatus:
    """Return the status with a condition; its transition time changes only with its value."""
    known = find_condition(status.conditions, kind)
    if known is None and value == "False":
        return status
    if known is not None and (known.status, known.reason, known.message) == (
        value,
        reason,
        message,
    ):
        return status
    at = to_datetime(now_s)
    if known is not None and known.status == value:
        at = known.last_transition_time
    made = StandardCondition(
        type=kind, status=value, reason=reason, message=message, last_transition_time=at
    )
    others = [it for it in status.conditions if it.type != kind]
    return replace(status, conditions=(*others, made))


def _changed(
    status: QueueUnitStatus, phase: UnitPhase, message: str, now_s: float, **more: object
) -> QueueUnitStatus:
    return replace(
        status, phase=phase, message=message, last_update_time=to_datetime(now_s), **more
    )
