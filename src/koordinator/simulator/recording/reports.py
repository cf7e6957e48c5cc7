"""Lazily decoded usage reports of a recording, which has hundreds of thousands of them.

The statistics over time windows are nine tenths of a report, and schedulers that use the latest
usage never read them, so they are decoded on access.
"""

from functools import partial
from typing import Any, cast

import msgspec

from koordinator.api.codec import decode, decode_object, json_decoder
from koordinator.api.lazy import LazySequence
from koordinator.api.meta import KubeObject
from koordinator.api.node_metric import (
    AggregatedUsage,
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
)
from koordinator.foundation.errors import InputError

Windows = tuple[AggregatedUsage, ...]

_NOTHING = msgspec.Raw(b"null")


class _Usage(NodeUsage, frozen=True, kw_only=True):
    aggregated_node_usages: msgspec.Raw = _NOTHING  # type: ignore[assignment]  # (not read yet)
    aggregated_system_usages: msgspec.Raw = _NOTHING  # type: ignore[assignment]


class _Status(NodeMetricStatus, frozen=True, kw_only=True):
    node_metric: _Usage | None = None


class _Report(NodeMetric, frozen=True, kw_only=True):
    status: _Status = _Status()


_REPORT = json_decoder(_Report)


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
