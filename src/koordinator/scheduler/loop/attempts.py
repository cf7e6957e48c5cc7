"""Ends of attempts: queue, conditions and events of pods, facts for observers."""

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from koordinator.api.pod import Pod
from koordinator.foundation.clock import Clock
from koordinator.scheduler.binding import Assumed, AttemptRecord, Binder
from koordinator.scheduler.cycle import Scorecard
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.loop.hooks import Hooks
from koordinator.scheduler.loop.nominations import Nominations
from koordinator.scheduler.loop.outcomes import (
    AttemptBegan,
    AttemptEnded,
    Bound,
    DevicesAwaited,
    Evicted,
    Fact,
    NodeChosen,
    Outcome,
    OutcomesTaken,
    PermitWaited,
    PodEvicted,
    PodFailed,
    PodRejected,
    PodsBound,
    Unschedulable,
    UnschedulableReported,
)
from koordinator.scheduler.loop.reporter import Reporter, reservation_name_of_pod
from koordinator.scheduler.queue import Need, QueuedPod, SchedulingQueue
from koordinator.scheduler.snapshot import PodClass

log = logging.getLogger(__name__)


class Attempts:
    """Recorder of attempts, with their outcomes until the caller takes them.

    Observes the bindings, too.  Without a ``stopwatch`` attempts are not measured.
    """

    def __init__(
        self,
        clock: Clock,
        queue: SchedulingQueue,
        binder: Binder,
        *,
        reporter: Reporter,
        nominations: Nominations,
        hooks: Hooks,
        isolation: PluginIsolation,
        stopwatch: Clock | None,
    ) -> None:
        self._clock, self._queue, self._binder = clock, queue, binder
        self._reporter, self._nominations, self._hooks = reporter, nominations, hooks
        self._isolation = isolation
        self._stopwatch = stopwatch
        self.is_measured = stopwatch is not None
        self._outcomes: list[Outcome] = []
        self._attempt: AttemptRecord | None = None
        self.tried = 0  # pods, each time that they were

    # -- the attempt itself ------------------------------------------------------------------

    def begin(self, run: Sequence[QueuedPod]) -> None:
        """Record the start of an attempt for these pods."""
        if self._stopwatch is not None:
            self._attempt = AttemptRecord(len(run), self._stopwatch.now_s())
            self.note(AttemptBegan(self._attempt, run[0].pod.spec.scheduler_name))
        self._binder.begin_attempt(self._attempt)

    def end(self) -> None:
        """Record the end of the attempt."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None and self._stopwatch is not None:
            attempt.took_s = self._stopwatch.now_s() - attempt.began_s
            self.note(AttemptEnded(attempt))

    def note_node_chosen(self, pod_class: PodClass) -> None:
        """Record that a node was chosen for a pod, before the pod is assumed there."""
        if self._attempt is not None:
            self.note(NodeChosen(pod_class))

    def now_s(self) -> float:
        """Return the time of the stopwatch; 0 without one."""
        return self._stopwatch.now_s() if self._stopwatch is not None else 0.0

    def elapsed_s(self) -> float:
        """Return the duration of the attempt so far, in seconds; 0 if it is not measured."""
        if self._attempt is None or self._stopwatch is None:
            return 0.0
        return self._stopwatch.now_s() - self._attempt.began_s

    # -- its end -----------------------------------------------------------------------------

    def reject(
        self,
        queued: QueuedPod,
        main: tuple[str, str],
        plugins: AbstractSet[str],
        message: str,
        scorecard: Scorecard | None = None,
        *,
        nominated: str = "",
        need: Need | None = None,
    ) -> None:
        """End an attempt that found no node, for ``main`` plugin and reason.

        Events to which the ``plugins`` listen requeue the pod, or enough room for its ``need``.
        """
        now_s = self._clock.now_s()
        with self._isolation.barrier("report", queued.pod):
            self.note(PodRejected(now_s, queued, *main, nominated, took_s=self.elapsed_s()))
            self._outcomes.append(_unschedulable(queued, main, message, nominated, scorecard))
            self.report_waiting(queued.pod, message)
        self._queue.reject(queued, frozenset(plugins), frozenset(), message, now_s, need=need)

    def wait(self, queued: QueuedPod, main: tuple[str, str], message: str) -> None:
        """Record that a pod stays pending for ``main`` plugin and reason, without an attempt."""
        self.note(PodRejected(self._clock.now_s(), queued, *main, tried=False))
        with self._isolation.barrier("report", queued.pod):
            self._outcomes.append(_unschedulable(queued, main, message))

    def fail(self, queued: QueuedPod, message: str) -> None:
        """Requeue a pod whose decision failed, after a backoff."""
        log.warning("pod not bound", extra={"pod": queued.key, "error": message})
        self.note(PodFailed(self._clock.now_s(), queued, message))
        with self._isolation.barrier("report", queued.pod):
            self._outcomes.append(_unschedulable(queued, ("", message), message))
        with self._isolation.barrier("report", queued.pod):
            self._nominations.end(queued.pod)
        with self._isolation.barrier("report", queued.pod):
            if self._queue.get(queued.key) is queued:  # else it was deleted, or has a node by now
                self._reporter.report_unschedulable(queued.pod, message, "SchedulerError")
        self._queue.fail(queued, message, self._clock.now_s())

    def report_waiting(self, pod: Pod, message: str) -> None:
        """Write to the pod why it is pending."""
        self._reporter.report_unschedulable(pod, message)
        self.note(UnschedulableReported(pod, message))

    def note(self, fact: Fact) -> None:
        """Pass a fact to the features that observe facts of its kind."""
        for observe in self._hooks.observe[type(fact)]:
            try:
                observe(fact)
            except Exception as error:  # noqa: BLE001 -- reported
                self._isolation.note("observe", error)

    def note_eviction(self, outcome: Evicted) -> None:
        """Record the eviction of a pod."""
        self._outcomes.append(outcome)
        self.note(PodEvicted(self._clock.now_s(), outcome))

    # -- reports of bindings ----------------------------------------------------------------

    def on_permit_wait_ended(self, result: str, since_s: float) -> None:
        """Record that a pod has left the permit stage: allowed, rejected or timed out."""
        self.note(PermitWaited(result, self._clock.now_s() - since_s))

    def on_preparation_ended(self, assumed: Assumed, result: str) -> None:
        """Record that the binding conditions of a pod's devices are met, failed or timed out."""
        if assumed.drivers:
            now_s = self._clock.now_s()
            since_s = assumed.waits_since_s if assumed.deadline_s else now_s
            profile = assumed.queued.pod.spec.scheduler_name
            self.note(DevicesAwaited(profile, assumed.drivers, result, now_s - since_s))

    def on_permit_refused(self, assumed: Assumed, plugin: str, refusal: str) -> None:
        """End the attempt of a pod that a permit plugin refuses."""
        with self._isolation.barrier("report", assumed.queued.pod):
            self._nominations.end(assumed.queued.pod)
        plugins, card = frozenset((plugin,)), assumed.scorecard
        self.reject(assumed.queued, (plugin, refusal), plugins, refusal, card)

    def on_bind_failed(self, queued: QueuedPod, message: str) -> None:
        """Requeue a pod whose bind failed, after a backoff."""
        self.fail(queued, message)

    def on_released(self, assumed: Assumed) -> None:
        """Notify features that a pod lost its place."""
        for on_released in self._hooks.on_released:
            with self._isolation.barrier("released", assumed.queued.pod):
                on_released(assumed)

    def on_bound(self, bound: Sequence[Assumed]) -> None:
        """Record pods whose binds the API server has confirmed."""
        if self._hooks.observe[PodsBound]:
            self.note(PodsBound(self._clock.now_s(), bound))
        for assumed in bound:
            queued, allocation = assumed.queued, assumed.allocation
            self._outcomes.append(
                Bound(
                    queued.key,
                    assumed.node,
                    allocation.annotations,
                    allocation.labels,
                    assumed.scorecard,
                    reservation_name_of_pod(queued.pod),
                )
            )
        try:
            self._reporter.report_bound([(assumed.queued.pod, assumed.node) for assumed in bound])
        except Exception as error:  # noqa: BLE001 -- reported
            self._isolation.note("report", error)

    @property
    def has_own_binds(self) -> bool:
        """Whether a feature has its own bind for some pods."""
        return bool(self._hooks.bind)

    def bind_by_feature(self, assumed: Assumed) -> bool:
        """Bind a pod with the feature that binds such pods; return whether there is one."""
        for has_own_bind, bind in self._hooks.bind:
            if has_own_bind(assumed.queued.pod):
                bind(assumed)
                return True
        return False

    # -- outcomes ----------------------------------------------------------------------------

    def take(self) -> list[Outcome]:
        """Return the outcomes since the last call, in order."""
        if self._hooks.observe[OutcomesTaken]:
            self.note(OutcomesTaken(self._clock.now_s()))
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self) -> None:
        """Flush the facts of observers at the end of the process."""
        self.note(OutcomesTaken(self._clock.now_s(), last=True))


def _unschedulable(
    queued: QueuedPod,
    main: tuple[str, str],
    message: str,
    nominated: str = "",
    scorecard: Scorecard | None = None,
) -> Unschedulable:
    name = reservation_name_of_pod(queued.pod)
    return Unschedulable(queued.key, *main, message, nominated, scorecard, name)
