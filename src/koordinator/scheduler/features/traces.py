"""Traces of pods: one trace from the watch event that brought a pod to its bind.

Spans are created when a pod is bound, with the times of the facts that were observed before, so
that a decision does no more than without tracing.  The spans of a trace are *queue* (from the watch
event or the last attempt to the attempt that succeeded), *decision*, *assume* (permits and volumes)
and *bind* (the request to the API server); an attempt without success is a span *attempt*.
Requires ``koordinator[tracing]``.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, Final

from opentelemetry.trace import Span, Tracer, set_span_in_context

from koordinator.api.pod import Pod
from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.loop.feature import Feature
from koordinator.scheduler.loop.outcomes import (
    AttemptBegan,
    Fact,
    PodFailed,
    PodRejected,
    PodsBound,
)

MAX_PODS: Final = 100_000  # pending pods whose events are remembered; others have no trace
MAX_ATTEMPTS: Final = 32  # attempts without success in one trace: the last ones
_NANOS: Final = 1_000_000_000

_Attributes = dict[str, str | int]


@dataclass(slots=True)
class _FailedAttempt:
    began_s: float
    ended_s: float
    attributes: _Attributes


@dataclass(slots=True)
class _PendingPod:
    """Times of a pod that has no node yet."""

    seen_s: float
    failed: list[_FailedAttempt] = field(default_factory=list)

    def add(self, attempt: _FailedAttempt) -> None:
        """Add an attempt, and drop the oldest one beyond the limit."""
        self.failed.append(attempt)
        del self.failed[:-MAX_ATTEMPTS]


class PodTraces(Feature):
    """Creates the spans of bound pods; only the scheduler's thread calls it."""

    observed: ClassVar[tuple[type[Fact], ...]] = (AttemptBegan, PodRejected, PodFailed, PodsBound)

    def __init__(self, tracer: Tracer, clock: Clock) -> None:
        self._tracer, self._clock = tracer, clock
        self._pending: dict[str, _PendingPod] = {}  # by uid
        #: Difference between the clock and the stopwatch that times attempts.
        self._offset_s = 0.0

    def unwatch(self) -> None:
        """Forget the pending pods of a scheduler that ends; the next one lists them again."""
        self._pending.clear()

    # -- events and facts --------------------------------------------------------------------

    def on_pod_event(self, pod: Pod, previous: Pod | None, *, deleted: bool) -> Sequence[str]:
        """Remember when a pending pod was seen first."""
        is_new = previous is None and not deleted and not pod.spec.node_name
        if is_new and len(self._pending) < MAX_PODS:
            self._pending[pod.metadata.uid] = _PendingPod(self._clock.now_s())
        return ()

    def on_left_queue(self, pod: Pod, *, deleted: bool) -> None:  # noqa: ARG002 -- however it left
        """Forget a pod that ended or that others bound; ``PodsBound`` ends all other traces."""
        self._pending.pop(pod.metadata.uid, None)

    def observe(self, fact: Fact) -> None:
        """Record attempts, and create the trace of bound pods."""
        match fact:
            case AttemptBegan():
                self._offset_s = self._clock.now_s() - fact.attempt.began_s
            case PodRejected():
                reason: _Attributes = {"plugin": fact.plugin, "reason": fact.reason}
                self._fail(fact.queued.pod, fact.at_s, fact.took_s, reason)
            case PodFailed():
                self._fail(fact.queued.pod, fact.at_s, 0.0, {"reason": fact.message})
            case PodsBound():
                for assumed in fact.bound:
                    self._trace(assumed, fact.at_s)

    # -- internals ---------------------------------------------------------------------------

    def _fail(self, pod: Pod, at_s: float, took_s: float, attributes: _Attributes) -> None:
        record = self._pending.get(pod.metadata.uid)
        if record is not None:  # the outcome may come after the pod was deleted
            record.add(_FailedAttempt(at_s - took_s, at_s, attributes))

    def _trace(self, assumed: Assumed, bound_s: float) -> None:
        pod = assumed.queued.pod
        record = self._pending.pop(pod.metadata.uid, None)
        if record is None:
            return
        began_s = decided_s = assumed.sent_s or bound_s
        more: _Attributes = {}
        if assumed.attempt is not None:
            began_s = assumed.attempt.began_s + self._offset_s
            decided_s = began_s + assumed.attempt.took_s
            more = {f"{point}_us": spent for point, spent in assumed.attempt.spent_us.items()}
            more["pods"] = assumed.attempt.pods
        attributes: _Attributes = {
            "k8s.namespace.name": pod.metadata.namespace,
            "k8s.pod.name": pod.metadata.name,
            "k8s.pod.uid": pod.metadata.uid,
            "k8s.node.name": assumed.node,
            "profile": pod.spec.scheduler_name,
            "attempts": assumed.queued.attempts,
        }
        root = self._tracer.start_span(
            "schedule pod", attributes=attributes, start_time=_nanos(record.seen_s)
        )
        waited_s = record.seen_s
        for attempt in record.failed:
            self._add(root, "attempt", attempt.began_s, attempt.ended_s, attempt.attributes)
            waited_s = attempt.ended_s
        sent_s = max(assumed.sent_s, decided_s)
        ended_s = max(bound_s, sent_s)
        self._add(root, "queue", waited_s, began_s, {})
        self._add(root, "decision", began_s, decided_s, more)
        self._add(root, "assume", decided_s, sent_s, {})
        self._add(root, "bind", sent_s, ended_s, {})
        root.end(_nanos(ended_s))

    def _add(
        self, root: Span, name: str, began_s: float, ended_s: float, attributes: _Attributes
    ) -> None:
        span = self._tracer.start_span(
            name,
            context=set_span_in_context(root),
            attributes=attributes,
            start_time=_nanos(began_s),
        )
        span.end(_nanos(max(ended_s, began_s)))


def _nanos(at_s: float) -> int:
    return int(at_s * _NANOS)
