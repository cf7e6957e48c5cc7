"""Explanations of pending pods as a feature: page, objects and their answers.

Source: koordinator apis/scheduling/v1alpha1/schedule_explanation.go; upstream has no controller
for it, so the refresh intervals are ours.
"""

import datetime as dt
import logging
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from koordinator.api.codec import merge_patch
from koordinator.api.meta import JsonObject
from koordinator.api.schedule_explanation import (
    DomainExplanation,
    NodeFailedDetail,
    NodeLevelExplanation,
    NodePossibleVictims,
    PossibleVictim,
    ScheduleExplanation,
    ScheduleExplanationStatus,
    SchedulingResult,
)
from koordinator.foundation.clock import to_datetime, to_epoch_s
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.scheduler.loop.feature import CallInLoop, Feature, StatePage, Step
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import QueuedPod, QueueState

if TYPE_CHECKING:
    from koordinator.scheduler.explanations import Explanation

REFRESH_S = 30.0  # interval at which an explanation is computed again
HEARTBEAT_S = 60.0  # age at which an unchanged status is written again
MOST = 4  # explanations per step: each blocks the loop for about 10 ms

log = logging.getLogger(__name__)


def explain(handle: SchedulerHandle, key: str) -> "Explanation":
    """Return why a pod, ``namespace/name``, is pending; see ``explainer.explain``.

    Raises NotFoundError for a pod unknown to the scheduler.
    """
    # A dozen modules, which scheduling needs none of: loaded for the first explanation.
    from koordinator.scheduler.features.explanations import explainer  # noqa: PLC0415

    return explainer.explain(handle, key)


class Explanations:
    """Refresh of explanations, and deletion of expired objects."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle, self._cluster, self._clock = handle, handle.cluster, handle.clock
        self._due_s: dict[tuple[str, str], float] = {}  # by key of the object and the question

    def step(self, *, finish: bool = False) -> None:
        """Write due explanations; ``finish`` writes all, otherwise at most ``MOST``."""
        now_s, left = self._clock.now_s(), sys.maxsize if finish else MOST
        objects = self._handle.state.objects
        explanations = list(objects.all(ScheduleExplanation))
        known = {(one.key, one.spec.question_object_key) for one in explanations}
        self._due_s = {key: due_s for key, due_s in self._due_s.items() if key in known}
        for one in explanations:
            if not left:
                return
            if now_s >= _ends_s(one):
                left -= 1
                self._delete(one)
            elif now_s >= self._due_s.get((one.key, one.spec.question_object_key), 0.0):
                left -= 1
                with self._handle.isolation.barrier("explain", one):
                    self._answer(one)

    def next_wakeup_s(self) -> float | None:
        """Return when the next explanation is due; None without objects."""
        objects = self._handle.state.objects
        return min(
            (
                min(self._due_s.get((one.key, one.spec.question_object_key), 0.0), _ends_s(one))
                for one in objects.all(ScheduleExplanation)
            ),
            default=None,
        )

    def _answer(self, one: ScheduleExplanation) -> None:
        now_s = self._clock.now_s()
        self._due_s[one.key, one.spec.question_object_key] = now_s + REFRESH_S
        status = self._status(one.spec.question_object_key, to_datetime(now_s))
        written_s = to_epoch_s(one.status.last_update_time)
        is_current = now_s - written_s < HEARTBEAT_S
        if is_current and status == replace(one.status, last_update_time=status.last_update_time):
            return  # only the time has changed
        self._write(one, merge_patch(one, replace(one, status=status)))

    def _status(self, question: str, now: dt.datetime) -> ScheduleExplanationStatus:
        try:
            explanation = explain(self._handle, self._pod_of(question))
        except NotFoundError as error:
            return ScheduleExplanationStatus(failed_message=str(error), last_update_time=now)
        domain = self._domain(explanation)
        return ScheduleExplanationStatus(
            schedulable=domain.schedulable,
            schedulable_after_preemption=domain.schedulable_after_preemption,
            failed_message=domain.failed_message,
            last_update_time=now,
            detailed_explanation=(domain,),
        )

    def _pod_of(self, question: str) -> str:
        """Return the pod to explain: for a gang group, a pending member if it has one."""
        for cycle in self._handle.cycles.values():
            for active in cycle.profile.gangs:
                gang = active.plugin.gangs.gangs.get(question.split(",", maxsplit=1)[0])
                if gang is not None and gang.members:
                    member: str = next(iter(gang.pending or gang.members))
                    return member
        return question

    def _domain(self, explanation: "Explanation") -> DomainExplanation:
        fits = explanation.verdict != "waits"
        victims = next(
            (r for r in explanation.remedies if r.kind == "preempt" and r.sufficient), None
        )
        return DomainExplanation(
            schedulable=fits,
            schedulable_after_preemption=victims is not None,
            failed_message="" if fits else explanation.summary,
            schedule_explanation=NodeLevelExplanation(
                schedulable=fits,
                failed_message=explanation.last_message if not fits else "",
                feasible_scheduling_result=(self._result(explanation),) if explanation.node else (),
                node_failed_details=tuple(
                    NodeFailedDetail(
                        failed_plugin=cause.plugin,
                        reason=cause.reason,
                        preempt_might_help=cause.resolvable,
                        failed_nodes=cause.on,
                    )
                    for cause in explanation.causes
                ),
            ),
            node_possible_victims=(
                (
                    NodePossibleVictims(
                        node_name=victims.nodes[0],
                        possible_victims=tuple(self._victim(key) for key in victims.pods),
                    ),
                )
                if victims is not None
                else ()
            ),
        )

    def _result(self, explanation: "Explanation") -> SchedulingResult:
        namespace, _, name = explanation.pod.partition("/")
        state = self._handle.state
        placed = state.pods.by_key.get(explanation.pod)
        pod = placed.pod if placed is not None else state.unbound[explanation.pod][0]
        uid = pod.metadata.uid
        return SchedulingResult(namespace=namespace, name=name, uid=uid, node_name=explanation.node)

    def _victim(self, key: str) -> PossibleVictim:
        namespace, _, name = key.partition("/")
        uid = self._handle.state.pods.by_key[key].pod.metadata.uid
        return PossibleVictim(namespace=namespace, name=name, uid=uid)

    def _write(self, one: ScheduleExplanation, patch: JsonObject) -> None:
        meta = one.metadata
        try:
            stored = self._cluster.patch(
                ScheduleExplanation, meta.name, meta.namespace, patch, "status"
            )
        except ClusterError as error:  # the next refresh writes it
            log.info("explanation not written", extra={"object": one.key, "error": str(error)})
        else:
            self._handle.state.objects.put(stored)

    def _delete(self, one: ScheduleExplanation) -> None:
        meta = one.metadata
        try:
            self._cluster.delete(ScheduleExplanation, meta.name, meta.namespace, uid=meta.uid)
        except NotFoundError:
            pass
        except ClusterError as error:
            log.info("explanation not deleted", extra={"object": one.key, "error": str(error)})


def _ends_s(one: ScheduleExplanation) -> float:
    """Return when the object expires."""
    ttl_s = one.spec.ttl.total_seconds()
    created_s = to_epoch_s(one.metadata.creation_timestamp)
    return created_s + ttl_s if ttl_s > 0 and created_s else float("inf")


class ExplanationFeature(Feature):
    """Pages of pending pods with reasons."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle

    def pages(self, in_loop: CallInLoop) -> Mapping[str, StatePage]:
        """Return the pages of one pod and of the queue."""
        return {
            "/explain/{namespace}/{podName}": lambda given: in_loop(
                partial(self._explained, f"{given['namespace']}/{given['podName']}")
            ),
            "/queue": lambda _: in_loop(self._waiting),
        }

    def _explained(self, key: str) -> dict[str, Any]:
        """Return the explanation of a pod.  Raises NotFoundError."""
        page: dict[str, Any] = msgspec.to_builtins(explain(self._handle, key))
        return page

    def _waiting(self) -> dict[str, Any]:
        """Return pending pods by queue, in order of arrival."""
        pods = self._handle.queue.pods
        return {state.value: [_shown(queued) for queued in pods(state)] for state in QueueState}


class ScheduleExplanationFeature(Feature):
    """Feature that runs the controller of ScheduleExplanation objects."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._explanations = Explanations(handle)

    def steps(self) -> Sequence[Step]:
        """Return the step that writes due explanations."""
        return (Step("explain", self._answer),)

    def _answer(self, _now_s: float) -> None:
        self._explanations.step()

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when the next explanation is due."""
        return self._explanations.next_wakeup_s() if synced else None


def _shown(queued: QueuedPod) -> dict[str, Any]:
    return {
        "pod": queued.key,
        "priority": queued.priority,
        "attempts": queued.attempts,
        "since": queued.queued_at_s,
        "rejectedBy": sorted(queued.rejectors),
        "message": queued.message,
    }
