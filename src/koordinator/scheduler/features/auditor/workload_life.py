"""Lifecycle of a pod or gang from creation to start, with measures and alerts.

A *round* of waiting lasts from an event that admits a workload to the next that gates it;
a *preemption* from a nomination until all victims have terminated or another event ends it.
Source: koordinator pkg/scheduler/frameworkext/workloadauditor.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from typing import Final

from koordinator.foundation.lazy_dataclass import dataclass


class WorkloadEvent(StrEnum):
    """Events of a workload; values of the label ``event_type``."""

    GATED = "gatedByQueueAdmission"  # it has scheduling gates
    ADMITTED = "admissionPassed"  # its scheduling gates were removed
    CREATED = "create"
    SCHEDULED = "scheduled"
    NOMINATED = "preemptNominated"  # victims were evicted for it
    VICTIMS_LEAVING = "preemptVictimDeleting"  # it was tried while victims were terminating
    PREEMPTION_FAILED = "preemptFailure"  # no victims were found
    FAILED = "scheduleFailure"
    GANG_TRIED = "gangAllPodsAlreadyAttempted"
    VICTIMS_DELETED = "victimAllDeleted"
    GANG_COMPLETE = "gangMinMemberSatisfied"  # it has enough members


class LifeOutcome(StrEnum):
    """Final outcomes of a workload; values of the label ``outcome``."""

    SCHEDULED = "scheduled"
    DELETED = "deleted"
    GANG_SCHEDULED = "gangScheduled"
    GANG_DELETED = "gangDeleted"


class LifeMeasure(StrEnum):
    """Measures; values are metric names below ``workload_auditor_``."""

    REPEATED = "repeated_preemptions_total"
    INVALIDATED = "preemption_invalidations_total"
    RESCHEDULED_S = "victim_reschedule_duration_seconds"
    RETRIES = "preemption_victim_deleting_retries"
    VICTIMS_DELETED_S = "preemption_to_victim_deleted_seconds"
    INTERRUPTED_S = "preemption_cycle_interrupted_seconds"
    INTERVAL_S = "scheduling_event_interval_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLimits:
    """Limits above which an alert is raised."""

    reschedule_s: float = 10.0  # from the termination of the last victim to the next result
    deletion_s: float = 30.0  # from a nomination to the termination of the last victim
    retries: int = 3  # attempts before all victims have terminated
    interval_s: float = 300.0  # between two events of a round


#: Recorder of a measure with its value.
Observe = Callable[[LifeMeasure, float], None]
#: Receiver of alert texts.
Alert = Callable[[str], None]

_ROUND_BEGINS: Final = frozenset(
    (WorkloadEvent.CREATED, WorkloadEvent.ADMITTED, WorkloadEvent.GANG_COMPLETE)
)
_RESULTS: Final = frozenset(
    (
        WorkloadEvent.NOMINATED,
        WorkloadEvent.PREEMPTION_FAILED,
        WorkloadEvent.FAILED,
        WorkloadEvent.SCHEDULED,
    )
)
_FAILURES: Final = frozenset((WorkloadEvent.PREEMPTION_FAILED, WorkloadEvent.FAILED))


@dataclass(slots=True)
class WorkloadLife:
    """History of one workload; times are seconds of a monotonic clock."""

    limits: AlertLimits
    observe: Observe
    alert: Alert
    counts: Counter[WorkloadEvent] = field(default_factory=Counter)
    is_gated: bool = False
    _nominated_at_s: float | None = None  # during a preemption
    _is_invalidated: bool = False  # the last nomination was invalidated
    _retries: int = 0
    _victims_deleted_at_s: float | None = None  # until the next result
    _last_event_s: float | None = None  # in this round

    def record(self, event: WorkloadEvent, now_s: float, message: str = "") -> None:
        """Record an event with its measures, and raise alerts."""
        self.counts[event] += 1
        if event is WorkloadEvent.NOMINATED:
            self._nominate(now_s)
        elif event in _FAILURES:
            self._invalidate(event)
        if event in _RESULTS:
            self._reschedule(now_s)
            if event is not WorkloadEvent.NOMINATED:
                self._end_preemption(now_s, LifeMeasure.INTERRUPTED_S)
        elif event is WorkloadEvent.VICTIMS_DELETED:
            self._end_preemption(now_s, LifeMeasure.VICTIMS_DELETED_S)
            self._victims_deleted_at_s = now_s
        elif event is WorkloadEvent.VICTIMS_LEAVING:
            self._retries += 1
        elif event is WorkloadEvent.GATED:
            self._victims_deleted_at_s = None  # it cannot be tried
        self._measure_interval(event, now_s, message)

    def gate(self, now_s: float, *, closed: bool) -> None:
        """Record whether the workload is gated; ignore repeated values."""
        if closed is not self.is_gated:
            self.is_gated = closed
            self.record(WorkloadEvent.GATED if closed else WorkloadEvent.ADMITTED, now_s)

    def end(self, now_s: float) -> None:
        """Close open measures when the workload starts or is deleted."""
        if self._nominated_at_s is not None:
            self.observe(LifeMeasure.INTERRUPTED_S, now_s - self._nominated_at_s)
            self.observe(LifeMeasure.RETRIES, self._retries)
            self._nominated_at_s = None

    # -- parts -------------------------------------------------------------------------------

    def _nominate(self, now_s: float) -> None:
        self._end_preemption(now_s, LifeMeasure.INTERRUPTED_S)
        count = self.counts[WorkloadEvent.NOMINATED]
        if count > 1:
            self.observe(LifeMeasure.REPEATED, 1)
            self.alert(f"repeated preemption, number {count}")
            self._invalidate(WorkloadEvent.NOMINATED)
        self._is_invalidated, self._retries = False, 0
        self._nominated_at_s = now_s

    def _invalidate(self, event: WorkloadEvent) -> None:
        if self.counts[WorkloadEvent.NOMINATED] and not self._is_invalidated:
            self._is_invalidated = True
            self.observe(LifeMeasure.INVALIDATED, 1)
            self.alert(f"preemption invalidated by {event}")

    def _reschedule(self, now_s: float) -> None:
        if self._victims_deleted_at_s is None:
            return
        took_s, self._victims_deleted_at_s = now_s - self._victims_deleted_at_s, None
        self.observe(LifeMeasure.RESCHEDULED_S, took_s)
        if took_s > self.limits.reschedule_s:
            self.alert(f"{took_s:.1f} s from the end of the victims to the next result")

    def _end_preemption(self, now_s: float, measure: LifeMeasure) -> None:
        if self._nominated_at_s is None:
            return
        took_s, self._nominated_at_s = now_s - self._nominated_at_s, None
        self.observe(measure, took_s)
        self.observe(LifeMeasure.RETRIES, self._retries)
        if self._retries > self.limits.retries:
            self.alert(f"tried {self._retries} times while victims were still there")
        if took_s > self.limits.deletion_s:
            done = "victims gone" if measure is LifeMeasure.VICTIMS_DELETED_S else "interrupted"
            self.alert(f"{done} {took_s:.1f} s after the nomination")

    def _measure_interval(self, event: WorkloadEvent, now_s: float, message: str) -> None:
        """Measure the time between two events of a round."""
        if event is WorkloadEvent.VICTIMS_DELETED:
            return  # it is no scheduling attempt
        before_s = None if event in _ROUND_BEGINS else self._last_event_s
        self._last_event_s = None if event is WorkloadEvent.GATED else now_s
        if before_s is None or event is WorkloadEvent.GATED:
            return
        self.observe(LifeMeasure.INTERVAL_S, now_s - before_s)
        if now_s - before_s > self.limits.interval_s:
            title = f"{event}: {message}" if message else str(event)
            self.alert(f"nothing happened for {now_s - before_s:.0f} s before {title}")
