"""What becomes of one unit, from what it and its job are: pure, and always from the whole.

A unit *holds* its request from the write that lets it in until its job is suspended and has no
pods any more: whatever is lost or told twice on the way, what runs counts.

| phase          | becomes        | when                                                        |
|----------------|----------------|-------------------------------------------------------------|
| Enqueued       | Reserved, SchedReady, Dequeued | it is let in (``admission``)                |
| Reserved       | SchedReady, Dequeued | all its admission checks are Ready                    |
| Reserved       | TimeoutBackoff | a check says Retry                                          |
| Reserved       | Enqueued, inactive | a check says Rejected                                   |
| SchedReady     | SchedSucceed, SchedFailed | a scheduler says so                              |
| SchedFailed    | Enqueued       | its backoff is over                                         |
| Dequeued, SchedSucceed | Running | its job runs as a whole                                    |
| Dequeued       | TimeoutBackoff | its pods do not run in time, if its queue waits for them    |
| any of these   | Enqueued       | it is preempted, deactivated, or its job suspended by hand  |
| Dequeued, Running | Failed      | it has run as long as it may                                |
| TimeoutBackoff | Enqueued       | its pods are gone and its backoff is over                   |
| any            | Succeed, Failed | its job has ended so                                       |
"""

from dataclasses import dataclass
from typing import Final, Literal

from msgspec.structs import replace

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
from koordinator.manager.queue_units.jobs import ADMISSION, QueuedJobState, WaitingJob

QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
PODS_READY: Final = "PodsReady"
FINISHED: Final = "Finished"
EVICTED: Final = "Evicted"

DEACTIVATED: Final = "Deactivated"
BACKOFF_TIMEOUT: Final = "BackoffTimeout"
PREEMPTED: Final = "Preempted"
TOO_LONG: Final = "MaximumExecutionTimeExceeded"
SUSPENDED: Final = "Suspended"  # ours: somebody has suspended its job
CHECK_FAILED: Final = "AdmissionCheck"  # as Kueue has it
REJECTED: Final = "AdmissionCheckRejected"
NOT_SCHEDULED: Final = "SchedulingFailed"  # ours

PENDING: Final = "Pending"
READY: Final = "Ready"
RETRY: Final = "Retry"
REJECTED_STATE: Final = "Rejected"

#: Phases in which a unit has its room and its job may not start yet.
IN_BETWEEN: Final = frozenset((UnitPhase.RESERVED, UnitPhase.SCHED_READY))
LET_IN: Final = IN_BETWEEN | {UnitPhase.SCHED_SUCCEEDED, UnitPhase.DEQUEUED, UnitPhase.RUNNING}
#: Phases that count only for a unit that has been let in.
_SAID_BY_SCHEDULERS: Final = frozenset((UnitPhase.SCHED_READY, UnitPhase.SCHED_SUCCEEDED))
ENDED: Final = frozenset((UnitPhase.SUCCEEDED, UnitPhase.FAILED))
_LONGEST_EXPONENT: Final = 20


@dataclass(frozen=True, slots=True)
class UnitTimes:
    """How long units wait.  ``pods_ready_s`` None: for ever."""

    pods_ready_s: float | None = None
    initial_backoff_s: float = 1.0
    longest_backoff_s: float = 20.0
    steady_backoff_s: float | None = None  # the same after each time-out

    def backoff_s(self, count: int) -> float:
        """Return how long a unit waits after so many time-outs, 1 or more."""
        if self.steady_backoff_s is not None:
            return self.steady_backoff_s
        backoff_s: float = self.initial_backoff_s * 2 ** min(count - 1, _LONGEST_EXPONENT)
        return min(backoff_s, self.longest_backoff_s)


@dataclass(frozen=True, slots=True)
class UnitGates:
    """What a unit waits for between its room and its start; ``checks`` None: as its status says."""

    checks: tuple[str, ...] | None = ()
    is_strict: bool = False  # a scheduler has the last word

    @property
    def first(self) -> UnitPhase:
        """The phase of a unit that is let in."""
        return UnitPhase.RESERVED if self.checks else self.after_checks

    @property
    def after_checks(self) -> UnitPhase:
        """The phase of a unit that has passed its checks."""
        return UnitPhase.SCHED_READY if self.is_strict else UnitPhase.DEQUEUED


OPEN: Final = UnitGates()


@dataclass(frozen=True, slots=True)
class UnitStep:
    """What a unit is now; whether its job has to be switched, and when to look again."""

    status: QueueUnitStatus
    job: Literal["", "resume", "suspend"] = ""
    again_s: float | None = None
    deactivate: bool = False  # spec.active becomes false: it must not be tried again


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why a unit backs off, and its phase meanwhile."""

    reason: str
    message: str
    phase: UnitPhase = UnitPhase.TIMEOUT_BACKOFF


def phase_of(unit: QueueUnit) -> UnitPhase:
    """Return the phase; one that nobody knows is Enqueued, and what others say of who waits."""
    try:
        phase = UnitPhase(unit.status.phase or UnitPhase.ENQUEUED)
    except ValueError:
        return UnitPhase.ENQUEUED
    if phase in _SAID_BY_SCHEDULERS and not _is_reserved(unit.status):
        return UnitPhase.ENQUEUED
    return phase


def holds(unit: QueueUnit, job: WaitingJob) -> bool:
    """Return whether a unit counts in its quota: it is let in, or its job may have pods still."""
    if job.is_over:
        return False
    return phase_of(unit) in LET_IN or not job.is_suspended or job.has_pods


def held(unit: QueueUnit, job: WaitingJob) -> Amounts:
    """Return what a unit that holds counts: what was let in, or what its job asks for by now."""
    if not unit.status.admissions:
        return job.request
    admitted: dict[str, int] = {}
    for admission in unit.status.admissions:
        add(admitted, amounts_of(admission.resources))
    return admitted


def is_candidate(unit: QueueUnit, job: WaitingJob) -> bool:
    """Return whether a unit waits to be let in, with nothing left of an earlier time."""
    return (
        phase_of(unit) is UnitPhase.ENQUEUED
        and unit.spec.active is not False
        and not job.is_over
        and not holds(unit, job)
    )


def admission_stamp(unit: QueueUnit) -> str:
    """Return the text by which a job notes for which admission it was resumed."""
    return f"{unit.metadata.uid}/{unit.status.attempts}"


def let_in(
    unit: QueueUnit, job: WaitingJob, now_s: float, gates: UnitGates = OPEN
) -> QueueUnitStatus:
    """Return the status of a unit that is let in now, as far as its gates."""
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
        _waits_for(phase, status) or f"let in from queue {unit.spec.queue}",
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
    """Return the status of a unit that has to give its room back."""
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
    """Return what a unit is now, admission apart."""
    phase, status = phase_of(unit), _counted(unit.status, job)
    if job.is_over:
        return UnitStep(_ended(status, job, now_s))
    if phase in ENDED:  # it has run as long as it may
        return UnitStep(status, "" if job.is_suspended else "suspend")
    if unit.spec.active is False and phase is not UnitPhase.ENQUEUED:
        return UnitStep(evicted(unit, DEACTIVATED, "spec.active is false", now_s), "suspend")
    unit = replace(unit, status=status)
    if phase in IN_BETWEEN:
        return _pass_gates(unit, job, times, now_s, gates)
    if phase in LET_IN:
        return _run(unit, job, times, now_s)
    return _stay_out(unit, job, times, now_s)


def _stay_out(unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float) -> UnitStep:
    """Return the step of a unit that has no room."""
    phase = phase_of(unit)
    if phase is UnitPhase.TIMEOUT_BACKOFF:
        return _back_off(unit.status, job, times, now_s)
    if phase is UnitPhase.SCHED_FAILED:
        return _come_again(unit, job, times, now_s)
    return _wait(unit, job, now_s)


def _wait(unit: QueueUnit, job: WaitingJob, now_s: float) -> UnitStep:
    status = unit.status
    if job.is_suspended:
        return UnitStep(replace(status, phase=UnitPhase.ENQUEUED))
    if unit.spec.active is False or _is_evicted(status):
        return UnitStep(status, "suspend")  # the write that should have done it got lost
    return UnitStep(_adopted(unit, job, now_s))


def _pass_gates(
    unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float, gates: UnitGates
) -> UnitStep:
    """Return the step of a unit that has its room and waits for checks or a scheduler."""
    status = unit.status
    if not job.is_suspended:
        status = _admitted(status, now_s)
        message = "its job was resumed by others, before it was told to"
        return UnitStep(_changed(status, UnitPhase.DEQUEUED, message, now_s))
    if phase_of(unit) is UnitPhase.SCHED_READY:
        return UnitStep(status)
    unit = replace(unit, status=_with_checks(status, gates.checks, now_s))
    status = unit.status
    told = {check.state: check for check in reversed(status.admission_checks)}
    if REJECTED_STATE in told:
        message = f"admission check {_told(told[REJECTED_STATE])} rejected it"
        return UnitStep(evicted(unit, REJECTED, message, now_s), deactivate=True)
    if RETRY in told:
        message = f"admission check {_told(told[RETRY])} wants it to come again"
        again = _Reason(CHECK_FAILED, message)
        return _again_later(unit, job, again, times, now_s)
    phase = UnitPhase.RESERVED
    if all(check.state == READY for check in status.admission_checks):
        phase = gates.after_checks
    message = _waits_for(phase, status) or "all admission checks are Ready"
    if phase is UnitPhase.DEQUEUED:
        status = _changed(_admitted(status, now_s), phase, message, now_s)
        return UnitStep(status, "resume")
    if (status.phase, status.message) != (phase, message):
        status = _changed(status, phase, message, now_s)
    return UnitStep(status)


def _come_again(unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float) -> UnitStep:
    """Return the step of a unit that a scheduler found no place for."""
    if not _is_reserved(unit.status):
        return _back_off(unit.status, job, times, now_s)
    message = unit.status.message or "the scheduler has no place for it"
    again = _Reason(NOT_SCHEDULED, message, UnitPhase.SCHED_FAILED)
    return _again_later(unit, job, again, times, now_s)


def _again_later(
    unit: QueueUnit,
    job: WaitingJob,
    again: "_Reason",
    times: UnitTimes,
    now_s: float,
) -> UnitStep:
    """Return the step of a unit that gives its room back and backs off."""
    state = unit.status.requeue_state
    count = (state.count if state is not None else 0) + 1
    again_s = now_s + times.backoff_s(count)
    status = evicted(unit, again.reason, again.message, now_s, again.phase)
    requeue = UnitRequeueState(count=count, requeue_at=to_datetime(again_s))
    if job.is_suspended and not job.has_pods:  # says so also where conditions are not stored
        status = replace(status, admissions=())
    switch: Literal["", "suspend"] = "" if job.is_suspended else "suspend"
    return UnitStep(replace(status, requeue_state=requeue), switch, again_s)


def _with_checks(
    status: QueueUnitStatus, names: tuple[str, ...] | None, now_s: float
) -> QueueUnitStatus:
    """Return the status with the checks that its queue names by now, each as it was or Pending."""
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


def _waits_for(phase: UnitPhase, status: QueueUnitStatus) -> str:
    """Return what a unit with its room waits for; empty: nothing."""
    if phase is UnitPhase.SCHED_READY:
        return "it has its room and waits for a scheduler: SchedSucceed or SchedFailed"
    if phase is UnitPhase.RESERVED:
        waiting = [check.name for check in status.admission_checks if check.state != READY]
        return f"it has its room and waits for admission checks: {', '.join(waiting)}"
    return ""


def _told(check: AdmissionCheckState) -> str:
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
            return UnitStep(evicted(unit, SUSPENDED, "its job was suspended by others", now_s))
        return UnitStep(status, "resume", _deadline(status, times))
    if job.state is QueuedJobState.RUNNING and phase_of(unit) is not UnitPhase.RUNNING:
        status = with_condition(status, PODS_READY, "True", "PodsReady", now_s)
        status = _changed(status, UnitPhase.RUNNING, "", now_s, requeue_state=None)
        unit = replace(unit, status=status)
    ends_s = _ends_s(unit, now_s)
    if ends_s is not None and now_s >= ends_s:
        limit = unit.spec.maximum_execution_time_seconds
        message = f"it ran {limit} s, as long as it may"
        status = evicted(unit, TOO_LONG, message, now_s, UnitPhase.FAILED)
        return UnitStep(status, "suspend", deactivate=True)
    deadline_s = _deadline(status, times) if phase_of(unit) is not UnitPhase.RUNNING else None
    if deadline_s is not None and now_s >= deadline_s:
        message = f"its pods did not all run in {times.pods_ready_s:g} s, attempt {status.attempts}"
        return _again_later(unit, job, _Reason(BACKOFF_TIMEOUT, message), times, now_s)
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
    """Return the status of a unit whose job was let run by somebody else: it counts from now on."""
    status = let_in(unit, job, now_s)
    return replace(status, message="its job was resumed by others, with or without room")


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


def _is_evicted(status: QueueUnitStatus) -> bool:
    return _is_true(status, EVICTED)


def _is_reserved(status: QueueUnitStatus) -> bool:
    """Return whether a unit has been let in; who writes for a scheduler may not know conditions."""
    known = [it.status == "True" for it in status.conditions if it.type == QUOTA_RESERVED]
    return next(iter(known), bool(status.admissions))


def _is_true(status: QueueUnitStatus, kind: str) -> bool:
    return any(it.type == kind and it.status == "True" for it in status.conditions)


def _deadline(status: QueueUnitStatus, times: UnitTimes) -> float | None:
    started = [
        it.last_transition_time
        for it in status.conditions
        if it.type == ADMITTED and it.status == "True"
    ]
    since = next(iter(started), status.last_allocate_time)
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
    """Return for how long all pods have run since they began to, this time."""
    for condition in status.conditions:
        if condition.type == PODS_READY and condition.status == "True":
            return max(now_s - to_epoch_s(condition.last_transition_time), 0.0)
    return 0.0


def with_condition(
    status: QueueUnitStatus,
    kind: str,
    value: Literal["True", "False", "Unknown"],
    reason: str,
    now_s: float,
    *,
    message: str = "",
) -> QueueUnitStatus:
    """Return the status with a condition; its time stays unless its value changes."""
    known = next((it for it in status.conditions if it.type == kind), None)
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
