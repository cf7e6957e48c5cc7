"""The lines of a recording.

The first is the header, every other one a batch: what a watch delivered at one moment, in order.
The first batch is what existed in the beginning.  A file that ends in the middle of a line is one
whose recorder was stopped hard; what is whole counts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from koordinator.api.codec import decode_object
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node_metric import NodeMetric
from koordinator.foundation.decoders import decoder_of
from koordinator.foundation.errors import InputError
from koordinator.foundation.json_text import check_keys
from koordinator.simulator.recording.reports import read_report

FORMAT = "koordinator-recording/v1"
LONGEST_LINE_BYTES = 1 << 30  # all that exists is one line: some 300,000 pods
LONGEST_S = 366 * 86400.0  # from begin to end: a replay lets pods wait through all of it
_LATEST_S = 250e9  # which calendars still know
LONGEST_HEADER_BYTES = 1 << 24  # it has the scheduler's configuration


class RecordingHeader(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``configuration`` is that of the scheduler as its file had it, if who recorded gave it."""

    format: str
    started_s: float  # seconds since the epoch
    anonymous: bool = False
    configuration: JsonObject | None = None


#: What decoding JSON raises; the last for what is nested too deep.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

EventKind = Literal["ADDED", "MODIFIED", "DELETED"]


class RecordedEvent(msgspec.Struct, frozen=True, gc=False):
    """A watch event."""

    type: EventKind
    object: msgspec.Raw

    @property
    def reporting(self) -> str:
        """The node whose usage it reports; empty if it is anything else."""
        if self.type == "DELETED":
            return ""
        try:
            head = _HEAD.decode(self.object)
        except UNDECODABLE:  # whoever wants the object will say so
            return ""
        return head.metadata.name if head.is_report else ""

    def decoded(self) -> KubeObject:
        """Return the object; of a report of usage, windows are decoded once they are looked at.

        Raises InputError for what is no object.
        """
        try:
            is_report = _HEAD.decode(self.object).is_report
        except UNDECODABLE:
            is_report = False
        try:
            return read_report(self.object) if is_report else decode_object(self.object)
        except RecursionError:
            raise InputError("nested too deep") from None


class RecordedBatch(msgspec.Struct, frozen=True, rename="camel"):
    """What arrived together."""

    at_s: float  # seconds since the epoch
    events: list[RecordedEvent]

    def objects(self) -> Iterator[tuple[str, KubeObject]]:
        """Yield type and object of each event.  Raises InputError for what is no object."""
        for event in self.events:
            yield event.type, event.decoded()


class _Name(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Head(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What of an object is read to know whether it has to be read."""

    kind: str = ""
    api_version: str = ""
    metadata: _Name = _Name()

    @property
    def is_report(self) -> bool:
        return self.kind == NodeMetric.KIND and self.api_version == NodeMetric.API_VERSION


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that is read while it is looked at: ``batches`` can be gone through once."""

    header: RecordingHeader
    batches: Iterator[RecordedBatch]


_HEAD = decoder_of(_Head)
_HEADER = decoder_of(RecordingHeader)
_BATCH = decoder_of(RecordedBatch)


def to_line(part: RecordingHeader | RecordedBatch) -> bytes:
    """Return a line of the file, its end included."""
    return msgspec.json.encode(part) + b"\n"


def read_recording(lines: Iterable[bytes], source: str) -> Recording:
    """Read the header at once, and the batches one by one.  Raises InputError, also later."""
    rest = iter(lines)
    line = next(rest, b"")
    check_keys(line, f"{source}:1")
    try:
        header = _HEADER.decode(line)
    except UNDECODABLE:
        text = "must be a file that koord record wrote: the first line is no header of a recording"
        raise InputError(text, source=source) from None
    if header.format != FORMAT:
        raise InputError(f"must be {FORMAT!r}, got {header.format!r}", source=source)
    if not 0 <= header.started_s <= _LATEST_S:
        text = f"must be a time, in seconds since the epoch, got {header.started_s:g}"
        raise InputError(text, source=source, path="startedS")
    return Recording(header, _batches(rest, source, header.started_s + LONGEST_S))


def _batches(lines: Iterator[bytes], source: str, until_s: float) -> Iterator[RecordedBatch]:
    for number, line in enumerate(lines, start=2):
        if not line.endswith(b"\n"):
            return
        try:
            batch = _BATCH.decode(line)
        except UNDECODABLE as error:
            raise InputError(
                f"must be a batch of a recording, got {str(error)[:200]}",
                source=f"{source}:{number}",
            ) from None
        if not 0 <= batch.at_s <= until_s:
            raise InputError(
                f"must be a time within a year of the start of the recording, got {batch.at_s:g}",
                source=f"{source}:{number}",
                path="atS",
            )
        yield batch
