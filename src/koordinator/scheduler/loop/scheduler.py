"""The loop: it applies events to state and queue, and decides units of work from the queue.

One ``step`` applies all events and then works until no pod is ready.  Nothing happens between
steps, so the caller decides when time passes: a thread that waits for the watch, or a simulation.

There is no other loop.  It has a list of features and refers to none by name.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from traceback import walk_tb
from types import CodeType
from typing import TypeVar

from koordinator.api.codec import subject_of
from koordinator.api.kubescheduler.gates import COMPOSITE_POD_GROUPS
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import TERMINAL_PHASES, Pod, PodSpec
from koordinator.api.pod import Container as PodContainer
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.domain.reserve_pod import without_internal_keys
from koordinator.foundation.errors import Fault
from koordinator.scheduler.binding.bindings import validate_waiting
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.loop.feature import CallInLoop, Feature, StatePage
from koordinator.scheduler.loop.feature_kinds import Unit
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.loop.intake import groups_first
from koordinator.scheduler.loop.outcomes import EventApplied, Outcome
from koordinator.scheduler.loop.quarantine import LimitedPods, Quarantine, stripped
from koordinator.scheduler.loop.units import PodRun
from koordinator.scheduler.queue import Nominator, QueuedPod, QueueState, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState

log = logging.getLogger(__name__)

FeatureT = TypeVar("FeatureT", bound=Feature)


class Scheduler:
    """Schedules the pods whose ``schedulerName`` is that of one of the profiles."""

    def __init__(
        self,
        handle: SchedulerHandle,
        features: Sequence[Feature],
    ) -> None:
        handle.hooks.install(features)
        self._handle, self._hooks = handle, handle.hooks
        self._queue, self._bindings, self._clock = handle.queue, handle.bindings, handle.clock
        self._binder = handle.binder
        self._wall_clock = handle.options.wall_clock or handle.clock
        self._pod_counts = handle.queue.pod_counts
        self._isolation = handle.isolation
        self._quarantine = Quarantine(
            handle.clock, handle.isolation, self._apply, self._quarantine_object
        )
        self._limited = LimitedPods(
            handle.clock, handle.state, handle.queue, handle.cycles, handle.isolation
        )
        self._has_limits = any(cycle.limiting for cycle in handle.cycles.values())
        self._merges = handle.options.merges
        self._has_trees = COMPOSITE_POD_GROUPS in handle.options.gates
        self._logged_faults: set[tuple[CodeType, int]] = set()  # places that failed runs
        self._next_pod = tuple(a for c in handle.cycles.values() for a in c.profile.next_pod)
        self._now_s = handle.clock.now_s()  # of the last exchange

    # -- events --------------------------------------------------------------------------------

    def sync(self) -> None:
        """List the whole cluster, kind by kind (pods last), and watch it from there.

        A second call makes sure that no earlier event is missed.  Nothing is decided until
        ``is_synced``.
        """
        self._list_all()
        self._apply_events()

    def _list_all(self) -> None:
        """List all kinds; after a failure the next step lists them again."""
        self._bindings.has_unknown_outcome = True
        with self._isolation.barrier("watch"):
            self._handle.watch.list_or_resync()
            self._bindings.has_unknown_outcome = False

    def _apply_events(self) -> None:
        """Apply the events that have arrived, then requeue the pods that they help."""
        try:
            self._now_s = self._handle.intake.now_s = self._clock.now_s()
            is_same = self._wall_clock is self._clock
            self._handle.state.advance(self._now_s if is_same else self._wall_clock.now_s())
            events = self._handle.watch.events()
            if self._has_trees:
                events = groups_first(events)
            if not (self._hooks.observe[EventApplied] or self._quarantine.events):
                events = self._handle.intake.apply_own_binds(events)
            for event in events:
                self._apply_or_quarantine(event)
        except Exception as error:  # noqa: BLE001 -- reported
            self._isolation.note("watch", error)
        if self._quarantine.events:
            with self._isolation.barrier("ingest"):
                self._quarantine.step()
        self._call_each("ingest", self._hooks.after_events)
        if self._has_limits and self._pod_counts[QueueState.UNSCHEDULABLE]:
            self._limited.wake()
        if self._handle.ingest.warnings:
            self._report_warnings()

    def _call_each(self, stage: str, calls: Sequence[Callable[[], object]]) -> None:
        """Call hooks one after the other; report the one that breaks, and go on with the next."""
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 -- reported
                self._isolation.note(stage, error)

    def _apply_or_quarantine(self, event: WatchEvent) -> None:
        """Apply an event; quarantine an object that breaks something until it changes."""
        observed = self._hooks.observe[EventApplied]
        began_s = self._handle.attempts.now_s() if observed else 0.0
        if self._quarantine.events:
            self._quarantine.forget(event.object)
        if event.type is EventType.DELETED:
            with self._isolation.barrier("report", event.object):
                self._handle.reporter.forget(event.object)
        try:
            self._apply(event)
        except Exception as error:  # noqa: BLE001 -- reported
            self._quarantine.add(event, error)
        if observed:
            attempts = self._handle.attempts
            attempts.note(EventApplied(event, attempts.now_s() - began_s))

    def _report_warnings(self) -> None:
        warnings = self._handle.ingest.warnings
        for warning in warnings:
            with self._isolation.barrier("report", warning.about):
                if self._handle.reporter.warn_once(warning.about, warning.problem):
                    log.warning("annotation ignored", extra={"complaint": warning.problem})
        warnings.clear()

    def _apply(self, event: WatchEvent) -> None:
        if isinstance(event.object, Pod):
            self._handle.intake.take(event, event.object)
            return
        ingest = self._handle.ingest
        if event.type is EventType.DELETED:
            change = ingest.drop(event.object)
        else:
            change = ingest.put(event.object, event.previous)
        self._queue.on_event(change, self._clock.now_s())
        for on_object_event in self._hooks.on_object_event:
            on_object_event(event)

    def _quarantine_object(self, obj: KubeObject, fault: Fault) -> None:
        """Remove an object from the state; a running pod still counts on its node."""
        for version in (obj, stripped(obj)):
            with suppress(Exception):  # it has been reported
                self._apply(WatchEvent(EventType.DELETED, version, version))
                break
        if isinstance(obj, Pod) and obj.spec.node_name and obj.status.phase not in TERMINAL_PHASES:
            with self._isolation.barrier("ingest", subject_of(obj)):
                self._handle.ingest.put_placed(stripped(obj), None)
        elif isinstance(obj, Pod) and obj.spec.scheduler_name in self.cycles:
            with self._isolation.barrier("report", obj):
                self._handle.reporter.report_unschedulable(
                    without_internal_keys(obj), fault.problem, "SchedulerError"
                )

    # -- work --------------------------------------------------------------------------------

    def step(self, limit: int | None = None) -> list[Outcome]:
        """Handle events and schedule pods until none is ready, or about ``limit`` are decided.

        Bindings may still be in progress on return.  Returns the finished outcomes, in order.
        Raises ClusterError when the cluster can't be read.
        """
        self._exchange()
        try:
            if self._pod_counts[QueueState.UNSCHEDULABLE] or self._pod_counts[QueueState.BACKOFF]:
                self._queue.flush(self._now_s)
        except Exception as error:  # noqa: BLE001 -- reported
            self._isolation.note("step", error)
        if self._bindings.waiting or self._bindings.preparing:
            try:
                self._bindings.resume()
            except Exception as error:  # noqa: BLE001 -- reported
                self._isolation.note("bind", error)
        try:
            self._decide_all(limit)
        except Exception as error:  # noqa: BLE001 -- reported
            self._isolation.note("step", error)
            self._fail_undecided(error)
        self._exchange_bindings()
        self._end_step(leads=limit != 0 and self.is_synced)
        return self._handle.attempts.take()

    def _decide_all(self, limit: int | None) -> None:
        """Decide pods until none is ready, or about ``limit`` are decided."""
        options, bindings = self._handle.options, self._bindings
        decided, most = 0, options.run_limit
        while self._may_decide() and (limit is None or decided < limit):
            if self.is_saturated:
                break
            if limit is not None:
                most = min(options.run_limit, limit - decided)
            run = self._next_run(most if self._merges else 1)
            if run:
                decided += len(run)
                self._decide(run)
                if self._is_bound_by_feature(run[-1]):
                    bindings.start_binds()  # the next pod may be the one that it is for
            elif not (bindings.permitted or self._work()):
                break
            if not run or len(bindings.permitted) >= options.in_flight:
                self._exchange()

    def _end_step(self, *, leads: bool) -> None:
        """Run the steps of the features after all decisions."""
        self._call_each("wake", self._hooks.wake)  # a failed bind may have freed room
        if self._queue.hint_errors:
            with self._isolation.barrier("hint"):
                self._isolation.report_hint_errors(self._queue)
        if not leads:
            self._call_each("following", self._hooks.follow)
            return
        for step in self._hooks.steps:
            if step.due_s <= self._now_s:
                try:
                    due_s = step.run(self._now_s)
                    step.due_s = -inf if due_s is None else due_s
                except Exception as error:  # noqa: BLE001 -- reported
                    self._isolation.note(step.stage, error)

    def _exchange(self) -> None:
        """Send the decisions, and apply the events."""
        self._exchange_bindings()
        self._apply_events()

    def _exchange_bindings(self) -> None:
        if not (self._bindings.permitted or self._binder.in_flight or self._binder.ended_early):
            return
        try:
            self._bindings.exchange()
        except Exception as error:  # noqa: BLE001 -- reported
            self._isolation.note("bind", error)

    def _may_decide(self) -> bool:
        """Return whether pods may be decided: synced, and no bind has an unknown outcome."""
        if self._bindings.has_unknown_outcome:
            self._list_all()
        return self.is_synced and not self._bindings.has_unknown_outcome

    def _work(self) -> bool:
        """Run the work of features between decisions; return whether there was any."""
        done = False
        for work in self._hooks.work:
            try:
                done |= work(self._now_s)
            except Exception as error:  # noqa: BLE001 -- reported
                self._isolation.note("work", error)
        return done

    def _next_run(self, most: int) -> list[QueuedPod]:
        """Pop the next pods of one run key, after the gates and plugins that may change the order.

        The time is the one of the last exchange, so that a decision does not read the clock.
        """
        now_s = self._now_s
        for take_ungated in self._hooks.take_ungated:
            try:
                ungated = take_ungated()
                if ungated:
                    self._queue.release(ungated, now_s)
            except Exception as error:  # noqa: BLE001 -- reported
                self._isolation.note("take_ungated", error)
        if self._handle.gates.retry_at_s:
            self._queue.release(self._handle.gates.take_due(), now_s)
        self._call_each("wake", self._hooks.wake)
        for active in self._next_pod:
            try:
                key = active.plugin.next_pod(self._queue.get)
                queued = self._queue.take(key) if key is not None else None
                if queued is not None:
                    return [queued]
            except Exception as error:  # noqa: BLE001 -- reported
                self._isolation.note("next_pod", error)
        counts = self._pod_counts
        if not (counts[QueueState.ACTIVE] or counts[QueueState.BACKOFF]):
            return []
        return self._queue.pop_run(now_s, most)

    def _is_bound_by_feature(self, queued: QueuedPod) -> bool:
        try:
            for has_own_bind, _ in self._hooks.bind:
                if has_own_bind(queued.pod):
                    return True
        except Exception as error:  # noqa: BLE001 -- reported
            self._isolation.note("bind", error, subject_of(queued.pod))
        return False

    # -- a decision --------------------------------------------------------------------------

    def _decide(self, run: list[QueuedPod]) -> None:
        attempts = self._handle.attempts
        try:
            attempts.begin(run)
            unit = self._unit(run)
            if unit is not None:
                attempts.tried += unit.decide()
        except Exception as error:  # noqa: BLE001 -- reported
            self._recover(run, error)
        else:
            if attempts.is_measured:
                attempts.end()

    def _unit(self, run: list[QueuedPod]) -> Unit | None:
        """Return the unit to decide; None if no pod of the run can be scheduled."""
        for send_behind_gates in self._hooks.send_behind_gates:
            for queued in send_behind_gates(run):
                self._queue.postpone(queued, self._clock.now_s())
                run = [other for other in run if other is not queued]
        if not run:
            return None
        cycle = self.cycles[run[0].pod.spec.scheduler_name]
        if run[0].run_key is None:
            for unit_of in self._hooks.unit:
                unit = unit_of(cycle, run[0])
                if unit is not None:
                    return unit
        return PodRun(self._handle, cycle, run)

    def _recover(self, run: Sequence[QueuedPod], error: Exception) -> None:
        """Undo the decisions of an attempt that failed with an exception; requeue its pods.

        The pods of a run are then decided one by one, so that only the one that raises fails; no
        member of a gang keeps a place.  If none raises then, as after a fault of the code for
        batches, the warning in the log is the only report.  Raises what is not a fault of a plugin
        or object, after undo.
        """
        lost = self._bindings.abandon()
        self._handle.attempts.end()
        left = self._undecided([*run, *lost, *self._decided_with(run[0], lost)])
        if len(run) > 1:
            *_, (frame, line) = walk_tb(error.__traceback__)
            if (frame.f_code, line) not in self._logged_faults:
                self._logged_faults.add((frame.f_code, line))
                log.warning("pods of a run are decided one by one after a fault", exc_info=error)
            for queued in left:
                self._decide([queued])
            return
        fault: Fault | None = None
        try:
            fault = self._isolation.fault("schedule", error, subject_of(run[0].pod))
        finally:
            for queued in left:
                self._handle.attempts.fail(queued, fault.problem if fault else str(error))
        self._isolation.report(fault)

    def _decided_with(self, head: QueuedPod, lost: Sequence[QueuedPod]) -> list[QueuedPod]:
        """Return the unplaced pods that were decided with the first pod of a run."""
        pods = [queued.pod for queued in lost]
        keys: list[str] = []
        for on_aborted_attempt in self._hooks.on_aborted_attempt:
            with self._isolation.barrier("schedule", head.pod):
                keys += on_aborted_attempt(head.pod, pods)
        return [queued for key in keys if (queued := self._queue.get(key)) is not None]

    def _fail_undecided(self, error: Exception) -> None:
        """Requeue pods whose attempt ended without any outcome."""
        now_s = self._clock.now_s()
        for queued in self._undecided(self._queue.pods(QueueState.IN_FLIGHT)):
            with self._isolation.barrier("step", queued.pod):
                self._queue.fail(queued, f"internal error: {type(error).__name__}", now_s)

    def _undecided(self, pods: Sequence[QueuedPod]) -> list[QueuedPod]:
        different = {queued.key: queued for queued in pods}.values()
        return [
            queued
            for queued in different
            if queued.state is QueueState.IN_FLIGHT and not self._bindings.is_assumed(queued.key)
        ]

    # -- for embedding code ------------------------------------------------------------------

    def feature(self, kind: type[FeatureT]) -> FeatureT | None:
        """Return the feature of a kind; None if the scheduler has none."""
        return next((one for one in self._hooks.features if isinstance(one, kind)), None)

    @property
    def handle(self) -> SchedulerHandle:
        """The handle that features use."""
        return self._handle

    @property
    def state(self) -> ClusterState:
        """The in-memory state of the cluster."""
        return self._handle.state

    @property
    def queue(self) -> SchedulingQueue:
        """The scheduling queue."""
        return self._queue

    @property
    def nominator(self) -> Nominator:
        """The nominated pods."""
        return self._handle.nominator

    @property
    def cycles(self) -> Mapping[str, SchedulingCycle]:
        """The scheduling cycles by scheduler name."""
        return self._handle.cycles

    @property
    def attempts(self) -> int:
        """The number of attempts so far, counted per pod."""
        return self._handle.attempts.tried

    @property
    def is_synced(self) -> bool:
        """Whether the caches have synced: all objects of the last list are in the state."""
        return self._handle.watch.is_synced

    @property
    def is_saturated(self) -> bool:
        """Whether decisions wait because too many bindings are in progress."""
        return self._handle.binder.in_flight > self._handle.options.in_flight // 2

    def warm_up(self) -> None:
        """Schedule dummy pods, so that code is loaded and compiled before the first real pod."""
        for name, cycle in self.cycles.items():
            spec = PodSpec(containers=(PodContainer(name="c"),), scheduler_name=name)
            pod = Pod(metadata=ObjectMeta(name="warm-up", namespace="default"), spec=spec)
            pod_class = self.state.classes.of(pod)
            if cycle.choose(pod, pod_class, {}, first_attempt=False) is not None:
                cycle.choose_run([pod_class, pod_class])
                cycle.choose_batch([pod_class, pod_class])

    def next_wakeup_s(self) -> float | None:
        """Return when there is work even without events; None if only events cause work."""
        wakeups: list[float | None] = [*self._bindings.deadlines()]
        for part in (self._queue, self._quarantine, self._handle.gates):
            with self._isolation.barrier("wakeup"):
                wakeups.append(part.next_wakeup_s())
        for due_s in self._hooks.next_wakeup_s:
            with self._isolation.barrier("wakeup"):
                wakeups.append(due_s(synced=self.is_synced))
        return min((due_s for due_s in wakeups if due_s is not None), default=None)

    def finish(self) -> None:
        """Finish all bindings; called at shutdown."""
        with self._isolation.barrier("bind"):
            self._bindings.start_binds()
        with self._isolation.barrier("bind"):
            self._bindings.finish_binds(wait=True)
        self._handle.attempts.close()

    def report(self) -> None:
        """Flush delayed writes of objects."""
        self._call_each("step", self._hooks.finish)

    def pages(self, in_loop: CallInLoop) -> dict[str, StatePage]:
        """Return the pages of features by path; ``in_loop`` calls on the scheduler's thread."""
        merged: dict[str, StatePage] = {}
        for pages in self._hooks.pages:
            merged |= pages(in_loop)
        return merged

    def validate(self) -> None:
        """Check that redundant state is consistent.  Raises BugError."""
        self.state.validate()
        self._queue.validate()
        self.nominator.validate()
        self._bindings.validate()
        validate_waiting(self.state, self._queue, self.nominator, self.cycles, self._bindings)
        for validate in self._hooks.validate:
            validate()
