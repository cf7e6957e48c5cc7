"""Event loop of a dashboard: follows a source, answers queries and publishes overviews.

One thread runs it and owns the source and its scheduler.  An overview takes time away from the
source, so overviews take at most a thirtieth of the time and come at most four times a second.
Without readers the loop takes only a sample for the timeline at intervals.

Causes of pending pods as ``koord explain pods`` groups them, with a remedy for each.

An explanation takes milliseconds, so one pod of each kind is explained, one kind at a time.  Until
then its pods have the main reason of their condition.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.reservation import Reservation
from koordinator.dashboard.access import PrivateNames
from koordinator.dashboard.broadcast import Broadcast
from koordinator.dashboard.frames import MAX_CAUSES
from koordinator.dashboard.overview import (
    ClusterOverview,
    ComponentHealth,
    OverviewBuilder,
    empty_overview,
)
from koordinator.dashboard.sources import (
    ClusterSource,
    ControllableSource,
    SourceControl,
    SourcePhase,
    SourceStatus,
)
from koordinator.dashboard.timeline import ClusterChanges, Timeline
from koordinator.dashboard.waiting_pods import IntColumn, TextColumn, WaitingPods
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError, KoordinatorError, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.loop_calls import LoopCalls
from koordinator.scheduler.explanations import group_text
from koordinator.scheduler.features.explanations import explain
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.device_bars import DeviceBars

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

MIN_INTERVAL_S = 0.25
READERS_AT_FULL_RATE = 50  # with twice as many readers the frame rate halves
TIME_SHARE = 30  # overviews may use 1/30 of the time, and explanations as much
UNWATCHED_INTERVAL_S = 5.0  # between samples for the timeline while there are no readers
ANSWER_SLICE_S = 0.1  # time for queries in one step; the last query may exceed it
RUN_SHARE = 3  # a run gets this multiple of the time that queries took, before the next ones
MAX_WAIT_S = 0.5
RETRY_S = 5.0  # before a failed source is followed again
MIN_RUN_SAMPLES = 400  # timeline samples of a run, at any speed

TTL_S = 10.0  # after it, a kind is explained again


@dataclass(frozen=True, slots=True)
class _Explained:
    at_s: float
    main_reason: str  # of the pod's condition: with another one the explanation is out of date
    cause: str
    remedy: str


@dataclass(frozen=True)
class _Kinds:
    """Kinds of pending pods by main reason, the one with the most pods first."""

    waiting: WaitingPods
    of_pod: IntColumn  # kind of each pod
    first: IntColumn  # first pod of each kind

    @classmethod
    def of(cls, waiting: WaitingPods) -> "_Kinds":
        numbers: dict[tuple[object, int], int] = {}
        causes = waiting.causes.place.tolist()
        pairs = zip((row.kind for row in waiting.rows), causes, strict=True)
        encoded = np.fromiter(
            (numbers.setdefault(pair, len(numbers)) for pair in pairs), np.int64, len(waiting)
        )
        _, first, of_pod, counts = np.unique(
            encoded, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.lexsort((first, -counts))
        return cls(waiting, np.argsort(order)[of_pod], first[order])


class ExplainedCauses:
    """Explanations of the kinds of pending pods of one scheduler.

    Only the ``MAX_CAUSES`` kinds with the most pods are explained.  The thread that owns the
    scheduler calls it.
    """

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle
        self._kinds = _Kinds.of(WaitingPods.none())
        self._explained: dict[str, _Explained] = {}  # by key of the first pod of the kind
        self._due_s: float | None = None  # None before the first explanation
        self._applied: WaitingPods | None = None  # of ``_kinds``; None after a change

    def apply(self, waiting: WaitingPods) -> WaitingPods:
        """Return the pods with the causes of their explanations, the same object if unchanged."""
        if waiting is not self._kinds.waiting:
            self._kinds, self._applied = _Kinds.of(waiting), None
        if self._applied is None:
            self._applied = self._with_causes()
        return self._applied

    def _with_causes(self) -> WaitingPods:
        kinds, waiting = self._kinds, self._kinds.waiting
        texts = list(waiting.causes.texts)
        explained = np.full(len(kinds.first), -1, np.int64)
        for kind, first in enumerate(kinds.first[:MAX_CAUSES].tolist()):
            one = waiting[first]
            known = self._explained.get(one.key)
            if known is not None and known.main_reason == one.cause:
                explained[kind] = len(texts)
                texts.append(known.cause)
        place = explained[kinds.of_pod]
        place = np.where(place < 0, waiting.causes.place, place)
        return waiting.with_cause_column(TextColumn(place, texts).renamed(texts))

    def remedies(self) -> Mapping[str, str]:
        """Return the remedies by key of the explained pod."""
        return {key: one.remedy for key, one in self._explained.items()}

    def explain_next(self, now_s: float) -> None:
        """Explain the kind whose last explanation is the oldest, within the time share.

        The first explanation does not count against the time share: it includes what a scheduler
        derives once, which takes seconds with 100,000 different pods.
        """
        if self._due_s is not None and now_s < self._due_s:
            return
        waiting = self._kinds.waiting
        firsts = [waiting[place] for place in self._kinds.first[:MAX_CAUSES].tolist()]
        current = {one.key: one.cause for one in firsts}
        self._explained = {
            key: one for key, one in self._explained.items() if current.get(key) == one.main_reason
        }
        due = {key: self._explained[key].at_s if key in self._explained else 0.0 for key in current}
        key = min(due, key=due.__getitem__, default="")
        if not key or (key in self._explained and now_s - due[key] < TTL_S):
            return
        began_s = time.thread_time()
        before = self._explained.get(key)
        after = self._explained[key] = _explained(self._handle, key, current[key], now_s)
        if before is None or before.cause != after.cause:
            self._applied = None
        took_s = time.thread_time() - began_s
        is_first = self._due_s is None
        self._due_s = now_s if is_first else now_s + TIME_SHARE * took_s


def _explained(handle: SchedulerHandle, key: str, main_reason: str, now_s: float) -> _Explained:
    try:
        explanation = explain(handle, key)
    except NotFoundError:
        return _Explained(now_s, main_reason, main_reason, "")
    except Exception:
        log.warning("pod not explained", extra={"pod": key}, exc_info=True)
        return _Explained(now_s, main_reason, main_reason, "")
    remedy = next((one.text for one in explanation.remedies if one.sufficient), "")
    return _Explained(now_s, main_reason, group_text(explanation), remedy)


class Feed:
    """Follower of a source between ``start`` and ``stop``; public methods are thread-safe."""

    def __init__(
        self, source: ClusterSource, clock: Clock, components: ComponentHealth | None = None
    ) -> None:
        """``components`` is updated by another thread; None if the source has none."""
        self.source, self.components = source, components
        self._clock = clock
        self._loop_calls = LoopCalls()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._ready = threading.Event()
        self.timeline = Timeline()
        self.changes = ClusterChanges()
        self.devices = source.devices or DeviceBars()
        heading = {"title": source.title, "source": source.kind, "readOnly": True}
        self.broadcast = Broadcast(heading, self._publish_early)
        self._builder: tuple[SchedulerHandle, OverviewBuilder, ExplainedCauses] | None = None
        self._due_s = self._earliest_s = self._answers_due_s = 0.0
        self._problem = ""  # error that ended the source; empty while it is followed
        self._names: tuple[tuple[object, ...], PrivateNames] | None = None  # with their inputs
        #: The last overview; replaced as a whole, so other threads may read it.
        self.overview: ClusterOverview | None = None
        self.cost_s = 0.0  # CPU time of the last overview
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and reject further queries."""
        self._stopping.set()
        self._wake.set()
        self._loop_calls.close()
        if self._thread.is_alive():
            self._thread.join(MAX_WAIT_S * 10)

    def wait_until_ready(self, timeout_s: float = 60.0) -> bool:
        """Wait for the first overview; return whether there is one."""
        return self._ready.wait(timeout_s)

    def query(self, function: Callable[[SchedulerHandle], AnswerT]) -> AnswerT:
        """Call a function with the scheduler in the thread that owns it; return its result.

        Raises what the function raises, NotFoundError while there is no scheduler, TimeoutError.
        """

        def call() -> AnswerT:
            handle = self.source.handle
            if handle is None:
                raise NotFoundError("the source has not been read yet")
            return function(handle)

        return self._submit(call)

    def control(self, wanted: SourceControl) -> SourceStatus:
        """Apply a time control to the source.  Raises InputError if it has none."""
        source = self.source
        if not isinstance(source, ControllableSource):
            raise InputError("the time of this source cannot be controlled")
        controllable = source

        def call() -> SourceStatus:
            controllable.control(wanted)
            return self.source.status

        status = self._submit(call)
        self._due_s = 0.0
        return status

    def status(self) -> SourceStatus:
        """Return the status of the source at the last overview."""
        return self.overview.status if self.overview is not None else self._status()

    def _status(self) -> SourceStatus:
        status = self.source.status
        if not self._problem:
            return status
        return msgspec.structs.replace(status, phase=SourcePhase.LOST, problem=self._problem)

    def _submit(self, call: Callable[[], AnswerT]) -> AnswerT:
        self._wake.set()
        return self._loop_calls.call(call)

    # -- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._problem = ""
            try:
                self.source.follow(self._pause)
            except KoordinatorError as error:
                self._lost(str(error))
            except Exception as error:
                log.exception("source lost")
                self._lost(f"{type(error).__name__}: {error}")
            # Queries about the last state are still answered.  A source that ended is not retried.
            until_s = self._clock.now_s() + RETRY_S
            while self._pause(MAX_WAIT_S):
                if self._problem and self._clock.now_s() >= until_s:
                    break

    def _lost(self, problem: str) -> None:
        log.warning("source lost", extra={"error": problem})
        self._problem = problem
        self._due_s = 0.0

    def _pause(self, wait_s: float) -> bool:
        until_s = self._clock.now_s() + wait_s
        while True:
            self._wake.clear()
            self._answer(is_idle=wait_s > 0)
            self._publish_if_due()
            left_s = until_s - self._clock.now_s()
            if self._stopping.is_set():
                return False
            if left_s <= 0:
                return True
            self._wake.wait(min(left_s, max(self._due_s - self._clock.now_s(), 0.01)))

    def _answer(self, *, is_idle: bool) -> None:
        """Answer queued queries within the time share that the source leaves."""
        now_s = began_s = self._clock.now_s()
        if not is_idle and now_s < self._answers_due_s:
            return
        while now_s - began_s < ANSWER_SLICE_S and self._loop_calls.run_pending(1):
            now_s = self._clock.now_s()
        is_run = self.source.status.speed is not None
        self._answers_due_s = now_s + (now_s - began_s) * (RUN_SHARE if is_run else 1)
        if now_s - began_s >= ANSWER_SLICE_S:
            self._wake.set()  # there may be more

    def _publish_if_due(self) -> None:
        now_s = self._clock.now_s()
        handle = self.source.handle
        if now_s < self._due_s:
            if handle is not None and self._needs_sample():
                self._sample(handle)
            return
        if handle is None:
            self.broadcast.publish(empty_overview(self._status()), {})
            self._due_s = now_s + MIN_INTERVAL_S
            return
        began_s = time.thread_time()
        overview = self._sample(handle)
        is_watched = self.broadcast.readers > 0
        if is_watched:
            self.publish(overview, handle.state)
        self._ready.set()
        self.cost_s = time.thread_time() - began_s
        if is_watched and self._builder is not None:
            self._builder[2].explain_next(now_s)
        crowd = max(1.0, self.broadcast.readers / READERS_AT_FULL_RATE)
        pause_s = MIN_INTERVAL_S * crowd if is_watched else UNWATCHED_INTERVAL_S
        if overview.status.speed is not None:
            pause_s = MIN_INTERVAL_S  # hours of virtual time pass within seconds
        self._earliest_s = now_s + max(MIN_INTERVAL_S, TIME_SHARE * self.cost_s)
        self._due_s = max(now_s + pause_s, self._earliest_s)

    def _needs_sample(self) -> bool:
        """Return whether the virtual time since the last sample exceeds the timeline's interval."""
        last, now = self.overview, self.source.status
        if last is None or now.from_s is None or now.to_s is None:
            return False
        return abs(now.now_s - last.status.now_s) >= (now.to_s - now.from_s) / MIN_RUN_SAMPLES

    def _sample(self, handle: SchedulerHandle) -> ClusterOverview:
        """Build an overview and add it to the timeline, the GPU bars and the change log."""
        if self._builder is None or self._builder[0] is not handle:
            self._builder = (handle, OverviewBuilder(handle), ExplainedCauses(handle))
        _, builder, causes = self._builder
        overview = builder.build(self._status())
        self.timeline.add(overview)  # with main reasons: explanations come later than changes
        if self.source.devices is None:
            self.devices.update(handle.state, overview.status.now_s)
        # A simulation reports its own events; its pods come and go by the thousand.
        self.changes.update(handle.state, overview, pods=overview.status.speed is None)
        overview = self.overview = replace(overview, waiting=causes.apply(overview.waiting))
        return overview

    def _publish_early(self) -> None:
        """Bring the next overview forward for a new reader."""
        self._due_s = self._earliest_s
        self._wake.set()

    def publish(self, overview: ClusterOverview, state: ClusterState) -> None:
        """Send an overview of this state to all readers; call it in the scheduler's thread."""
        names = self._private_names(state, overview.waiting)
        remedies = self._builder[2].remedies() if self._builder is not None else {}
        self.broadcast.publish(overview, remedies, names)

    def _private_names(self, state: ClusterState, waiting: WaitingPods) -> PrivateNames:
        """Return the names to redact; the same object while their inputs are unchanged."""
        objects = state.objects
        versions = (objects.version(ElasticQuota), objects.version(Reservation))
        inputs = (state, waiting, state.node_log.position, *versions)
        if self._names is None or not all(map(_is_same, self._names[0], inputs)):
            self._names = inputs, PrivateNames.of(state, waiting.namespaces.texts)
        return self._names[1]


def _is_same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, int) and one == other)
