"""Features for explanations: HTTP pages, and ScheduleExplanation objects."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from koordinator.scheduler.features.explanation.answers import Explanations
from koordinator.scheduler.features.explanation.explainer import explain
from koordinator.scheduler.loop.feature import Ask, Feature, Page, Step
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import QueuedPod, QueueState


class ExplanationFeature(Feature):
    """Pages of pending pods with reasons."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle

    def pages(self, ask: Ask) -> Mapping[str, Page]:
        """Return the pages of one pod and of the queue."""
        return {
            "/explain/{namespace}/{podName}": lambda given: ask(
                partial(self._explained, f"{given['namespace']}/{given['podName']}")
            ),
            "/queue": lambda _: ask(self._waiting),
        }

    def _explained(self, key: str) -> dict[str, Any]:
        """Return the explanation of a pod.  Raises NotFoundError."""
        page: dict[str, Any] = msgspec.to_builtins(explain(self._handle, key))
        return page

    def _waiting(self) -> dict[str, Any]:
        """Return pending pods by queue, in order of arrival."""
        pods = self._handle.queue.pods
        return {state.value: [_shown(queued) for queued in pods(state)] for state in QueueState}


class AnswerFeature(Feature):
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
