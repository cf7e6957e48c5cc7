"""The Grafana dashboard asks only for what the scheduler measures, by labels that it has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from tests.unit.scheduler.watches import restarted
from tests.worlds import START_S, node

from koordinator.cli.component.process import RequestMetrics
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.features.metrics import SchedulerMetrics

FILE = Path(__file__).parents[3] / "dashboards/koordinator.json"
DASHBOARD = json.loads(FILE.read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "gauge": ("",)}
OF_PROMETHEUS = frozenset(("job", "instance", "le"))
WORDS = frozenset(
    ("sum", "avg", "max", "min", "by", "without", "rate", "histogram_quantile", "topk")
)

SELECTED = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}")
LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)")
GROUPED = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
SHOWN = re.compile(r"\{\{\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*\}\}")


def families() -> Iterator[Metric]:
    clock, registry = VirtualClock(START_S), CollectorRegistry()
    cluster = MemoryCluster(clock)
    cluster.load([node("n")])
    restarted(cluster, clock, metrics=SchedulerMetrics(registry))
    RequestMetrics(registry).observe("GET", "200", "host", 0.1)
    ProcessCollector(registry=registry)
    return iter(registry.collect())


@pytest.fixture(scope="module")
def labels() -> dict[str, frozenset[str]]:
    """Return the labels of every series, by its name."""
    result = {}
    for family in families():
        own = getattr(family, "_labelnames", ())
        of_samples = {label for sample in family.samples for label in sample.labels}
        for suffix in SUFFIXES.get(family.type, ("",)):
            result[family.name + suffix] = frozenset(own) | of_samples
    return result


def series(query: str) -> list[str]:
    """Return the names of the series that a query reads: all are selected by job."""
    return [name for name, _ in SELECTED.findall(query)]


def test_queries_are_read_in_full() -> None:
    """Every word of a query is a function, a label, or a series with a selector."""
    for query in QUERIES:
        bare = GROUPED.sub("", re.sub(r"\[[^\]]*\]", "", SELECTED.sub("", query)))
        assert series(query), query
        assert set(re.findall(r"[a-zA-Z_][a-zA-Z0-9_]*", bare)) <= WORDS, query


def test_every_series_exists(labels: dict[str, frozenset[str]]) -> None:
    """With the suffix that its type has."""
    assert {name for query in QUERIES for name in series(query)} <= labels.keys() | RUNTIME


def test_every_label_exists(labels: dict[str, frozenset[str]]) -> None:
    """Selectors, groupings and legends use labels that the metrics have."""
    for panel in PANELS:
        for target in panel["targets"]:
            query = target["expr"]
            of_series = [labels.get(name, frozenset()) | OF_PROMETHEUS for name in series(query)]
            for name, selector in SELECTED.findall(query):
                known = labels.get(name, frozenset()) | OF_PROMETHEUS
                assert set(LABEL.findall(selector)) <= known, query
            grouped = {
                label.strip() for group in GROUPED.findall(query) for label in group.split(",")
            }
            assert all(grouped <= known for known in of_series), query
            shown = set(SHOWN.findall(target["legendFormat"]))
            assert shown <= (grouped or frozenset.intersection(*of_series)), query


#: What prometheus-client measures of a process only where /proc is.
RUNTIME = frozenset(("process_resident_memory_bytes",))


def test_every_metric_is_shown(labels: dict[str, frozenset[str]]) -> None:
    """Nothing that the scheduler measures is missing from the dashboard."""
    shown = {re.sub(r"_(bucket|count|sum|total)$", "", n) for q in QUERIES for n in series(q)}
    measured = {
        re.sub(r"_(bucket|count|sum|total)$", "", name)
        for name in labels
        if name.startswith("scheduler_")
    }
    assert measured <= shown


def test_panels_do_not_overlap() -> None:
    """Each panel has a number and a place of its own."""
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


#: Queries of the original's dashboard of the scheduler, July 2026, with the labels that it
#: selects or groups by; without the series that differences.md lists as missing.
OF_ORIGINAL = {
    "process_cpu_seconds_total": "",
    "process_resident_memory_bytes": "",
    "rest_client_request_duration_seconds_bucket": "verb",
    "rest_client_requests_total": "code host method",
    "scheduler_elastic_quota_hook_plugin_latency_bucket": "operation plugin",
    "scheduler_elastic_quota_hook_plugin_latency_count": "",
    "scheduler_elastic_quota_process_latency_bucket": "",
    "scheduler_elastic_quota_process_latency_count": "",
    "scheduler_elastic_quota_spec": "name",
    "scheduler_elastic_quota_status": "name",
    "scheduler_framework_extension_point_duration_seconds_bucket": "extension_point",
    "scheduler_framework_extension_point_duration_seconds_count": "extension_point",
    "scheduler_framework_extension_point_duration_seconds_sum": "extension_point",
    "scheduler_pending_pods": "queue",
    "scheduler_permit_wait_duration_seconds_bucket": "",
    "scheduler_plugin_execution_duration_seconds_bucket": "extension_point plugin",
    "scheduler_plugin_execution_duration_seconds_count": "extension_point plugin status",
    "scheduler_plugin_execution_duration_seconds_sum": "extension_point plugin",
    "scheduler_pod_scheduling_attempts_bucket": "",
    "scheduler_preemption_attempts_total": "",
    "scheduler_queue_incoming_pods_total": "event queue",
    "scheduler_schedule_attempts_total": "result",
    "scheduler_scheduling_algorithm_duration_seconds_bucket": "",
    "scheduler_scheduling_algorithm_duration_seconds_count": "",
    "scheduler_scheduling_attempt_duration_seconds_bucket": "",
    "scheduler_unschedulable_pods": "",
    "scheduler_update_elastic_quota_status_duration_seconds_bucket": "",
    "scheduler_update_elastic_quota_status_duration_seconds_count": "",
}


@pytest.mark.parametrize("name", OF_ORIGINAL)
def test_the_dashboard_of_the_original_is_drawn_from_our_series(
    name: str, labels: dict[str, frozenset[str]]
) -> None:
    """Under the same names, with at least the labels of its queries."""
    assert set(OF_ORIGINAL[name].split()) <= labels[name]
