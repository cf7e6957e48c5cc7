"""Recorder of the objects and events that a scheduler receives, and reader of its files."""

import gzip
import logging
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

import msgspec

from koordinator.api.codec import encode, to_manifest
from koordinator.api.core import Namespace
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.policy import PriorityClass
from koordinator.api.schedule_explanation import ScheduleExplanation
from koordinator.cluster.port import NO_SELECTORS, Cluster, EventType
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.files import open_private, too_long
from koordinator.scheduler.profile import WATCHED
from koordinator.simulator.recording import (
    Anonymiser,
    RecordedBatch,
    Recording,
    RecordingHeader,
    read_recording,
    to_line,
)
from koordinator.simulator.recording.batch import (
    FORMAT,
    LONGEST_HEADER_BYTES,
    LONGEST_LINE_BYTES,
    EventKind,
    RecordedEvent,
)

#: Without ScheduleExplanations, which do not affect decisions.
RECORDED: Sequence[type[KubeObject]] = (
    Namespace,
    PriorityClass,
    Node,
    *(kind for kind in WATCHED if kind is not ScheduleExplanation),
    Pod,
)
SYNC_TIMEOUT_S = 120.0  # for the initial list of all objects
MAX_WAIT_S = 0.5  # between two checks of signals and the time
FLUSH_INTERVAL_S = 10.0  # bounds the events that are lost if the recorder is killed
_LEVEL = 3  # of compression: higher ones take twice the time for a tenth of the size

_LOGGER = logging.getLogger(__name__)
READ_BYTES = 1 << 18  # per read, compressed
PART_BYTES = 1 << 24  # per part, unpacked; a few parts are in memory
MOST_MEMBERS = 10_000  # gzip members of a file: each copies the rest of the part that was read
_GZIP = 31  # zlib's code for gzip with the largest window


class Recorder:
    """Recorder with the watches of a scheduler; ``step`` writes the received events.

    ``write`` takes whole lines.  Pods that had ended before the start are left out.
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
        self._first: list[RecordedEvent] | None = []  # initial objects; None after the list
        self.events = 0
        if configuration and anonymiser is not None:
            configuration = anonymiser.configuration(configuration)
        header = RecordingHeader(
            FORMAT, clock.now_s(), anonymiser is not None, configuration or None
        )
        write(to_line(header))

    @property
    def is_synced(self) -> bool:
        """Whether the initial objects have been written."""
        return self._first is None

    def follow(
        self,
        stopping: threading.Event,
        duration_s: float | None = None,
        begun: Callable[[], object] = lambda: None,
    ) -> None:
        """Record until ``stopping`` is set, or for a duration after the initial list.

        Calls ``begun`` after the initial list.  Raises ClusterError if the list takes longer than
        ``SYNC_TIMEOUT_S``.
        """
        clock = self._clock
        synced, until_s = self.is_synced, clock.now_s() + SYNC_TIMEOUT_S
        while not stopping.is_set():
            self.step()
            if self.is_synced and not synced:
                synced = True
                until_s = float("inf") if duration_s is None else clock.now_s() + duration_s
                begun()
            left_s = until_s - clock.now_s()
            if left_s <= 0:
                break
            self._cluster.wait(min(MAX_WAIT_S, left_s))
        self.step()
        if not (self.is_synced or stopping.is_set()):
            raise ClusterError(f"the cluster could not be read within {SYNC_TIMEOUT_S:g} s")

    def step(self) -> None:
        """Write the events since the last call as one batch."""
        events: list[RecordedEvent] = []
        for event in self._watch.poll():
            if event.type is EventType.BOOKMARK:
                events = [*(self._first or ()), *events]
                self._first = None
            elif event.previous is not None or not (
                isinstance(event.object, Pod) and is_terminal(event.object)
            ):
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


class RecordingFile:
    """Compressed file for writing, readable by its owner only.

    Raises InputError if it cannot be written.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock, self._flushed_s = path, clock, clock.now_s()
        try:
            self._plain = FileIO(open_private(path, os.O_WRONLY | os.O_TRUNC), "wb")
            self._file = gzip.GzipFile("", "wb", _LEVEL, self._plain, mtime=0)
        except OSError as error:
            raise self._unwritable(error) from None

    def write(self, line: bytes) -> None:
        """Append a whole line.  Raises InputError, for example if the disk is full."""
        now_s = self._clock.now_s()
        try:
            self._file.write(line)
            if now_s >= self._flushed_s + FLUSH_INTERVAL_S:
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
        return InputError(f"cannot be written: {error.strerror}", source=str(self._path))


@contextmanager
def opened_recording(
    path: Path, on_notice: Callable[[str], object] = _LOGGER.warning
) -> Iterator[Recording]:
    """Yield a recording that can be iterated once.

    Raises InputError for a file that can't be read, here or during the iteration.
    """
    try:
        with path.open("rb") as file:
            yield read_recording(_lines(file, path, on_notice), str(path))
    except InputError as error:
        raise error.within(source=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=str(path)) from None
    except zlib.error:
        raise InputError("must be a recording, packed by gzip", source=str(path)) from None


def _lines(file: BinaryIO, path: Path, on_notice: Callable[[str], object]) -> Iterator[bytes]:
    """Yield the lines of a recording, up to its end or to where the file was cut off.

    Raises InputError for a line that is longer than a recording allows.
    """
    torn: list[bytes] = []
    number, size = 1, 0  # of the current line; bytes of it read so far
    try:
        for part in _read_ahead(_unpacked(file)):
            *ends, rest = part.split(b"\n")
            for end in ends:
                yield b"".join((*torn, end, b"\n"))
                torn.clear()
                number, size = number + 1, 0
            torn.append(rest)
            size += len(rest)
            if size > (LONGEST_LINE_BYTES if number > 1 else LONGEST_HEADER_BYTES):
                raise too_long(f"{path}:{number}", LONGEST_LINE_BYTES)
    except EOFError:
        on_notice(f"{path} is incomplete; the part that could be read is replayed")
    yield b"".join(torn)


def _read_ahead(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the parts; a thread makes the next part while the caller works on the current one."""
    with ThreadPoolExecutor(1) as thread:
        ahead = thread.submit(next, parts, b"")
        while part := ahead.result():
            ahead = thread.submit(next, parts, b"")
            yield part


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a gzip file in large parts.

    zlib releases the interpreter lock while it unpacks.  The parts of the module gzip are so small
    that the threads would spend more time on waiting for each other than on unpacking.
    Raises EOFError if the file ends in the middle, zlib.error, InputError.
    """
    unpacker = zlib.decompressobj(_GZIP)
    members = 1
    while packed := file.read(READ_BYTES):
        while packed:
            if unpacker.eof:  # a file may have several members, one after the other
                unpacker = zlib.decompressobj(_GZIP)
                members += 1
                if members > MOST_MEMBERS:
                    text = f"must have at most {MOST_MEMBERS:,} gzip members"
                    raise InputError(text)
            if part := unpacker.decompress(packed, PART_BYTES):
                yield part
            packed = unpacker.unconsumed_tail or unpacker.unused_data
    if not unpacker.eof:
        raise EOFError
