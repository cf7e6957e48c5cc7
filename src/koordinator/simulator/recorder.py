"""Writes down what a scheduler sees of a cluster: what exists, and every change with its time."""

import gzip
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from koordinator.api.codec import encode, to_manifest
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.api.schedule_explanation import ScheduleExplanation
from koordinator.cluster.port import NO_SELECTORS, Cluster, EventType
from koordinator.domain.recording import Anonymiser, RecordedBatch, RecordingHeader, to_line
from koordinator.domain.recording.batch import FORMAT, RecordedEvent
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.ingest import is_over
from koordinator.scheduler.profile import WATCHED

#: Questions to the scheduler are nothing it decides by.
RECORDED: Sequence[type[KubeObject]] = (
    Namespace,
    PriorityClass,
    Node,
    *(kind for kind in WATCHED if kind is not ScheduleExplanation),
    Pod,
)
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
        self._watch = cluster.watch(RECORDED, selectors)
        self._first: list[RecordedEvent] | None = []  # until all that exists has been listed
        self.events = 0
        header = RecordingHeader(
            FORMAT, clock.now_s(), anonymiser is not None, configuration or None
        )
        write(to_line(header))

    @property
    def is_synced(self) -> bool:
        """Whether all that existed has been written."""
        return self._first is None

    def step(self) -> None:
        """Write what has arrived since the last call as one batch."""
        events: list[RecordedEvent] = []
        for event in self._watch.poll():
            if event.type is EventType.BOOKMARK:
                events = [*(self._first or ()), *events]
                self._first = None
            elif event.previous is not None or not _is_past(event.object):
                events.append(RecordedEvent(str(event.type), self._text(event.object)))
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
    """A compressed file that is written.  Raises InputError if it can't be."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = gzip.open(path, "wb", compresslevel=_LEVEL)  # noqa: SIM115 -- see __exit__
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror}", source=str(path)) from None

    def write(self, line: bytes) -> None:
        self._file.write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
