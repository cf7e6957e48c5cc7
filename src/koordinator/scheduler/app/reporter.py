"""Conditions on pods and events about them, as kube-scheduler writes them.

Source: kubernetes pkg/scheduler/schedule_one.go ``handleSchedulingFailure``, ``updatePodStatus``.
"""

import msgspec

from koordinator.api.core import MicroTime, ObjectReference
from koordinator.api.event import Event
from koordinator.api.meta import Condition, JsonObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import UTC, Clock, to_datetime
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.scheduler.diagnosis import shortened

SCHEDULED = "PodScheduled"


class Reporter:
    """Writes about pods.

    What can't be written is not worth failing for: the pod will be tried again anyway.
    """

    def __init__(self, cluster: Cluster, clock: Clock, *, enabled: bool) -> None:
        self._cluster = cluster
        self._clock = clock
        self._enabled = enabled
        self._written = 0

    def bound(self, pod: Pod, node: str) -> None:
        """Tell that the pod was bound."""
        text = f"Successfully assigned {pod.key} to {node}"
        self._event(pod, "Normal", "Scheduled", action="Binding", note=text)

    def failed(self, pod: Pod, message: str, reason: str = "Unschedulable") -> None:
        """Tell why the pod still waits; a condition that says so already is left alone."""
        if not self._enabled:
            return
        message = shortened(message)
        self._event(pod, "Warning", "FailedScheduling", action="Scheduling", note=message)
        known = next((c for c in pod.status.conditions if c.type == SCHEDULED), None)
        if known is not None and (known.status, known.reason, known.message) == (
            "False",
            reason,
            message,
        ):
            return
        now = to_datetime(self._clock.now_s())
        since = known.last_transition_time if known and known.status == "False" else now
        condition = Condition(
            type=SCHEDULED,
            status="False",
            reason=reason,
            message=message,
            last_transition_time=since,
        )
        self._patch_conditions(pod, condition, {})

    def nominated(self, pod: Pod, node: str) -> None:
        """Write the node where room is being made; empty takes the nomination back."""
        try:
            self._patch(pod, {"nominatedNodeName": node or None})
        except ClusterError:
            return

    def preempted(self, victim: Pod, by: Pod, node: str) -> None:
        """Tell a victim why it goes, just before it does."""
        if not self._enabled:
            return
        text = f"Preempted by pod {by.metadata.uid} on node {node}"
        scheduler = by.spec.scheduler_name
        self._event(victim, "Normal", "Preempted", "Preempting", text, scheduler=scheduler)
        condition = Condition(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            message=f"{scheduler}: preempting to accommodate a higher priority pod",
            last_transition_time=to_datetime(self._clock.now_s()),
        )
        self._patch_conditions(victim, condition, {})

    def _patch_conditions(self, pod: Pod, condition: Condition, more: JsonObject) -> None:
        kept = [c for c in pod.status.conditions if c.type != condition.type]
        listed = [msgspec.to_builtins(c) for c in (*kept, condition)]
        try:
            self._patch(pod, {"conditions": listed, **more})
        except ClusterError:
            return

    def _patch(self, pod: Pod, status: JsonObject) -> None:
        meta = pod.metadata
        try:
            self._cluster.patch(Pod, meta.name, meta.namespace, {"status": status}, "status")
        except NotFoundError:
            return

    def _event(
        self, pod: Pod, kind: str, reason: str, action: str, note: str, *, scheduler: str = ""
    ) -> None:
        """Write about a pod in the name of its scheduler, unless it is another one's doing."""
        if not self._enabled:
            return
        scheduler = scheduler or pod.spec.scheduler_name
        now_s, meta = self._clock.now_s(), pod.metadata
        self._written += 1
        event = Event(
            metadata=ObjectMeta(
                name=f"{meta.name}.{int(now_s * 1e6):x}{self._written:04x}",
                namespace=meta.namespace,
            ),
            event_time=MicroTime.fromtimestamp(now_s, UTC),
            reporting_controller=scheduler,
            reporting_instance=scheduler,
            action=action,
            reason=reason,
            regarding=ObjectReference(
                api_version="v1",
                kind="Pod",
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
            ),
            note=note,
            type=kind,
        )
        try:
            self._cluster.create(event)
        except ClusterError:
            return
