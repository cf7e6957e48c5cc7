"""Lines of a recording: a header, then batches of watch events, with lazily decoded usage.

A batch has the events of one moment in order; the first batch has the initial objects.  An
incomplete last line, as left by a killed recorder, is ignored.

The statistics over time windows are nine tenths of a report, and schedulers that use the latest
usage never read them, so they are decoded on access.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal, cast

import msgspec

from koordinator.api.codec import LazySequence, decode, decode_object, json_decoder
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node_metric import (
    AggregatedUsage,
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
)
from koordinator.foundation.decoders import check_keys, decoder_of
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

Windows = tuple[AggregatedUsage, ...]
_NOTHING = msgspec.Raw(b"null")
FORMAT = "koordinator-recording/v1"
LONGEST_LINE_BYTES = 1 << 30  # the initial objects are one line: about 300,000 pods
LONGEST_S = 366 * 86400.0  # bounds the virtual time of a replay
_LATEST_S = 250e9  # upper bound of ``datetime``
LONGEST_HEADER_BYTES = 1 << 24  # the header has the scheduler's configuration

#: Errors of decoding JSON; RecursionError for nesting that is too deep.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class RecordingHeader(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """First line of a recording; ``configuration`` is the scheduler's configuration, if given."""

    format: str
    started_s: float  # seconds since the epoch
    anonymous: bool = False
    configuration: JsonObject | None = None


EventKind = Literal["ADDED", "MODIFIED", "DELETED"]


class RecordedEvent(msgspec.Struct, frozen=True, gc=False):
    """Watch event."""

    type: EventKind
    object: msgspec.Raw

    @property
    def reporting(self) -> str:
        """The node of a usage report; empty for any other event."""
        if self.type == "DELETED":
            return ""
        try:
            head = _HEAD.decode(self.object)
        except UNDECODABLE:  # ``decoded`` raises the error
            return ""
        return head.metadata.name if head.is_report else ""

    def decoded(self) -> KubeObject:
        """Return the object; the time windows of a usage report are decoded on access.

        Raises InputError for an invalid object.
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
    """Events of one moment."""

    at_s: float  # seconds since the epoch
    events: list[RecordedEvent]

    def objects(self) -> Iterator[tuple[str, KubeObject]]:
        """Yield type and object of each event.  Raises InputError for an invalid object."""
        for event in self.events:
            yield event.type, event.decoded()


class _ObjectName(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _ObjectHead(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Identifying fields of an object, decoded first."""

    kind: str = ""
    api_version: str = ""
    metadata: _ObjectName = _ObjectName()

    @property
    def is_report(self) -> bool:
        return self.kind == NodeMetric.KIND and self.api_version == NodeMetric.API_VERSION


@dataclass(frozen=True, slots=True)
class Recording:
    """Recording that is read lazily; ``batches`` can be iterated once."""

    header: RecordingHeader
    batches: Iterator[RecordedBatch]


_HEAD = decoder_of(_ObjectHead)
_HEADER = decoder_of(RecordingHeader)
_BATCH = decoder_of(RecordedBatch)


def to_line(part: RecordingHeader | RecordedBatch) -> bytes:
    """Return a line of the file, including the newline."""
    return msgspec.json.encode(part) + b"\n"


def read_recording(lines: Iterable[bytes], source: str) -> Recording:
    """Read the header, and the batches lazily.  Raises InputError, also while iterating."""
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


class _Usage(NodeUsage, frozen=True, kw_only=True):
    aggregated_node_usages: msgspec.Raw = _NOTHING  # type: ignore[assignment]  # (not read yet)
    aggregated_system_usages: msgspec.Raw = _NOTHING  # type: ignore[assignment]


class _ReportStatus(NodeMetricStatus, frozen=True, kw_only=True):
    node_metric: _Usage | None = None


class _UnreadReport(NodeMetric, frozen=True, kw_only=True):
    status: _ReportStatus = _ReportStatus()


_REPORT = json_decoder(_UnreadReport)


def read_report(text: msgspec.Raw) -> KubeObject:
    """Return the NodeMetric that a text is, its windows unread.

    Raises InputError, of windows when they are looked at.
    """
    try:
        report = _REPORT.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return decode_object(text)
    status, usage = report.status, report.status.node_metric
    return NodeMetric(
        metadata=report.metadata,
        spec=report.spec,
        status=NodeMetricStatus(
            update_time=status.update_time,
            node_metric=None
            if usage is None
            else NodeUsage(
                node_usage=usage.node_usage,
                aggregated_node_usages=_lazy(usage.aggregated_node_usages, text),
                system_usage=usage.system_usage,
                aggregated_system_usages=_lazy(usage.aggregated_system_usages, text),
                numa_usages=usage.numa_usages,
            ),
            pods_metric=status.pods_metric,
            host_application_metric=status.host_application_metric,
            prod_reclaimable_metric=status.prod_reclaimable_metric,
            prod_peak_metric=status.prod_peak_metric,
        ),
    )


def _lazy(part: Any, whole: msgspec.Raw) -> Windows:
    if part is _NOTHING or part == _NOTHING:
        return ()
    lazy: LazySequence[AggregatedUsage] = LazySequence(part, partial(_windows, part, whole))
    return cast("Windows", lazy)  # it behaves like one


def _windows(part: msgspec.Raw, whole: msgspec.Raw) -> Windows:
    try:
        return decode(part, Windows)
    except InputError:
        decode_object(whole)  # which names the object and the field
        raise
