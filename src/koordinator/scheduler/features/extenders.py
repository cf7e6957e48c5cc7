"""Feature of scheduler extenders.

The extender's bind call cannot carry annotations (devices, CPUs), so they are written to the pod
before the call.

Source: kubernetes pkg/scheduler/schedule_one.go ``extendersBinding``.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from koordinator.api.pod import Pod
from koordinator.domain.reserve_pod import is_reserve_pod
from koordinator.foundation.errors import (
    ClusterError,
    ConflictError,
    ExtenderError,
    SilentExtenderError,
)
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.contract import EXTENDER, Action, EventHint, SchedulerExtender
from koordinator.scheduler.loop.feature_kinds import BindingFeature
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.loop.outcomes import Fact, PodRejected
from koordinator.scheduler.queue import EVERYTHING

RETRY_S: Final = 10.0  # delay until a refused pod or gang is tried again


class ExtenderFeature(BindingFeature):
    """Bind through the extender that binds, and retry of refused pods."""

    gate: ClassVar[str] = EXTENDER
    #: any event may change the answer of an extender
    gate_events = (EventHint(EVERYTHING, Action.ALL),)

    def __init__(self, handle: SchedulerHandle, extenders: Sequence[SchedulerExtender]) -> None:
        self._handle = handle
        self._binders = tuple(one for one in extenders if "bind" in one.verbs)
        self._refused: dict[str, float] = {}  # time of the retry by pod key

    # -- binding -----------------------------------------------------------------------------

    def has_own_bind(self, pod: Pod) -> bool:
        """Return whether an extender binds the pod; reservations are bound by the scheduler."""
        if is_reserve_pod(pod.metadata):
            return False
        return any(one.is_interested(pod.spec) for one in self._binders)

    def bind(self, assumed: Assumed) -> None:
        """Write the pod's allocations, then call the extender to bind it."""
        pod = assumed.queued.pod
        error: ClusterError | None = None
        try:
            self._write(assumed)
            if not self._bound_outside(pod, assumed.node):
                self._handle.binder.begin([assumed])
                return
        except ClusterError as failed:
            error = failed
        except SilentExtenderError as failed:
            error = ClusterError(str(failed))  # outcome unknown: the watch resolves it
        except ExtenderError as failed:
            error = ConflictError(str(failed))
        self._handle.binder.end_without_bind(assumed, error)

    def _bound_outside(self, pod: Pod, node: str) -> bool:
        """Return whether an extender bound the pod; failures of ignorable extenders are skipped."""
        for extender in self._binders:
            if not extender.is_interested(pod.spec):
                continue
            try:
                extender.bind(pod, node)
            except ExtenderError as error:
                if not extender.is_ignorable:
                    raise
                extender.record_failure(error)
                continue
            return True
        return False

    def _write(self, assumed: Assumed) -> None:
        meta, allocation = assumed.queued.pod.metadata, assumed.allocation
        if allocation.annotations or allocation.labels:
            change = {
                "uid": meta.uid,
                "annotations": dict(allocation.annotations),
                "labels": dict(allocation.labels),
            }
            self._handle.cluster.patch(Pod, meta.name, meta.namespace, {"metadata": change})

    # -- retries -----------------------------------------------------------------------------

    observed: ClassVar[tuple[type[Fact], ...]] = (PodRejected,)

    def observe(self, fact: Fact) -> None:
        """Schedule a retry for pods refused by an extender, whose answer no event announces."""
        if isinstance(fact, PodRejected) and fact.plugin == EXTENDER:
            self._refused[fact.queued.key] = self._handle.clock.now_s() + RETRY_S

    def on_left_queue(self, pod: Pod, *, deleted: bool) -> None:  # noqa: ARG002 -- either way
        """Cancel the retry of a pod that left the queue."""
        self._refused.pop(pod.key, None)

    def wake(self) -> None:
        """Activate the pods whose retry is due."""
        if not self._refused:
            return
        now_s = self._handle.clock.now_s()
        due = [key for key, due_s in self._refused.items() if due_s <= now_s]
        for key in due:
            del self._refused[key]
        self._handle.queue.activate(due, now_s)

    def next_wakeup_s(self, *, synced: bool) -> float | None:  # noqa: ARG002 -- always
        """Return when the next retry is due."""
        return min(self._refused.values(), default=None)
