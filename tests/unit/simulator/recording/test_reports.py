"""Reports of usage in a recording: windows are read late, and equal the written ones."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from tests.measured_nodes import reports
from tests.worlds import metric, used

from koordinator.api.codec import decode_object, encode, to_manifest, with_all_fields
from koordinator.api.meta import JsonObject
from koordinator.api.node_metric import NodeMetric, NodeUsage
from koordinator.foundation.errors import InputError
from koordinator.simulator.recording.batch import read_report


def text(manifest: JsonObject) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(manifest))


def usage_of(report: object) -> NodeUsage:
    assert isinstance(report, NodeMetric)
    assert report.status.node_metric is not None
    return report.status.node_metric


@given(report=reports("n", ["n-p0"]))
def test_report_in_parts_equals_the_report_read_at_once(report: NodeMetric) -> None:
    """Equal to it either way round, and written alike."""
    raw = msgspec.Raw(encode(report))
    decoded = read_report(raw)

    assert decoded == decode_object(raw) == decoded == report == read_report(raw)
    assert encode(decoded) == encode(report)
    assert with_all_fields(decoded) == with_all_fields(report)


def test_windows_are_a_sequence() -> None:
    """Windows can be counted, iterated and cut like a tuple."""
    windows = {("5m", "p95"): used("1"), ("15m", "p95"): used("2")}
    report = metric("n", 1, 1, windows=windows)
    expected = usage_of(report).aggregated_node_usages
    usages = usage_of(read_report(msgspec.Raw(encode(report)))).aggregated_node_usages

    assert (len(usages), usages[1], usages[:1]) == (2, expected[1], expected[:1])
    assert list(usages) == list(expected)
    assert repr(usages) == repr(expected)
    assert usages != ()


@pytest.mark.parametrize("nothing", [None, []])
def test_null_windows_mean_no_windows(nothing: object) -> None:
    """A null, as the original writes for an empty list, is as good as no field."""
    manifest = to_manifest(metric("n", 1, 1))
    manifest["status"]["nodeMetric"]["aggregatedNodeUsages"] = nothing

    assert read_report(text(manifest)) == metric("n", 1, 1)
    assert usage_of(read_report(text(manifest))).aggregated_node_usages == ()


def test_nulls_inside_of_windows_are_absent() -> None:
    """As they are everywhere."""
    manifest = to_manifest(metric("n", 1, 1, windows={("5m", "p95"): used("1")}))
    window = manifest["status"]["nodeMetric"]["aggregatedNodeUsages"][0]
    window["usage"]["p95"]["devices"] = None

    assert read_report(text(manifest)) == decode_object(manifest)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (
            [{"usage": {"p95": {"resources": {"cpu": "1x"}}}}],
            "NodeMetric n: status.nodeMetric.aggregatedNodeUsages[0].usage.p95.resources.cpu: '1x'",
        ),
        ({}, "NodeMetric n: status.nodeMetric.aggregatedNodeUsages: must be a list, got {}"),
    ],
)
def test_invalid_windows_are_reported_when_read(wrong: Any, problem: str) -> None:
    """In the same words as otherwise, object and field included."""
    manifest = to_manifest(metric("n", 1, 1))
    manifest["status"]["nodeMetric"]["aggregatedNodeUsages"] = wrong
    with pytest.raises(InputError) as at_once:
        decode_object(manifest)
    windows = usage_of(read_report(text(manifest))).aggregated_node_usages
    with pytest.raises(InputError) as late:
        list(windows)

    assert str(late.value) == str(at_once.value)
    assert str(late.value).startswith(problem)


def test_other_invalid_fields_are_reported_immediately() -> None:
    """An invalid usage of the node is one of them."""
    manifest = to_manifest(metric("n", 1, 1))
    manifest["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"] = "1x"

    with pytest.raises(InputError, match=r"NodeMetric n: .*nodeUsage\.resources\.cpu"):
        read_report(text(manifest))
