"""Writes down what a scheduler sees of a cluster: what exists, and every change with its time."""

import gzip
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import msgspec

from koordinator.api.codec import encode, to_manifest
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.api.schedule_explanation import ScheduleExplanation
from koordinator.cluster.port import NO_SELECTORS, Cluster, EventType
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.files import open_private
from koordinator.scheduler.ingest import is_over
from koordinator.scheduler.profile import WATCHED
from koordinator.simulator.recording import (
    Anonymiser,
    RecordedBatch,
    RecordingHeader,
    to_line,
)
from koordinator.simulator.recording.batch import FORMAT, EventKind, RecordedEvent

#: Questions to the scheduler are nothing it decides by.
RECORDED: Sequence[type[KubeObject]] = (
    Namespace,
    PriorityClass,
    Node,
    *(kind for kind in WATCHED if kind is not ScheduleExplanation),
    Pod,
)
PATIENCE_S = 120.0  # until all that exists has been read
LONGEST_WAIT_S = 0.5  # between two looks at signals and at the time
FLUSHED_S = 10.0  # after which what was written survives whatever becomes of the recorder
_LEVEL = 3  # of compression: higher ones take twice the time for a tenth of the size


class Recorder:
    """Follows a cluster as a scheduler does; ``step`` writes what has arrived.

    ``write`` takes whole lines.  Pods that had ended before are left out.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        write: Callable[[bytes], object],
        *,
        selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
        anonymiser: Anonymiser | None = None,
        configuration: JsonObject | None = None,
    ) -> None:
        self._clock, self._write, self._anonymiser = clock, write, anonymiser
        self._cluster = cluster
        self._watch = cluster.watch(RECORDED, selectors)
        self._first: list[RecordedEvent] | None = []  # until all that exists has been listed
        self.events = 0
        if configuration and anonymiser is not None:
            configuration = anonymiser.configuration(configuration)
        header = RecordingHeader(
            FORMAT, clock.now_s(), anonymiser is not None, configuration or None
        )
        write(to_line(header))

    @property
    def is_synced(self) -> bool:
        """Whether all that existed has been written."""
        return self._first is None

    def follow(
        self,
        stopping: threading.Event,
        duration_s: float | None = None,
        begun: Callable[[], object] = lambda: None,
    ) -> None:
        """Write until it is to stop, or for so long after all that existed has been read.

        ``begun`` is called then.  Raises ClusterError if nothing can be read for ``PATIENCE_S``.
        """
        clock = self._clock
        synced, until_s = self.is_synced, clock.now_s() + PATIENCE_S
        while not stopping.is_set():
            self.step()
            if self.is_synced and not synced:
                synced = True
                until_s = float("inf") if duration_s is None else clock.now_s() + duration_s
                begun()
            left_s = until_s - clock.now_s()
            if left_s <= 0:
                break
            self._cluster.wait(min(LONGEST_WAIT_S, left_s))
        self.step()
        if not (self.is_synced or stopping.is_set()):
            raise ClusterError(f"the cluster could not be read within {PATIENCE_S:g} s")

    def step(self) -> None:
        """Write what has arrived since the last call as one batch."""
        events: list[RecordedEvent] = []
        for event in self._watch.poll():
            if event.type is EventType.BOOKMARK:
                events = [*(self._first or ()), *events]
                self._first = None
            elif event.previous is not None or not _is_past(event.object):
                kind = cast("EventKind", str(event.type))
                events.append(RecordedEvent(kind, self._text(event.object)))
        if self._first is not None:
            self._first += events
        elif events:
            self.events += len(events)
            self._write(to_line(RecordedBatch(self._clock.now_s(), events)))

    def close(self) -> None:
        self._watch.close()

    def _text(self, obj: KubeObject) -> msgspec.Raw:
        if self._anonymiser is None:
            return msgspec.Raw(encode(obj))
        return msgspec.Raw(msgspec.json.encode(self._anonymiser.manifest(to_manifest(obj))))


def _is_past(obj: KubeObject) -> bool:
    return isinstance(obj, Pod) and is_over(obj)


class RecordingFile:
    """A compressed file that is written, and that only its owner may read.

    Raises InputError if it can't be.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock, self._flushed_s = path, clock, clock.now_s()
        try:
            self._plain = FileIO(open_private(path, os.O_WRONLY | os.O_TRUNC), "wb")
            self._file = gzip.GzipFile("", "wb", _LEVEL, self._plain, mtime=0)
        except OSError as error:
            raise self._unwritable(error) from None

    def write(self, line: bytes) -> None:
        """Append a whole line.  Raises InputError where the disk is full."""
        now_s = self._clock.now_s()
        try:
            self._file.write(line)
            if now_s >= self._flushed_s + FLUSHED_S:
                self._file.flush()
                self._flushed_s = now_s
        except OSError as error:
            raise self._unwritable(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with self._plain:
                self._file.close()
        except OSError as failure:
            if error is None:
                raise self._unwritable(failure) from None

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"can't be written: {error.strerror}", source=str(self._path))
