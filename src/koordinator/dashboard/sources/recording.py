"""Source for a recording, replayed at a speed and from a moment that readers choose.

Recorded batches move the time forward; a seek to an earlier moment restarts the replay.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.dashboard.sources.contract import (
    Pause,
    SourceControl,
    SourceKind,
    SourcePhase,
    SourceStatus,
    TimeControl,
    TimelineMark,
)
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.simulator.recording import RecordedBatch, Recording
from koordinator.simulator.replay import ReplayRun

_SLICE_S = 0.05
_BATCHES_PER_PAUSE = 64  # between two rounds of queries while a replay catches up

#: Opens the recording at its start.  Raises InputError.
OpenRecording = Callable[[], AbstractContextManager[Recording]]
#: Creates a replay of the recording at its start.
BeginReplay = Callable[[], ReplayRun]


class RecordingSource:
    """Replay of a recording with a controllable time."""

    kind = SourceKind.RECORDING

    def __init__(
        self,
        title: str,
        open_recording: OpenRecording,
        begin: BeginReplay,
        configuration: KubeSchedulerConfiguration,
        clock: Clock,
        *,
        speed: float = 60.0,
    ) -> None:
        """``speed`` is recorded seconds per second; 0 means as fast as possible."""
        self.title = title
        self.configuration = configuration
        self._open, self._begin_replay, self._clock = open_recording, begin, clock
        self._pace = TimeControl(speed)
        self._from_s = self._to_s = 0.0
        self._run: ReplayRun | None = None
        self._target_s: float | None = None  # pending seek of a reader
        self._shown_s = 0.0  # moment to show without a pending seek
        self._has_ended = False

    @property
    def handle(self) -> SchedulerHandle | None:
        """The scheduler of the replay; each restart creates another one."""
        return self._run.handle if self._run is not None else None

    @property
    def status(self) -> SourceStatus:
        """Status with the times of the recording."""
        phase = SourcePhase.PAUSED if self._pace.is_paused else SourcePhase.LIVE
        if self._has_ended:
            phase = SourcePhase.ENDED
        if self._run is None or self._target_s is not None:
            phase = SourcePhase.LOADING
        return SourceStatus(
            phase=phase,
            now_s=self._run.now_s if self._run is not None else self._from_s,
            from_s=self._from_s,
            to_s=self._to_s,
            speed=self._pace.speed,
            can_seek=True,
        )

    @property
    def devices(self) -> None:
        """None: the feed samples the devices."""

    @property
    def trail(self) -> Audit | None:
        """Decisions of the replay from its start to the current moment."""
        return self._run.audit if self._run is not None else None

    def marks(self) -> Sequence[TimelineMark]:
        """Return the evictions of the replay so far."""
        return [TimelineMark(*one) for one in self._run.evictions] if self._run is not None else ()

    def control(self, wanted: SourceControl) -> None:
        """Pause, resume or seek.  Raises InputError for a moment outside the recording."""
        if wanted.seek_s is not None and not self._from_s <= wanted.seek_s <= self._to_s:
            span = f"{self._from_s:.0f}..{self._to_s:.0f}"
            raise InputError(f"seekS: must be in {span}, got {wanted.seek_s:.0f}")
        self._pace.apply(wanted)
        if wanted.seek_s is not None:
            self._target_s = wanted.seek_s

    def follow(self, pause: Pause) -> None:
        """Replay until ``pause`` returns False.  Raises InputError for an unreadable recording."""
        self._measure()
        while self._replay(pause):
            pass

    def _measure(self) -> None:
        with self._open() as recording:
            self._from_s = self._to_s = recording.header.started_s
            for batch in recording.batches:
                if self._target_s is None:
                    self._target_s = batch.at_s  # the first batch has the objects at the start
                self._to_s = max(self._to_s, batch.at_s)

    def _replay(self, pause: Pause) -> bool:
        """Replay from the start; return True to restart for a seek to an earlier moment."""
        with ExitStack() as cleanup:
            batches = cleanup.enter_context(self._open()).batches
            run = self._begin_replay()
            ahead = next(batches, None)
            while True:
                wanted_s = self._shown_s if self._target_s is None else self._target_s
                ahead = self._advance(run, batches, ahead, wanted_s, pause)
                if run.now_s >= wanted_s and self._target_s == wanted_s:
                    self._target_s = None
                self._run, self._shown_s = run, max(wanted_s, run.now_s)
                self._has_ended = ahead is None and run.now_s >= self._to_s
                is_idle = self._pace.is_paused or self._has_ended or bool(self._pace.speed)
                began_s = self._clock.now_s()
                if not pause(_SLICE_S if is_idle and self._target_s is None else 0.0):
                    return False
                if self._target_s is not None and self._target_s < run.now_s:
                    return True
                if self._target_s is None and not self._pace.is_paused:
                    passed_s = self._clock.now_s() - began_s
                    step_s = passed_s * self._pace.speed if self._pace.speed else self._to_s
                    self._shown_s = min(self._shown_s + step_s, self._to_s)

    def _advance(
        self,
        run: ReplayRun,
        batches: Iterator[RecordedBatch],
        ahead: RecordedBatch | None,
        until_s: float,
        pause: Pause,
    ) -> RecordedBatch | None:
        """Apply the batches up to a moment; return the first batch after it."""
        taken = 0
        while ahead is not None and ahead.at_s <= until_s:
            run.apply(ahead)
            ahead = next(batches, None)
            taken += 1
            if taken % _BATCHES_PER_PAUSE == 0:
                pause(0.0)
                if self._target_s is not None and self._target_s != until_s:
                    return ahead
        run.advance_to(min(until_s, self._to_s))
        return ahead
