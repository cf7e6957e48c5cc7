"""What becomes of one unit, from what it and its job are: pure, and always from the whole.

A unit *holds* its request from the write that lets it in until its job is suspended and has no
pods any more: whatever is lost or told twice on the way, what runs counts.

| phase          | becomes        | when                                                        |
|----------------|----------------|-------------------------------------------------------------|
| Enqueued       | Dequeued       | it is let in (``admission``)                                |
| Dequeued       | Running        | its job runs as a whole                                     |
| Dequeued       | TimeoutBackoff | its pods do not run in time, if its queue waits for them    |
| Dequeued, Running | Enqueued    | it is preempted, deactivated, or its job suspended by hand  |
| Dequeued, Running | Failed      | it has run as long as it may                                |
| TimeoutBackoff | Enqueued       | its pods are gone and its backoff is over                   |
| any            | Succeed, Failed | its job has ended so                                       |
"""

from dataclasses import dataclass
from typing import Final, Literal

from msgspec.structs import replace

from koordinator.api.crd import StandardCondition
from koordinator.api.queue_unit import (
    QueueUnit,
    QueueUnitStatus,
    UnitAdmission,
    UnitPhase,
    UnitPodState,
    UnitRequeueState,
)
from koordinator.domain.queue_units.jobs import ADMISSION, QueuedJobState, WaitingJob
from koordinator.domain.quota.amounts import Amounts, add, amounts_of, to_quantities
from koordinator.foundation.clock import to_datetime, to_epoch_s

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

LET_IN: Final = frozenset((UnitPhase.RESERVED, UnitPhase.DEQUEUED, UnitPhase.RUNNING))
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
class UnitStep:
    """What a unit is now; whether its job has to be switched, and when to look again."""

    status: QueueUnitStatus
    job: Literal["", "resume", "suspend"] = ""
    again_s: float | None = None
    deactivate: bool = False  # spec.active becomes false: it must not be tried again


def phase_of(unit: QueueUnit) -> UnitPhase:
    """Return the phase; one that nobody knows is Enqueued."""
    try:
        return UnitPhase(unit.status.phase or UnitPhase.ENQUEUED)
    except ValueError:
        return UnitPhase.ENQUEUED


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


def let_in(unit: QueueUnit, job: WaitingJob, now_s: float) -> QueueUnitStatus:
    """Return the status of a unit that is let in now."""
    status = with_condition(unit.status, QUOTA_RESERVED, "True", "QuotaReserved", now_s)
    status = with_condition(status, ADMITTED, "True", "Admitted", now_s)
    status = with_condition(status, EVICTED, "False", "Admitted", now_s)
    return _changed(
        status,
        UnitPhase.DEQUEUED,
        f"let in by quota {unit.spec.queue}",
        now_s,
        attempts=unit.status.attempts + 1,
        last_allocate_time=to_datetime(now_s),
        admissions=tuple(
            UnitAdmission(
                name=pod_set.name,
                replicas=pod_set.count,
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


def step(unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float) -> UnitStep:
    """Return what a unit is now, admission apart."""
    phase, status = phase_of(unit), _counted(unit.status, job)
    if job.is_over:
        return UnitStep(_ended(status, job, now_s))
    if phase in ENDED:  # it has run as long as it may
        return UnitStep(status, "" if job.is_suspended else "suspend")
    if unit.spec.active is False and phase is not UnitPhase.ENQUEUED:
        return UnitStep(evicted(unit, DEACTIVATED, "spec.active is false", now_s), "suspend")
    if phase is UnitPhase.TIMEOUT_BACKOFF:
        return _back_off(status, job, now_s)
    unit = replace(unit, status=status)
    return _run(unit, job, times, now_s) if phase in LET_IN else _wait(unit, job, now_s)


def _wait(unit: QueueUnit, job: WaitingJob, now_s: float) -> UnitStep:
    status = unit.status
    if job.is_suspended:
        return UnitStep(replace(status, phase=UnitPhase.ENQUEUED))
    if unit.spec.active is False or _is_evicted(status):
        return UnitStep(status, "suspend")  # the write that should have done it got lost
    return UnitStep(_adopted(unit, job, now_s))


def _run(unit: QueueUnit, job: WaitingJob, times: UnitTimes, now_s: float) -> UnitStep:
    status = unit.status
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
        count = (status.requeue_state.count if status.requeue_state else 0) + 1
        backoff_s = times.backoff_s(count)
        message = f"its pods did not all run in {times.pods_ready_s:g} s, attempt {status.attempts}"
        status = evicted(unit, BACKOFF_TIMEOUT, message, now_s, UnitPhase.TIMEOUT_BACKOFF)
        again = UnitRequeueState(count=count, requeue_at=to_datetime(now_s + backoff_s))
        return UnitStep(replace(status, requeue_state=again), "suspend", now_s + backoff_s)
    due = [at for at in (ends_s, deadline_s) if at is not None]
    return UnitStep(status, "", min(due, default=None))


def _back_off(status: QueueUnitStatus, job: WaitingJob, now_s: float) -> UnitStep:
    if not job.is_suspended:
        return UnitStep(status, "suspend")
    state = status.requeue_state
    ready_s = to_epoch_s(state.requeue_at if state is not None else None, default=0.0)
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
    return any(it.type == EVICTED and it.status == "True" for it in status.conditions)


def _deadline(status: QueueUnitStatus, times: UnitTimes) -> float | None:
    if times.pods_ready_s is None or status.last_allocate_time is None:
        return None
    return to_epoch_s(status.last_allocate_time) + times.pods_ready_s


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
