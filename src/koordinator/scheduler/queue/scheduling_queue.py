"""The queue of pods that want a node: what moves a pod, and where to.

Active pods are popped by priority, then queueing time.  A rejected pod waits for an event that one
of its rejectors finds helpful, then for the rest of its backoff.  Time is an argument and does not
run backwards.  Nothing here blocks, logs or decides on which node a pod runs.

Source: kubernetes v1.35 pkg/scheduler/backend/queue/scheduling_queue.go.  Different here: a pod
that is removed in flight is forgotten immediately, and the maximum time in the unschedulable pool
is exact, not a scan.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count

from koordinator.api.pod import Pod
from koordinator.foundation.errors import BugError
from koordinator.scheduler.contract import Action, ClusterEvent, EventHint, QueueGate
from koordinator.scheduler.queue.hints import EVERYTHING, HintTable, Listeners, Wake, pod_changes
from koordinator.scheduler.queue.pools import WAITING, Delays, Pools
from koordinator.scheduler.queue.queued_groups import QueuedGroups
from koordinator.scheduler.queue.queued_pod import (
    MOVES,
    Group,
    Need,
    PlaceCounts,
    QueuedPod,
    QueueState,
)

NO_PLUGINS: frozenset[str] = frozenset()


class SchedulingQueue:
    """Pods by ``namespace/name``, each in exactly one state."""

    def __init__(
        self,
        hints: Mapping[str, Sequence[EventHint]],
        pre_enqueue: Callable[[Pod], QueueGate | None],
        *,
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        max_unschedulable_s: float = 300.0,
        pop_from_backoff: bool = True,
        has_groups: bool = False,
    ) -> None:
        """Queue pods.

        ``pop_from_backoff``: with none active, try rejected pods before their time;
        ``has_groups``: count pod groups in ``groups``.
        """
        self._hints = HintTable(hints)
        #: last exception of each plugin's hints; the pods were requeued regardless
        self.hint_errors: Mapping[str, Exception] = self._hints.errors
        self._pre_enqueue = pre_enqueue
        self._pop_from_backoff = pop_from_backoff
        #: pod groups, each one entity of the metrics
        self.groups = QueuedGroups() if has_groups else None
        delays = Delays(initial_backoff_s, max_backoff_s, max_unschedulable_s)
        self._pools = Pools(delays, self.groups)
        self._sequence = count()
        self.needs = self._pools.needs
        #: number of pods by state; read only
        self.pod_counts: Mapping[QueueState, int] = self._pools.counts
        #: how often pods came into each pool, by what brought them there
        self.incoming: Counter[tuple[QueueState, str]] = Counter()

    def add(self, pod: Pod, run_key: Hashable, now_s: float) -> None:
        """Queue a pod that has no node; one that is here already is updated."""
        key = pod.key
        known = self.get(key)
        if known is not None:
            self.update(known.pod, pod, run_key, now_s)
            return
        self.add_new(key, pod, run_key, now_s)

    def add_new(self, key: str, pod: Pod, run_key: Hashable, now_s: float) -> None:
        """Queue a pod that has no node and is not here."""
        queued = QueuedPod(
            key=key,
            pod=pod,
            run_key=run_key,
            priority=pod.spec.priority or 0,
            queued_at_s=now_s,
            sequence=next(self._sequence),
        )
        gate = self._pre_enqueue(pod)
        if self.groups is not None:
            self.groups.add(queued)
        if gate is None:
            queued.first_attempt_s = now_s
            self._pools.enter_active(queued)
            self._count(queued, QueueState.ACTIVE, "PodAdd")
        else:
            self._close_gate(queued, gate, "PodAdd")
        self._pools.pods[key] = queued

    def update(
        self, old: Pod, new: Pod, run_key: Hashable, now_s: float, *, is_other: bool = False
    ) -> None:
        """Store the new version; its changes are an event for this pod alone.

        ``is_other``: something that a plugin may read has changed, so the pod is tried again.  What
        the plugins that rejected it listen to is not enough: what another plugin reads, such as the
        owner of reserved room, may change how much room these see.  A pod in flight gets that event
        if it is rejected.  A pod that is not here is added, as is one that was deleted and created
        again under its name.
        """
        key = new.key
        queued = self.get(key)
        if queued is not None and queued.pod.metadata.uid != new.metadata.uid:
            self.remove(key)
            queued = None
        if queued is None:
            self.add_new(key, new, run_key, now_s)
            return
        priority = new.spec.priority or 0
        queued.pod, queued.run_key = new, run_key
        if priority != queued.priority:
            self._pools.rerank(queued, priority, next(self._sequence))
        changes = pod_changes(old, new)
        if not (changes or is_other):
            return
        event = ClusterEvent("Pod", changes, old, new)
        if queued.state is QueueState.IN_FLIGHT:
            self._pools.log.append(event, queued.key)
            if is_other:
                self._pools.log.append(ClusterEvent(EVERYTHING, Action.UPDATE), queued.key)
        elif queued.state in WAITING:
            wake = max(self._hints.wake_for(queued, event), Wake(is_other))
            if wake is not Wake.NO:
                self._requeue(queued, wake, now_s, event.label)

    def remove(self, key: str) -> None:
        """Forget a pod that was deleted or has a node, in any state; unknown pods are ignored."""
        queued = self._pools.pods.pop(key, None)
        if queued is not None:
            self._pools.leave(queued)
            queued.state = None
            if self.groups is not None:
                self.groups.forget(queued)

    def pop(self, now_s: float) -> QueuedPod | None:
        """Return the next pod; it is in flight until ``done``, ``reject``, ``fail``, ``remove``."""
        run = self.pop_run(now_s, 1)
        return run[0] if run else None

    def pop_run(self, now_s: float, limit: int) -> list[QueuedPod]:
        """Pop the head and, up to ``limit``, the pods right behind it that have its run key.

        They share a priority.  A pod with run key None is returned alone.
        """
        pools = self._pools
        if pools.counts[QueueState.BACKOFF]:
            self._flush_backoff(now_s)
        early = self._pop_from_backoff and not pools.counts[QueueState.ACTIVE]
        run = pools.take_off(pools.backoff if early else pools.active, limit)
        for queued in run:
            _begin(queued)
        return run

    def take(self, key: str) -> QueuedPod | None:
        """Pop this pod ahead of its turn; None if it is gated, in flight or not here.

        Source: koordinator pkg/scheduler/frameworkext ``NextPodPlugin``.
        """
        queued = self.get(key)
        if queued is None or queued.gated_by or QueueState.IN_FLIGHT not in MOVES[queued.state]:
            return None
        self._pools.leave(queued)
        self._pools.enter(queued, QueueState.IN_FLIGHT)
        _begin(queued)
        return queued

    def peek(self, keys: Iterable[str], gate: str) -> list[QueuedPod]:
        """Return the pods among these that ``take_all`` takes."""
        return [
            queued
            for key in keys
            if (queued := self.get(key)) is not None
            and queued.gated_by in ("", gate)
            and QueueState.IN_FLIGHT in MOVES[queued.state]
        ]

    def take_all(self, pods: Iterable[QueuedPod], now_s: float) -> None:
        """Pop these pods, gated or not, because one of their gang was; those in flight stay so."""
        for queued in pods:
            if queued.state is QueueState.IN_FLIGHT:
                continue
            self._pools.leave(queued)
            queued.gated_by = ""
            if queued.first_attempt_s is None:
                queued.first_attempt_s = now_s
            self._pools.enter(queued, QueueState.IN_FLIGHT)
            _begin(queued)

    def postpone(self, queued: QueuedPod, now_s: float) -> None:
        """End an attempt without a result for this pod; its gate decides when it continues."""
        if self._end_attempt(queued, queued.message, now_s):
            self._requeue(queued, Wake.AT_ONCE, now_s, "GangAttemptFailure")

    def done(self, queued: QueuedPod) -> None:
        """Forget a pod in flight: it was bound.  Another one of its name stays as it is."""
        self.done_all((queued,))

    def done_all(self, bound: Iterable[QueuedPod]) -> None:
        """Forget pods in flight: they were bound.  Others of their names stay as they are."""
        pods, in_flight = self._pools.pods, QueueState.IN_FLIGHT
        self._pools.end_flights(
            [one for one in bound if one.state is in_flight and pods.get(one.key) is one]
        )

    def reject(
        self,
        queued: QueuedPod,
        rejected_by: AbstractSet[str],
        pending_on: AbstractSet[str],
        message: str,
        now_s: float,
        *,
        need: Need | None = None,
    ) -> None:
        """End an attempt with the plugins that rejected the pod, or on which it pends.

        Without such a plugin the attempt ends with an error.  The pod waits for an event, unless
        one during the attempt helps; with a ``need``, it waits until ``wake_needing`` names enough
        room after such an event.  A pod that was removed during the attempt stays removed.
        """
        if not rejected_by and not pending_on:
            self.fail(queued, message, now_s)
        elif self._end_attempt(queued, message, now_s):
            queued.unschedulable_count += 1
            queued.error_count = 0
            queued.rejected_by = frozenset(rejected_by)
            queued.pending_on = frozenset(pending_on)
            wake = self._replay(queued)
            if wake is Wake.NO:
                self._pools.leave(queued)
                queued.need = need
                self._enter(queued, QueueState.UNSCHEDULABLE, "ScheduleAttemptFailure")
            else:
                self._requeue(queued, wake, now_s, "ScheduleAttemptFailure")

    def fail(self, queued: QueuedPod, message: str, now_s: float) -> None:
        """End an attempt that no plugin is to blame for; the next one comes after a backoff."""
        if self._end_attempt(queued, message, now_s):
            queued.error_count += 1
            self._requeue(queued, Wake.AFTER_BACKOFF, now_s, "ScheduleAttemptFailure")

    def on_event(self, event: ClusterEvent, now_s: float) -> list[str]:
        """Run the queueing hints for an event; return the pods that moved to active or backoff."""
        if not self._pools.pods:
            return []
        listeners = self._hints.listeners(event)
        wakes_all = event.resource == EVERYTHING
        if not listeners and not wakes_all:
            return []
        self._pools.log.append(event)
        affected = self._rejected_by(listeners, event)
        if wakes_all:
            affected.update((queued.key, queued) for queued in self._pools.unschedulable)
        return self._wake(affected.values(), event, now_s)

    def on_nomination_ended(self, pod: Pod, now_s: float) -> list[str]:
        """Requeue pods that yielded to a nominated pod, after its nomination ended.

        Pods of higher priority never yield.  Source: kubernetes v1.35
        pkg/scheduler/eventhandlers.go ``updatePodInSchedulingQueue``.
        """
        return self._wake_below(pod, (pod.spec.priority or 0) + 1, now_s)

    def on_place_left(self, pod: Pod, now_s: float) -> list[str]:
        """Wake less important pods after a pod that keeps waiting has lost its nomination.

        Two equals that leave places to each other would wake each other for ever.
        """
        return self._wake_below(pod, pod.spec.priority or 0, now_s)

    def _wake_below(self, pod: Pod, priority: int, now_s: float) -> list[str]:
        """Wake pods below a priority that the nomination of another pod kept out."""
        event = ClusterEvent("AssignedPod", Action.DELETE, pod, None)
        affected = self._rejected_by(self._hints.listeners(event), event).values()
        less_important = [one for one in affected if one.priority < priority and one.key != pod.key]
        return self._wake(less_important, event, now_s)

    def _rejected_by(self, listeners: Listeners, event: ClusterEvent) -> dict[str, QueuedPod]:
        """Return the pods that plugins rejected; of those with needs only note that it may help."""
        affected: dict[str, QueuedPod] = {}
        for plugin in listeners:
            affected.update(self._pools.waiting.get(plugin, {}))
        for group, example in self._pools.needs.rejected_by(listeners.keys()):
            if self._hints.wake_for(example, event) is not Wake.NO:
                self._pools.needs.touch(group)
        return affected

    def wake_rejected(
        self, plugin: str, helps: Callable[[QueuedPod], bool], now_s: float
    ) -> list[str]:
        """Requeue pods that a plugin rejected, if that helps; return their keys.

        They are woken in order: the highest priority first, then the longest wait.
        """
        waiting = sorted(self._pools.waiting.get(plugin, {}).values(), key=_attempt)
        woken = [queued for queued in waiting if helps(queued)]
        for queued in woken:
            self._requeue(queued, Wake.AFTER_BACKOFF, now_s, f"{plugin}Update")
        for group, example in self._pools.needs.rejected_by(frozenset((plugin,))):
            if helps(example):
                self._pools.needs.touch(group)
        return [queued.key for queued in woken]

    def take_needs(self) -> list[tuple[Group, QueuedPod]]:
        """Return, once, the groups of pods with needs that events may help, with a pod of each."""
        return self._pools.needs.take_touched()

    def wake_needing(self, group: Group, most: PlaceCounts, now_s: float) -> None:
        """Requeue the pods of a group that need at most ``most`` places."""
        for queued in self._pools.needs.helped(group, most):
            self._requeue(queued, Wake.AFTER_BACKOFF, now_s, "RoomUpdate")

    def activate(self, keys: Iterable[str], now_s: float) -> None:
        """Requeue pods without backoff; one in flight as soon as its attempt rejects it."""
        for key in keys:
            queued = self.get(key)
            if queued is None:
                continue
            if queued.state is QueueState.BACKOFF:
                self._pools.leave(queued)
                self._enter(queued, QueueState.ACTIVE, "ForceActivate")
            elif queued.state in WAITING:
                self._requeue(queued, Wake.AT_ONCE, now_s, "ForceActivate")
            elif queued.state is QueueState.IN_FLIGHT:
                self._pools.log.append(ClusterEvent(EVERYTHING, Action.ALL), key)

    def release(self, keys: Iterable[str], now_s: float, cause: str = "JobQueueUpdate") -> None:
        """Requeue waiting pods through their gates, after their backoff."""
        for key in keys:
            queued = self.get(key)
            if queued is not None and queued.state in WAITING:
                self._requeue(queued, Wake.AFTER_BACKOFF, now_s, cause)

    def flush(self, now_s: float) -> list[str]:
        """Move pods whose backoff is over or that waited too long for help; return their keys."""
        woken = self._flush_backoff(now_s)
        while (queued := self._pools.unschedulable.first_due(now_s)) is not None:
            queued.was_flushed = True
            self._requeue(queued, Wake.AFTER_BACKOFF, now_s, "UnschedulableTimeout")
            woken.append(queued.key)
        return woken

    def next_wakeup_s(self) -> float | None:
        """Return when ``flush`` will next have something to do; None: not without an event."""
        pools = self._pools
        heaps = (pools.backoff, pools.error_backoff, pools.unschedulable)
        return min((due_s for heap in heaps if (due_s := heap.due_s()) is not None), default=None)

    def due_s(self, queued: QueuedPod) -> float:
        """Return when a pod leaves its state although nothing happens; 0: at once, or never."""
        return self._pools.delays.due_s(queued)

    def get(self, key: str) -> QueuedPod | None:
        """Look up a pod by ``namespace/name``."""
        return self._pools.pods.get(key)

    def events_in_flight(self) -> Counter[str]:
        """Return the events kept for pods that are being decided on, by what metrics call them."""
        return self._pools.log.counts()

    @property
    def is_empty(self) -> bool:
        """Whether there is no pod in any state."""
        return not self._pools.pods

    def counts(self) -> dict[QueueState, int]:
        """Return how many pods are in each state."""
        return dict(self._pools.counts)

    def pods(self, *states: QueueState) -> list[QueuedPod]:
        """Return the pods in one of the states, in the order in which they were added."""
        return [queued for queued in self._pools.pods.values() if queued.state in states]

    def rejections(self) -> Mapping[tuple[str, str], int]:
        """Return how many pods wait because of a plugin: by plugin and scheduler name."""
        counts: Counter[tuple[str, str]] = Counter()
        for plugin, pods in list(self._pools.waiting.items()):
            counts.update(
                (plugin, queued.pod.spec.scheduler_name) for queued in list(pods.values())
            )
        for queued in self._pools.needs:
            counts.update((plugin, queued.pod.spec.scheduler_name) for plugin in queued.rejectors)
        return counts

    @property
    def has_listeners(self) -> bool:
        """Whether an event could requeue some pod of the queue."""
        counts = self._pools.counts
        return bool(
            counts[QueueState.UNSCHEDULABLE]
            or counts[QueueState.GATED]
            or counts[QueueState.IN_FLIGHT]
        )

    def take_hint_errors(self) -> dict[str, Exception]:
        """Return and forget what hints have raised."""
        errors = dict(self._hints.errors)
        self._hints.errors.clear()
        return errors

    def validate(self) -> None:
        """Derive everything redundant again and raise BugError where it differs."""
        self._pools.validate()

    def _end_attempt(self, queued: QueuedPod, message: str, now_s: float) -> bool:
        """Note the end of an attempt; False if the pod is not in the queue any more."""
        if self.get(queued.key) is not queued:
            return False
        if queued.state is not QueueState.IN_FLIGHT:
            raise BugError(f"{queued.key} is {queued.state}: no attempt is under way.")
        queued.was_flushed = False
        queued.queued_at_s = now_s
        queued.sequence = next(self._sequence)
        queued.message = message
        return True

    def _replay(self, queued: QueuedPod) -> Wake:
        """Run the hints for events during the attempt; dropped events count as helpful."""
        missed = self._pools.log.since(queued.log_position)
        if missed is None:
            return Wake.AFTER_BACKOFF
        enough = Wake.AT_ONCE if queued.pending_on else Wake.AFTER_BACKOFF
        wake = Wake.NO
        for event, target in missed:
            if target is None or target == queued.key:
                wake = max(wake, self._hints.wake_for(queued, event))
                if wake >= enough:
                    break
        return wake

    def _wake(self, affected: Iterable[QueuedPod], event: ClusterEvent, now_s: float) -> list[str]:
        woken = []
        for queued in affected:
            wake = self._hints.wake_for(queued, event)
            if wake is not Wake.NO:
                self._requeue(queued, wake, now_s, event.label)
                if queued.state is not QueueState.GATED:
                    woken.append(queued.key)
        return woken

    def _requeue(self, queued: QueuedPod, wake: Wake, now_s: float, cause: str) -> None:
        """Send a pod to active or, before its time, to backoff; a gate stops it here."""
        gate = self._pre_enqueue(queued.pod)
        if queued.state is not None:
            self._pools.leave(queued)
        if gate is not None:
            self._close_gate(queued, gate, cause)
            return
        queued.gated_by = ""
        has_failed = queued.error_count or queued.unschedulable_count
        if (
            has_failed
            and wake is Wake.AFTER_BACKOFF
            and now_s < self._pools.delays.ready_at_s(queued)
        ):
            self._enter(queued, QueueState.BACKOFF, cause)
            return
        if queued.first_attempt_s is None:
            queued.first_attempt_s = now_s
        self._enter(queued, QueueState.ACTIVE, cause)

    def _close_gate(self, queued: QueuedPod, gate: QueueGate, cause: str) -> None:
        queued.gated_by, queued.message = gate.plugin, gate.message
        queued.was_flushed = False
        queued.rejected_by, queued.pending_on = frozenset((gate.plugin,)), NO_PLUGINS
        self._enter(queued, QueueState.GATED, cause)

    def _enter(self, queued: QueuedPod, state: QueueState, cause: str) -> None:
        """Put a pod, which has left its state, into one of the pools; why is counted."""
        self._pools.enter(queued, state)
        self._count(queued, state, cause)

    def _count(self, queued: QueuedPod, state: QueueState, cause: str) -> None:
        self.incoming[state, cause] += 1
        if self.groups is not None:
            self.groups.arrived(queued, state, cause)

    def _flush_backoff(self, now_s: float) -> list[str]:
        woken: list[str] = []
        if not self._pools.counts[QueueState.BACKOFF]:
            return woken
        for heap in (self._pools.backoff, self._pools.error_backoff):
            while (queued := heap.first_due(now_s)) is not None:
                self._pools.leave(queued)
                self._enter(queued, QueueState.ACTIVE, "BackoffComplete")
                woken.append(queued.key)
        return woken


def _attempt(queued: QueuedPod) -> tuple[int, float, int]:
    since_s = queued.queued_at_s if queued.first_attempt_s is None else queued.first_attempt_s
    return -queued.priority, since_s, queued.sequence


def _begin(queued: QueuedPod) -> None:
    queued.attempts += 1
    queued.rejected_by = queued.pending_on = NO_PLUGINS
