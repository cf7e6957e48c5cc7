"""Listeners of events, queueing hints for the pods that they rejected, and updates of pods.

Source: kubernetes pkg/scheduler/backend/queue/scheduling_queue.go ``isPodWorthRequeuing``;
kubernetes pkg/scheduler/framework/events.go ``PodSchedulingPropertiesChange``.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec

from koordinator.api.pod import Pod, PodSpec
from koordinator.domain.pod_requests import pod_requests
from koordinator.scheduler.contract import (
    Action,
    ClusterEvent,
    EventHint,
    HintFunction,
    QueueingHint,
)
from koordinator.scheduler.queue.queued_pod import QueuedPod

EVERYTHING = "*"  # an event of it wakes all pods; a hint for it receives every event

#: Plugin -> its hint functions for one kind of event; None means "yes" for every pod
Listeners = Mapping[str, tuple[HintFunction | None, ...]]


class Wake(IntEnum):
    """Effect of an event on a waiting pod."""

    NO = 0
    AFTER_BACKOFF = 1
    AT_ONCE = 2


class HintTable:
    """The plugins' ``EventHint`` s.  One matches if any of the event's actions is among its own.

    A plugin without registered events is never called.
    """

    def __init__(self, hints: Mapping[str, Sequence[EventHint]]) -> None:
        self._hints = {plugin: tuple(of_plugin) for plugin, of_plugin in hints.items()}
        self._listeners: dict[tuple[str, int], Listeners] = {}  # filled as kinds of events come
        self.errors: dict[str, Exception] = {}  # plugin -> the last thing its hint raised

    def listeners(self, event: ClusterEvent) -> Listeners:
        """Return the plugins that registered for this kind of event."""
        kind = (event.resource, event.action.value)
        known = self._listeners.get(kind)
        if known is None:
            known = self._listeners[kind] = {
                plugin: functions
                for plugin, of_plugin in self._hints.items()
                if (functions := tuple(h.hint for h in of_plugin if _matches(h, event)))
            }
        return known

    def wake_for(self, queued: QueuedPod, event: ClusterEvent) -> Wake:
        """Run the hints of the plugins that rejected the pod; a pending one skips the backoff."""
        if event.resource == EVERYTHING:
            return Wake.AFTER_BACKOFF
        wake = Wake.NO
        for plugin, functions in self.listeners(event).items():
            pending = plugin in queued.pending_on
            if not pending and (wake is not Wake.NO or plugin not in queued.rejected_by):
                continue
            if self._helps(plugin, functions, queued.pod, event):
                wake = Wake.AT_ONCE if pending else Wake.AFTER_BACKOFF
                if pending or not queued.pending_on:
                    break
        return wake

    def _helps(
        self,
        plugin: str,
        functions: tuple[HintFunction | None, ...],
        pod: Pod,
        event: ClusterEvent,
    ) -> bool:
        for function in functions:
            try:
                if function is None or function(pod, event) is not QueueingHint.SKIP:
                    return True
            except Exception as error:  # noqa: BLE001 - a broken hint must not strand the pod
                self.errors[plugin] = error
                return True
        return False


def _matches(hint: EventHint, event: ClusterEvent) -> bool:
    return hint.resource in (EVERYTHING, event.resource) and bool(hint.action & event.action)


def pod_changes(old: Pod, new: Pod) -> Action:
    """Return all that changed; nothing when only bookkeeping did."""
    changes = Action(0)
    if old.metadata.labels != new.metadata.labels:
        changes |= Action.UPDATE_LABELS
    if old.metadata.annotations != new.metadata.annotations:
        changes |= Action.UPDATE_ANNOTATIONS
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
        changes |= Action.UPDATE_GENERATED_CLAIMS
    return changes if old.spec == new.spec else changes | _spec_changes(old.spec, new.spec)


def _spec_changes(old: PodSpec, new: PodSpec) -> Action:
    changes = Action(0)
    if old.tolerations != new.tolerations:
        changes |= Action.UPDATE_TOLERATIONS
    if old.scheduling_gates and not new.scheduling_gates:
        changes |= Action.UPDATE_GATES_ELIMINATED
    after = pod_requests(new)
    if any(amount > after.get(name, 0) for name, amount in pod_requests(old).items()):
        changes |= Action.UPDATE_SCALE_DOWN
    rest = msgspec.structs.replace(
        old, tolerations=new.tolerations, scheduling_gates=new.scheduling_gates
    )
    return changes if rest == new else changes | Action.UPDATE_OTHER
