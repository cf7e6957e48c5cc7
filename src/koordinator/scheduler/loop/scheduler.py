"""The loop: events go into state and queue, units of work from the queue become decisions.

One ``step`` takes in all events and then works until no pod is ready.  Between steps nothing
happens, so whoever embeds the scheduler decides when time passes: a thread that waits for the
watch, or a simulation.

The only part of the scheduler with a loop.  It knows a list of features, and none by name.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from koordinator.api.codec import subject_of
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Container as PodContainer
from koordinator.api.pod import Pod, PodSpec
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.domain.reserve_pod import without_internal_keys
from koordinator.foundation.faults import Fault
from koordinator.scheduler.binding.consistency import validate_waiting
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.ingest import is_over
from koordinator.scheduler.loop.feature import Ask, Feature, Page, Unit
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.loop.limited_pods import LimitedPods
from koordinator.scheduler.loop.outcomes import Outcome
from koordinator.scheduler.loop.quarantine import Quarantine, stripped
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
        self._wall_clock = handle.options.wall_clock or handle.clock
        self._isolation = handle.isolation
        self._quarantine = Quarantine(handle.clock, handle.isolation, self._take, self._leave_out)
        self._limited = LimitedPods(
            handle.clock, handle.state, handle.queue, handle.cycles, handle.isolation
        )
        self._has_limits = any(cycle.limiting for cycle in handle.cycles.values())
        self._merges = handle.options.merges

    # -- events --------------------------------------------------------------------------------

    def sync(self) -> None:
        """Take in the whole cluster, kind by kind (pods last), and watch it from there.

        Called again, it makes sure that nothing that happened before is missed.  ``is_synced``
        tells when that is so; until then nothing is decided.
        """
        self._ask()
        self._take_in()

    def _ask(self) -> None:
        """Ask for everything; where that breaks, the next step asks again."""
        self._bindings.has_unknown_outcome = True
        with self._isolation.barrier("watch"):
            self._handle.watch.ask()
            self._bindings.has_unknown_outcome = False

    def _take_in(self) -> None:
        with self._isolation.barrier("watch"):
            self._handle.state.advance(self._wall_clock.now_s())
            for event in self._handle.watch.events():
                self._hear(event)
        with self._isolation.barrier("ingest"):
            if self._quarantine.events:
                self._quarantine.step()
        if self._hooks.after_events:
            self._isolation.each("ingest", self._hooks.after_events)
        if self._has_limits:
            self._limited.wake()
        self._tell_warnings()

    def _hear(self, event: WatchEvent) -> None:
        """Take an event in; an object that breaks something is left out until it is another one."""
        began_s = self._handle.attempts.now_s() if self._hooks.observe_event_duration else 0.0
        if self._quarantine.events:
            self._quarantine.forget(event.object)
        if event.type is EventType.DELETED:
            with self._isolation.barrier("report", event.object):
                self._handle.reporter.forget(event.object)
        try:
            self._take(event)
        except Exception as error:  # noqa: BLE001 -- told
            self._quarantine.add(event, error)
        for timed in self._hooks.observe_event_duration:
            with self._isolation.barrier("observe"):
                timed(event, self._handle.attempts.now_s() - began_s)

    def _tell_warnings(self) -> None:
        warnings = self._handle.ingest.warnings
        if not warnings:
            return
        for warning in warnings:
            with self._isolation.barrier("report", warning.about):
                if self._handle.reporter.complained(warning.about, warning.problem):
                    log.warning("annotation ignored", extra={"complaint": warning.problem})
        warnings.clear()

    def _take(self, event: WatchEvent) -> None:
        if isinstance(event.object, Pod):
            self._handle.intake.take(event, event.object)
            return
        ingest, now_s = self._handle.ingest, self._clock.now_s()
        if event.type is EventType.DELETED:
            change = ingest.drop(event.object)
        else:
            change = ingest.put(event.object, event.previous)
        self._queue.on_event(change, now_s)
        for heard in self._hooks.on_object_event:
            heard(event)

    def _leave_out(self, obj: KubeObject, fault: Fault) -> None:
        """Go on as if an object were not there; but what runs on a node keeps its amounts."""
        for gone in (obj, stripped(obj)):
            with suppress(Exception):  # whatever it is, it has been told
                self._take(WatchEvent(EventType.DELETED, gone, gone))
                break
        if isinstance(obj, Pod) and obj.spec.node_name and not is_over(obj):
            with self._isolation.barrier("ingest", subject_of(obj)):
                self._handle.ingest.put_placed(stripped(obj), None)
        elif isinstance(obj, Pod) and obj.spec.scheduler_name in self.cycles:
            with self._isolation.barrier("report", obj):
                self._handle.reporter.failed(
                    without_internal_keys(obj), fault.problem, "SchedulerError"
                )

    # -- work --------------------------------------------------------------------------------

    def step(self, limit: int | None = None) -> list[Outcome]:
        """Take in the events and decide pods until none is ready, or about ``limit`` are decided.

        Bindings that have begun may still be under way.  Returns what has come to an end, in order.
        Raises ClusterError when the cluster can't be read.
        """
        self._exchange()
        with self._isolation.barrier("step"):
            self._queue.flush(self._clock.now_s())
        with self._isolation.barrier("bind"):
            self._bindings.resume()
        try:
            self._decide_all(limit)
        except Exception as error:  # noqa: BLE001 -- told
            self._isolation.note("step", error)
            self._fail_undecided(error)
        with self._isolation.barrier("bind"):
            self._bindings.exchange()
        self._end_step(leads=limit != 0 and self.is_synced)
        return self._handle.attempts.take()

    def _decide_all(self, limit: int | None) -> None:
        """Decide pods until none is ready, or about ``limit`` are decided."""
        options, bindings = self._handle.options, self._bindings
        decided, most = 0, options.run_limit
        while self._knows_all() and (limit is None or decided < limit):
            if self.is_saturated:
                break
            if limit is not None:
                most = min(options.run_limit, limit - decided)
            run = self._next_run(most if self._merges else 1)
            if run:
                decided += len(run)
                self._decide(run)
                if self._is_bound_at_once(run[-1]):
                    bindings.begin()  # the next pod may be the one that it is for
            elif not (bindings.decided or self._work()):
                break
            if not run or bindings.decided >= options.in_flight:
                self._exchange()

    def _end_step(self, *, leads: bool) -> None:
        """Let features do what comes after all decisions."""
        if self._hooks.wake:  # what was given back may make room
            self._isolation.each("wake", self._hooks.wake)
        with self._isolation.barrier("hint"):
            if self._queue.hint_errors:
                self._isolation.tell_of_hints(self._queue)
        for step in self._hooks.step:
            with self._isolation.barrier("step"):
                step(leads=leads)

    def _exchange(self) -> None:
        """Send what has been decided, and learn what has happened."""
        with self._isolation.barrier("bind"):
            self._bindings.exchange()
        self._take_in()

    def _knows_all(self) -> bool:
        """Return whether pods may be decided; after a binding that nobody knows of, not yet."""
        if self._bindings.has_unknown_outcome:
            self._ask()
        return self.is_synced and not self._bindings.has_unknown_outcome

    def _work(self) -> bool:
        """Let features do what is due between decisions; return whether there was anything."""
        done = False
        for work in self._hooks.work:
            with self._isolation.barrier("work"):
                done |= work()
        return done

    def _next_run(self, most: int) -> list[QueuedPod]:
        now_s, barrier = self._clock.now_s(), self._isolation.barrier
        for take_ungated in self._hooks.take_ungated:
            with barrier("take_ungated"):
                self._queue.release(take_ungated(), now_s)
        if self._handle.gates.broken:
            self._queue.release(self._handle.gates.take_due(), now_s)
        if self._hooks.wake:
            self._isolation.each("wake", self._hooks.wake)
        for cycle in self.cycles.values():
            for active in cycle.profile.next_pod:
                with barrier("next_pod"):
                    key = active.plugin.next_pod(self._queue.get)
                    queued = self._queue.take(key) if key is not None else None
                    if queued is not None:
                        return [queued]
        return self._queue.pop_run(now_s, most)

    def _is_bound_at_once(self, queued: QueuedPod) -> bool:
        with self._isolation.barrier("bind", queued.pod):
            return any(has_own_bind(queued.pod) for has_own_bind, _ in self._hooks.bind)
        return False  # it broke

    # -- a decision --------------------------------------------------------------------------

    def _decide(self, run: list[QueuedPod]) -> None:
        attempts = self._handle.attempts
        try:
            attempts.begin(run)
            unit = self._unit(run)
            if unit is not None:
                attempts.tried += unit.decide()
        except Exception as error:  # noqa: BLE001 -- told
            self._recover(run, error)
        else:
            attempts.end()

    def _unit(self, run: list[QueuedPod]) -> Unit | None:
        """Return what is decided at once; None: nobody may be tried any more."""
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
        """Take back what was decided about pods whose attempt broke off; each may try again.

        Of a run each is decided on its own, so that only those fail that break it; of a gang
        nobody keeps a place.  Raises what is no fault of ours, when all is as it was.
        """
        lost = self._bindings.abandon()
        self._handle.attempts.end()
        left = self._undecided([*run, *lost, *self._broken_with(run[0], lost)])
        if len(run) > 1:
            for queued in left:
                self._decide([queued])
            return
        fault: Fault | None = None
        try:
            fault = self._isolation.fault("schedule", error, subject_of(run[0].pod))
        finally:
            for queued in left:
                self._handle.attempts.fail(queued, fault.problem if fault else str(error))
        self._isolation.tell(fault)

    def _broken_with(self, head: QueuedPod, lost: Sequence[QueuedPod]) -> list[QueuedPod]:
        """Return the pods without places that were decided with the first of a run."""
        pods = [queued.pod for queued in lost]
        keys: list[str] = []
        for broken in self._hooks.broken:
            with self._isolation.barrier("schedule", head.pod):
                keys += broken(head.pod, pods)
        return [queued for key in keys if (queued := self._queue.get(key)) is not None]

    def _fail_undecided(self, error: Exception) -> None:
        """Let pods try again whose attempt broke off so that nothing is known of them."""
        now_s = self._clock.now_s()
        for queued in self._undecided(self._queue.pods(QueueState.IN_FLIGHT)):
            with self._isolation.barrier("step", queued.pod):
                self._queue.fail(queued, f"internal error: {type(error).__name__}", now_s)

    def _undecided(self, pods: Sequence[QueuedPod]) -> list[QueuedPod]:
        different = {queued.key: queued for queued in pods}.values()
        return [
            queued
            for queued in different
            if queued.state is QueueState.IN_FLIGHT and not self._bindings.has(queued.key)
        ]

    # -- for whoever embeds it ---------------------------------------------------------------

    def feature(self, kind: type[FeatureT]) -> FeatureT | None:
        """Return the feature of a kind; None if the scheduler has none."""
        return next((one for one in self._hooks.features if isinstance(one, kind)), None)

    @property
    def handle(self) -> SchedulerHandle:
        """What the loop stands on."""
        return self._handle

    @property
    def state(self) -> ClusterState:
        """The cluster as it is known here."""
        return self._handle.state

    @property
    def queue(self) -> SchedulingQueue:
        """The pods that wait."""
        return self._queue

    @property
    def nominator(self) -> Nominator:
        """The pods for which places are kept."""
        return self._handle.nominator

    @property
    def cycles(self) -> Mapping[str, SchedulingCycle]:
        """How pods are decided, by scheduler name."""
        return self._handle.cycles

    @property
    def attempts(self) -> int:
        """How many pods have been tried, each time counted."""
        return self._handle.attempts.tried

    @property
    def is_synced(self) -> bool:
        """Whether everything that existed when last asked has been taken in."""
        return self._handle.watch.is_synced

    @property
    def is_saturated(self) -> bool:
        """Whether so much is under way that deciding waits for it."""
        return self._handle.binder.in_flight > self._handle.options.in_flight // 2

    def warm_up(self) -> None:
        """Decide about pods that nobody has, so that the first real one finds all code loaded."""
        for name, cycle in self.cycles.items():
            spec = PodSpec(containers=(PodContainer(name="c"),), scheduler_name=name)
            pod = Pod(metadata=ObjectMeta(name="warm-up", namespace="default"), spec=spec)
            pod_class = self.state.classes.of(pod)
            if cycle.choose(pod, pod_class, {}, first_attempt=False) is not None:
                cycle.choose_run([pod_class, pod_class])

    def next_wakeup_s(self) -> float | None:
        """Return when there is something to do even without events; None: only events can help."""
        wakeups: list[float | None] = [*self._bindings.deadlines()]
        for part in (self._queue, self._quarantine, self._handle.gates):
            with self._isolation.barrier("wakeup"):
                wakeups.append(part.next_wakeup_s())
        for due_s in self._hooks.next_wakeup_s:
            with self._isolation.barrier("wakeup"):
                wakeups.append(due_s(synced=self.is_synced))
        return min((due_s for due_s in wakeups if due_s is not None), default=None)

    def finish(self) -> None:
        """Send what has been decided and wait for the answers; for the end of the process."""
        with self._isolation.barrier("bind"):
            self._bindings.begin()
        with self._isolation.barrier("bind"):
            self._bindings.end(wait=True)
        self._handle.attempts.close()

    def report(self) -> None:
        """Write at once what would be written of objects in the next seconds."""
        self._isolation.each("step", self._hooks.finish)

    def pages(self, ask: Ask) -> dict[str, Page]:
        """Return what features show, by path; ``ask`` lets this scheduler's thread answer."""
        found: dict[str, Page] = {}
        for pages in self._hooks.pages:
            found |= pages(ask)
        return found

    def validate(self) -> None:
        """Derive everything redundant again, between two steps.  Raises BugError."""
        self.state.validate()
        self._queue.validate()
        self.nominator.validate()
        self._bindings.validate()
        validate_waiting(self.state, self._queue, self.nominator, self.cycles, self._bindings)
        for validate in self._hooks.validate:
            validate()
