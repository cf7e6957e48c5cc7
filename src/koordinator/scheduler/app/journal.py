"""Who is told of decisions: whoever embeds the scheduler, the metrics, the audit."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from koordinator.cluster.port import EventType, WatchEvent
from koordinator.domain.reservations.reserve_pod import reservation_name
from koordinator.foundation.clock import Clock
from koordinator.scheduler.app.audit import Audit
from koordinator.scheduler.app.binding import Assumed, Binder
from koordinator.scheduler.app.outcomes import Bound, Evicted, Outcome, Unschedulable
from koordinator.scheduler.cycle import Scorecard
from koordinator.scheduler.queue import QueuedPod, SchedulingQueue
from koordinator.scheduler.snapshot import PodClass

if TYPE_CHECKING:  # what measures is not loaded where nobody asks for figures
    from koordinator.scheduler.app.metrics import Metrics


class Journal:
    """Keeps the outcomes until they are taken; metrics and audit learn of them at once."""

    def __init__(
        self,
        clock: Clock,
        queue: SchedulingQueue,
        binder: Binder,
        metrics: "Metrics | None",
        audit: Audit | None,
    ) -> None:
        self._clock, self._queue, self._binder = clock, queue, binder
        self._metrics, self._audit = metrics, audit
        self._watch = metrics or audit
        self._outcomes: list[Outcome] = []
        self.began_s = 0.0  # when the last decision began, by the stopwatch

    # -- decisions ---------------------------------------------------------------------------

    def begin(self, run: Sequence[QueuedPod]) -> None:
        """Note that a decision about these pods begins."""
        self.began_s = self._watch.now_s() if self._watch is not None else 0.0
        if self._audit is not None:
            profile = run[0].pod.spec.scheduler_name
            self._binder.turn = self._audit.begin(profile, len(run), self.began_s)

    def end(self, run: Sequence[QueuedPod]) -> None:
        """Note that what began has ended."""
        took_s = self._watch.now_s() - self.began_s if self._watch is not None else 0.0
        turn = self._binder.turn
        if self._metrics is not None:
            spent_us = turn.spent_us if turn is not None else None
            self._metrics.decided(len(run), took_s, spent_us)
        if self._audit is not None:
            self._binder.turn = None
            self._audit.end(took_s)

    def compare(self, pod_class: PodClass) -> None:
        """Note which nodes are the best for such a pod, before it has its place."""
        if self._audit is not None:
            self._audit.compare(pod_class)

    def preempted(self, victims: int) -> None:
        """Note how many pods shall make room for one."""
        if self._metrics is not None:
            self._metrics.preempted(victims)

    def permitted(self, result: str, waits_since_s: float) -> None:
        """Note that a pod has waited for its permit, by the clock."""
        if self._metrics is not None:
            self._metrics.permitted(result, self._clock.now_s() - waits_since_s)

    def node_changed(self, event: WatchEvent) -> None:
        """Note what became of a node."""
        if self._audit is not None:
            self._audit.node_changed(self._clock.now_s(), event)

    # -- outcomes ----------------------------------------------------------------------------

    def note(self, outcome: Evicted | Unschedulable) -> None:
        """Note the outcome of what was no attempt of its own."""
        self._outcomes.append(outcome)
        if self._audit is None:
            return
        queued, now_s = self._queue.get(outcome.pod), self._clock.now_s()
        if isinstance(outcome, Evicted):
            self._audit.evicted(now_s, outcome)
        elif queued is not None:
            self._audit.rejected(now_s, queued, outcome.plugin, outcome.reason)

    def note_all(self, outcomes: Iterable[Evicted]) -> None:
        """Note what was done beside deciding."""
        for outcome in outcomes:
            self.note(outcome)

    def waits(self, queued: QueuedPod, main: tuple[str, str], message: str) -> None:
        """Note that a pod waits on, for ``main`` plugin and reason, without having been tried."""
        self.note(_unschedulable(queued, main, message))

    def rejected(
        self,
        queued: QueuedPod,
        main: tuple[str, str],
        message: str,
        scorecard: Scorecard | None,
        nominated: str,
    ) -> None:
        """Note an attempt that found no node, for ``main`` plugin and reason."""
        plugin, reason = main
        if self._metrics is not None:
            took_s = self._metrics.now_s() - self.began_s
            self._metrics.rejected(queued.pod.spec.scheduler_name, took_s)
        if self._audit is not None:
            self._audit.rejected(self._clock.now_s(), queued, plugin, reason, nominated)
        self._outcomes.append(_unschedulable(queued, main, message, nominated, scorecard))

    def failed(self, queued: QueuedPod, message: str) -> None:
        """Note a decision that did not come true."""
        if self._metrics is not None:
            self._metrics.failed(queued.pod.spec.scheduler_name)
        if self._audit is not None:
            self._audit.failed(self._clock.now_s(), queued, message)
        self._outcomes.append(_unschedulable(queued, ("", message), message))

    def bound(self, bound: Sequence[Assumed]) -> None:
        """Note pods that have their nodes in the cluster, too."""
        if self._audit is not None and bound:
            self._audit.bound(self._clock.now_s(), bound)
        for assumed in bound:
            queued, holding = assumed.queued, assumed.holding
            if self._metrics is not None:
                took_s, now_s = self._metrics.now_s() - assumed.began_s, self._clock.now_s()
                self._metrics.bound(queued, now_s, took_s, now_s - (assumed.sent_s or now_s))
            self._outcomes.append(
                Bound(
                    queued.key,
                    assumed.node,
                    holding.annotations,
                    holding.labels,
                    assumed.scorecard,
                    reservation_name(queued.pod.metadata),
                )
            )

    def take(self) -> list[Outcome]:
        """Return what has come to an end since the last time, in order."""
        if self._audit is not None:
            self._audit.flush(self._clock.now_s())
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self) -> None:
        """Let the audit write what it has; for the end of the process."""
        if self._audit is not None:
            self._audit.note_times(self._clock.now_s())
            self._audit.flush(self._clock.now_s())


def label_of(event: WatchEvent) -> str:
    """Return what metrics call an event, such as PodAdd."""
    what = {EventType.ADDED: "Add", EventType.MODIFIED: "Update"}.get(event.type, "Delete")
    return f"{event.object.KIND}{what}"


def _unschedulable(
    queued: QueuedPod,
    main: tuple[str, str],
    message: str,
    nominated: str = "",
    scorecard: Scorecard | None = None,
) -> Unschedulable:
    name = reservation_name(queued.pod.metadata)
    return Unschedulable(queued.key, *main, message, nominated, scorecard, name)
