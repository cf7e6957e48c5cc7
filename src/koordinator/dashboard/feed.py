"""The loop of a dashboard: it follows a source, answers questions and publishes overviews.

One thread, which owns the source and its scheduler.  Making an overview costs the source time, so
the longer it takes, the rarer it is done: never more than a thirtieth of the time, and never more
often than four times a second.  Without readers nothing is made but a sample now and then.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TypeVar

import msgspec

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.reservation import Reservation
from koordinator.dashboard.broadcast import Broadcast
from koordinator.dashboard.changes import ClusterChanges
from koordinator.dashboard.components import ComponentHealth
from koordinator.dashboard.frames import MOST_CAUSES
from koordinator.dashboard.overview import ClusterOverview, OverviewBuilder, nothing_yet
from koordinator.dashboard.redaction import PrivateNames
from koordinator.dashboard.sources import (
    ClusterSource,
    ControllableSource,
    SourceControl,
    SourcePhase,
    SourceStatus,
)
from koordinator.dashboard.timeline import Timeline
from koordinator.dashboard.waiting_pods import WaitingPods
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError, KoordinatorError, NotFoundError
from koordinator.process.inquiries import Inquiries
from koordinator.scheduler.features.explanation import explain
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.device_bars import DeviceBars

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

LEAST_INTERVAL_S = 0.25
READERS_AT_FULL_RATE = 50  # twice as many are sent half as many frames
SHARE_OF_TIME = 30  # overviews may take one part in so many, and so may remedies
UNWATCHED_INTERVAL_S = 5.0  # for the timeline, while nobody looks
REMEDY_LASTS_S = 10.0
ANSWERS_TAKE_S = 0.1  # in one go, beyond the question that is longer
REST_OF_RUNS = 3  # times as long as questions took a simulation or replay goes on before the next
LONGEST_NAP_S = 0.5
FOLLOW_AGAIN_S = 5.0  # after a source that could not be followed
SAMPLES_OF_A_RUN = 400  # at least, however fast it goes


class Feed:
    """Follows a source between ``start`` and ``stop``; everything else may be called anywhere."""

    def __init__(
        self, source: ClusterSource, clock: Clock, components: ComponentHealth | None = None
    ) -> None:
        """``components`` is looked at by somebody else; None: there are none."""
        self.source, self.components = source, components
        self._clock = clock
        self._inquiries = Inquiries()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._ready = threading.Event()
        self.timeline = Timeline()
        self.changes = ClusterChanges()
        self.devices = source.devices or DeviceBars()
        heading = {"title": source.title, "source": source.kind, "readOnly": True}
        self.broadcast = Broadcast(heading, self._hurry)
        self._builder: tuple[SchedulerHandle, OverviewBuilder] | None = None
        self._due_s = self._earliest_s = self._answers_due_s = 0.0
        self._problem = ""  # why the source can't be followed
        self._names: tuple[tuple[object, ...], PrivateNames] | None = None  # what they are made of
        self._remedy_due_s: float | None = None  # None: none has been looked for
        self._remedies: dict[str, tuple[float, str]] = {}  # by pod: since when, and what
        self.overview: ClusterOverview | None = None  # the last one
        self.cost_s = 0.0  # what that took
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End, and turn away whoever asks."""
        self._stopping.set()
        self._wake.set()
        self._inquiries.close()
        if self._thread.is_alive():
            self._thread.join(LONGEST_NAP_S * 10)

    def wait_until_ready(self, timeout_s: float = 60.0) -> bool:
        """Return once there is an overview, or whether there is one after so long."""
        return self._ready.wait(timeout_s)

    def ask(self, question: Callable[[SchedulerHandle], AnswerT]) -> AnswerT:
        """Have the source's thread answer a question about its scheduler.

        Raises what the question does, NotFoundError while there is no scheduler, TimeoutError.
        """

        def put() -> AnswerT:
            handle = self.source.handle
            if handle is None:
                raise NotFoundError("nothing has been read yet")
            return question(handle)

        return self._put(put)

    def control(self, wanted: SourceControl) -> SourceStatus:
        """Let the source's time be as wanted.  Raises InputError where it can't be chosen."""
        source = self.source
        if not isinstance(source, ControllableSource):
            raise InputError("time passes by itself here: only of runs and recordings it is chosen")
        controllable = source

        def put() -> SourceStatus:
            controllable.control(wanted)
            return self.source.status

        status = self._put(put)
        self._due_s = 0.0
        return status

    def status(self) -> SourceStatus:
        """Return how the source is, as of the last overview."""
        return self.overview.status if self.overview is not None else self._status()

    def _status(self) -> SourceStatus:
        status = self.source.status
        if not self._problem:
            return status
        return msgspec.structs.replace(status, phase=SourcePhase.LOST, problem=self._problem)

    def _put(self, question: Callable[[], AnswerT]) -> AnswerT:
        self._wake.set()
        return self._inquiries.ask(question)

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
            # What was seen last can still be asked about.  What has come to its end stays so.
            until_s = self._clock.now_s() + FOLLOW_AGAIN_S
            while self._pause(LONGEST_NAP_S):
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
        """Answer some questions; a source that has other things to do has its share of the time."""
        now_s = began_s = self._clock.now_s()
        if not is_idle and now_s < self._answers_due_s:
            return
        while now_s - began_s < ANSWERS_TAKE_S and self._inquiries.answer(1):
            now_s = self._clock.now_s()
        is_run = self.source.status.speed is not None
        self._answers_due_s = now_s + (now_s - began_s) * (REST_OF_RUNS if is_run else 1)
        if now_s - began_s >= ANSWERS_TAKE_S:
            self._wake.set()  # there may be more

    def _publish_if_due(self) -> None:
        now_s = self._clock.now_s()
        handle = self.source.handle
        if now_s < self._due_s:
            if handle is not None and self._has_gone_far():
                self._look(handle)
            return
        if handle is None:
            self.broadcast.publish(nothing_yet(self._status()), {})
            self._due_s = now_s + LEAST_INTERVAL_S
            return
        began_s = time.thread_time()
        overview = self._look(handle)
        is_watched = self.broadcast.readers > 0
        if is_watched:
            self.publish(overview, handle.state)
        self._ready.set()
        self.cost_s = time.thread_time() - began_s
        if is_watched:
            self._find_remedy(handle, overview, now_s)
        crowd = max(1.0, self.broadcast.readers / READERS_AT_FULL_RATE)
        pause_s = LEAST_INTERVAL_S * crowd if is_watched else UNWATCHED_INTERVAL_S
        if overview.status.speed is not None:
            pause_s = LEAST_INTERVAL_S  # virtual hours pass within seconds
        self._earliest_s = now_s + max(LEAST_INTERVAL_S, SHARE_OF_TIME * self.cost_s)
        self._due_s = max(now_s + pause_s, self._earliest_s)

    def _has_gone_far(self) -> bool:
        """Whether time has passed, of a run or recording, that its timeline would not show."""
        last, now = self.overview, self.source.status
        if last is None or now.from_s is None or now.to_s is None:
            return False
        return abs(now.now_s - last.status.now_s) >= (now.to_s - now.from_s) / SAMPLES_OF_A_RUN

    def _look(self, handle: SchedulerHandle) -> ClusterOverview:
        """Take down what the cluster is like now."""
        if self._builder is None or self._builder[0] is not handle:
            self._builder = (handle, OverviewBuilder(handle))
            self._remedies.clear()
            self._remedy_due_s = None
        overview = self.overview = self._builder[1].build(self._status())
        self.timeline.add(overview)
        if self.source.devices is None:
            self.devices.look(handle.state, overview.status.now_s)
        # A simulation tells itself what happens; of pods that come and go by the thousand.
        self.changes.look(handle.state, overview, pods=overview.status.speed is None)
        return overview

    def _hurry(self) -> None:
        """Make the next overview as soon as may be: somebody has come who has none."""
        self._due_s = self._earliest_s
        self._wake.set()

    def publish(self, overview: ClusterOverview, state: ClusterState) -> None:
        """Send an overview of this state to all readers; the thread's that owns the scheduler."""
        names = self._private_names(state, overview.waiting)
        self.broadcast.publish(overview, self._known_remedies(), names)

    def _private_names(self, state: ClusterState, waiting: WaitingPods) -> PrivateNames:
        """Return what some readers may not be told; the same as long as nothing has changed."""
        objects = state.objects
        versions = (objects.version(ElasticQuota), objects.version(Reservation))
        made_of = (state, waiting, state.node_log.position, *versions)
        if self._names is None or not all(map(_is_same, self._names[0], made_of)):
            self._names = made_of, PrivateNames.of(state, waiting.namespaces.texts)
        return self._names[1]

    def _known_remedies(self) -> Mapping[str, str]:
        return {key: text for key, (_, text) in self._remedies.items()}

    def _find_remedy(
        self, handle: SchedulerHandle, overview: ClusterOverview, now_s: float
    ) -> None:
        """Find out what would help one pod: the first of the cause that was looked at longest ago.

        One each time, since it takes some milliseconds to try things on a copy.  The first is not
        counted: with it everything is derived that a scheduler derives once, for seconds where
        100,000 pods are all different.
        """
        if self._remedy_due_s is not None and now_s < self._remedy_due_s:
            return
        waiting = overview.waiting
        causes = islice(waiting.by_cause.items(), MOST_CAUSES)
        firsts = {cause: waiting[int(places[0])].key for cause, places in causes}
        asked = set(firsts.values())
        self._remedies = {key: known for key, known in self._remedies.items() if key in asked}
        due = [(self._remedies.get(key, (0.0, ""))[0], key) for key in firsts.values()]
        since_s, key = min(due, default=(now_s, ""))
        if not key or now_s - since_s < REMEDY_LASTS_S:
            return
        began_s = time.thread_time()
        self._remedies[key] = (now_s, _remedy(handle, key))
        took_s = time.thread_time() - began_s
        is_first = self._remedy_due_s is None
        self._remedy_due_s = now_s if is_first else now_s + SHARE_OF_TIME * took_s


def _is_same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, int) and one == other)


def _remedy(handle: SchedulerHandle, key: str) -> str:
    try:
        found = explain(handle, key)
    except NotFoundError:
        return ""
    except Exception:
        log.warning("pod not explained", extra={"pod": key}, exc_info=True)
        return ""
    helping = next((r for r in found.remedies if r.sufficient), None)
    return helping.text if helping is not None else ""
