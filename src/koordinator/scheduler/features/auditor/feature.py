"""Auditor of workloads from creation to start, with alerts about abnormal ones.

A workload is a pod, or a gang group as a whole.  It is off by default as in the original; the audit
trail records decisions in any case.
Source: koordinator pkg/scheduler/frameworkext/workloadauditor.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from time import perf_counter
from typing import ClassVar, Final

from koordinator.api.pod import Pod, is_terminal
from koordinator.api.qos import declared_band
from koordinator.domain.gangs import GangCache
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import QueueGate
from koordinator.scheduler.features.auditor.metrics import AuditorMetrics
from koordinator.scheduler.features.auditor.workload_life import (
    AlertLimits,
    LifeOutcome,
    WorkloadEvent,
    WorkloadLife,
)
from koordinator.scheduler.loop.feature import Feature
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.loop.outcomes import (
    AttemptBegan,
    AttemptEnded,
    Fact,
    PodEvicted,
    PodFailed,
    PodRejected,
    PodsBound,
    PreemptionAttempt,
)

log = logging.getLogger(__name__)

#: Event of an attempt with different outcomes of gang members: the first one wins.
_RANK: Final = (
    WorkloadEvent.NOMINATED,
    WorkloadEvent.VICTIMS_LEAVING,
    WorkloadEvent.PREEMPTION_FAILED,
    WorkloadEvent.FAILED,
)


@dataclass(slots=True, eq=False)
class _Workload:
    key: str
    life: WorkloadLife
    labels: tuple[str, ...]
    is_gang: bool
    members: set[str] = field(default_factory=set)  # keys of pending pods
    victims: set[str] = field(default_factory=set)  # keys of victims that still exist


class WorkloadAuditor(Feature):
    """Lifecycle records of pending workloads; only the scheduler's thread calls it."""

    def __init__(
        self, metrics: AuditorMetrics, limits: AlertLimits, labels: Mapping[str, str]
    ) -> None:
        """``labels``: pod label by name of the metric label, in addition to the priority."""
        self._metrics, self._limits, self._label_keys = metrics, limits, tuple(labels.values())
        self._handle: SchedulerHandle | None = None
        self._gangs: Sequence[GangCache] = ()
        self._workloads: dict[str, _Workload] = {}
        self._of_pod: dict[str, _Workload] = {}  # by key of a pending pod
        self._by_victim: dict[str, set[str]] = {}  # workload keys by victim
        self._is_trying = False  # during an attempt
        self._has_preempted = False  # preemption was tried in this attempt
        self._tried: dict[str, tuple[WorkloadEvent, str]] = {}  # in that attempt, by workload

    @property
    def waiting(self) -> int:
        """Number of pending workloads."""
        return len(self._workloads)

    def watch(self, handle: SchedulerHandle, gangs: Sequence[GangCache]) -> None:
        """Set the scheduler and the gangs to follow."""
        self._handle, self._gangs = handle, gangs

    # -- pods --------------------------------------------------------------------------------

    def on_pod_event(self, pod: Pod, previous: Pod | None, *, deleted: bool) -> Sequence[str]:  # noqa: ARG002 -- what it is now counts
        """Update the workload of a pod that is pending, scheduled or deleted."""
        began_s = perf_counter()
        has_ended = deleted or is_terminal(pod)
        if has_ended:
            self._on_victim_deleted(pod.key)
            self._leave(pod.key)
        elif pod.spec.node_name:
            self._scheduled(pod)
        elif self._handle is not None and pod.spec.scheduler_name in self._handle.cycles:
            workload = self._join(pod)
            if workload is not None:
                workload.life.gate(self._now_s, closed=bool(pod.spec.scheduling_gates))
        self._metrics.took("RecordPod", perf_counter() - began_s)
        return ()

    def on_gate_result(self, pod: Pod, gate: QueueGate | None) -> None:
        """Record that a gang has enough members."""
        workload = self._join(pod) if gate is None else None
        if workload is not None and workload.is_gang:
            life = workload.life
            if not life.counts[WorkloadEvent.GANG_COMPLETE]:
                life.record(WorkloadEvent.GANG_COMPLETE, self._now_s)

    # -- attempts ----------------------------------------------------------------------------

    observed: ClassVar[tuple[type[Fact], ...]] = (
        AttemptBegan,
        PreemptionAttempt,
        PodRejected,
        PodFailed,
        PodEvicted,
        AttemptEnded,
        PodsBound,
    )

    def observe(self, fact: Fact) -> None:
        """Record outcomes of attempts."""
        began_s, method = perf_counter(), "RecordDiagnosis"
        match fact:
            case AttemptBegan():
                self._is_trying, self._has_preempted = True, False
                return
            case PreemptionAttempt():
                self._has_preempted = True
                return
            case PodRejected() if fact.tried:
                self._reject(fact)
            case PodFailed():
                self._note(fact.queued.pod, WorkloadEvent.FAILED, fact.message)
            case PodEvicted():
                self._evict(fact)
            case AttemptEnded():
                self._end_attempt()
            case PodsBound():
                method = "RecordPodScheduleResult"
                for assumed in fact.bound:
                    self._scheduled(assumed.queued.pod)
            case _:
                return
        self._metrics.took(method, perf_counter() - began_s)

    def _reject(self, fact: PodRejected) -> None:
        key, event = fact.queued.key, WorkloadEvent.FAILED
        if fact.nominated:
            event = WorkloadEvent.NOMINATED
        elif self._handle is not None and self._handle.nominator.node_of(key):
            event = WorkloadEvent.VICTIMS_LEAVING
        elif self._has_preempted:
            event = WorkloadEvent.PREEMPTION_FAILED
        self._note(fact.queued.pod, event, fact.reason)

    def _note(self, pod: Pod, event: WorkloadEvent, message: str) -> None:
        workload = self._of_pod.get(pod.key)
        if workload is None:
            return
        known = self._tried.get(workload.key)
        if known is None or _RANK.index(event) < _RANK.index(known[0]):
            self._tried[workload.key] = event, message
        if not self._is_trying:
            self._end_attempt()

    def _end_attempt(self) -> None:
        tried, self._tried = self._tried, {}
        self._is_trying = self._has_preempted = False
        for key, (event, message) in tried.items():
            workload = self._workloads.get(key)
            if workload is None:
                continue
            workload.life.record(event, self._now_s, message)
            if workload.is_gang:
                workload.life.record(WorkloadEvent.GANG_TRIED, self._now_s)

    def _evict(self, fact: PodEvicted) -> None:
        workload = self._of_pod.get(fact.outcome.by)
        if workload is not None:
            workload.victims.add(fact.outcome.pod)
            self._by_victim.setdefault(fact.outcome.pod, set()).add(workload.key)

    def _on_victim_deleted(self, victim: str) -> None:
        for key in self._by_victim.pop(victim, ()):
            workload = self._workloads.get(key)
            if workload is not None:
                workload.victims.discard(victim)
                if not workload.victims:
                    workload.life.record(WorkloadEvent.VICTIMS_DELETED, self._now_s)

    # -- workloads ---------------------------------------------------------------------------

    def _join(self, pod: Pod) -> _Workload | None:
        """Return the workload of a pending pod; None while the size of its gang is unknown.

        Members created after their gang has started are no workload.
        """
        known = self._of_pod.get(pod.key)
        if known is not None:
            return known
        key, is_gang = f"{pod.key}/{pod.metadata.uid}", False
        for gangs in self._gangs:
            gang = gangs.gang_of(pod)
            if gang is not None:
                if gang.terms is None or gangs.starts_alone(pod):
                    return None
                key, is_gang = gang.terms.group_id, True
                break
        workload = self._workloads.get(key)
        if workload is None:
            workload = self._workloads[key] = self._new(key, pod, is_gang=is_gang)
        workload.members.add(pod.key)
        self._of_pod[pod.key] = workload
        return workload

    def _new(self, key: str, pod: Pod, *, is_gang: bool) -> _Workload:
        wanted = (pod.metadata.labels.get(name, "") for name in self._label_keys)
        labels = self._metrics.series((declared_band(pod).value, *wanted))

        def alert(title: str) -> None:
            log.warning("workload auditor", extra={"alert": title, "workload": key})

        life = WorkloadLife(self._limits, partial(self._metrics.observe, labels), alert)
        life.record(WorkloadEvent.CREATED, self._now_s)
        return _Workload(key, life, labels, is_gang)

    def _scheduled(self, pod: Pod) -> None:
        workload = self._of_pod.get(pod.key)
        if workload is None:
            return
        if not workload.is_gang:
            self._finish(workload, LifeOutcome.SCHEDULED)
        elif any(gangs.is_member(pod) and gangs.starts_alone(pod) for gangs in self._gangs):
            self._finish(workload, LifeOutcome.GANG_SCHEDULED)

    def _leave(self, key: str) -> None:
        workload = self._of_pod.pop(key, None)
        if workload is None:
            return
        workload.members.discard(key)
        if not workload.members:
            deleted = LifeOutcome.GANG_DELETED if workload.is_gang else LifeOutcome.DELETED
            self._finish(workload, deleted)

    def _finish(self, workload: _Workload, how: LifeOutcome) -> None:
        life, now_s = workload.life, self._now_s
        if how in (LifeOutcome.SCHEDULED, LifeOutcome.GANG_SCHEDULED):
            life.record(WorkloadEvent.SCHEDULED, now_s)
        life.end(now_s)
        self._metrics.ended(workload.labels, life.counts.items(), how)
        self._workloads.pop(workload.key, None)
        for key in workload.members:
            self._of_pod.pop(key, None)
        for victim in workload.victims:
            waiting = self._by_victim.get(victim, set())
            waiting.discard(workload.key)
            if not waiting:
                self._by_victim.pop(victim, None)

    @property
    def _now_s(self) -> float:
        return self._handle.clock.now_s() if self._handle is not None else 0.0
