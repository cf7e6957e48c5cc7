"""Report of a node's usage."""

import json
from typing import Any

import pytest
from tests.nodes import LAYOUT, START_S, pod, slo

from koordinator.api.codec import encode_part
from koordinator.api.node_metric import (
    AggregatePolicy,
    MetricCollectPolicy,
    NodeMetricSpec,
    NodeMetricStatus,
)
from koordinator.foundation.clock import Duration
from koordinator.host.gpus import Gpu
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.prediction.reclaimable import PredictedAmounts, Prediction
from koordinator.koordlet.report.node_metric import MetricReport, ReportPolicy, report_policy
from koordinator.koordlet.view.pods import pod_view

MIB = 1 << 20


def measured(seconds: int = 300, **kinds: tuple[float, float]) -> MetricStore:
    """Return a store with the same CPU and memory each second: of node, system, pod, app."""
    metrics = {
        "node": (Metric.NODE_CPU, Metric.NODE_MEMORY, ""),
        "system": (Metric.SYSTEM_CPU, Metric.SYSTEM_MEMORY, ""),
        "pod": (Metric.POD_CPU, Metric.POD_MEMORY, "uid-a"),
        "app": (Metric.HOST_APP_CPU, Metric.HOST_APP_MEMORY, "app"),
        "numa": (Metric.NUMA_CPU, Metric.NUMA_MEMORY, "0"),
    }
    store = MetricStore(1800, 1)
    for second in range(seconds + 1):
        for name, amounts in kinds.items():
            cpu, memory, owner = metrics[name]
            store.add(cpu, owner, START_S - seconds + second, amounts[0])
            store.add(memory, owner, START_S - seconds + second, amounts[1])
    return store


def reported(store: MetricStore, **changes: Any) -> NodeMetricStatus:
    """Return the status of a node with one LS pod and one host application."""
    settings = {
        "policy": ReportPolicy(durations=(Duration(minutes=5),)),
        "pods": [pod_view(pod("a", "LS", priority=9000), LAYOUT)],
        "host_applications": slo(
            hostApplications=[{"name": "app", "priority": "koord-prod", "qos": "LS"}]
        ).host_applications,
        "numa_nodes": [0],
        **changes,
    }
    status = MetricReport(store=store, **settings).status(START_S, None)
    assert status is not None
    return status


def test_usage_is_in_milli_cores_and_binary_bytes() -> None:
    """The spelling of every field is the original's."""
    store = measured(
        node=(9.42, 41 * MIB), system=(1.0, MIB), pod=(0.31, 3 * MIB), app=(2.0, 2 * MIB),
        numa=(9.0, MIB),
    )  # fmt: skip

    text = encode_part(reported(store, policy=ReportPolicy(durations=()))).decode()

    assert json.loads(text) == json.loads(
        '{"hostApplicationMetric":[{"name":"app","priority":"koord-prod","qos":"LS",'
        '"usage":{"resources":{"cpu":"2","memory":"2Mi"}}}],'
        '"nodeMetric":{"nodeUsage":{"resources":{"cpu":"9420m","memory":"41Mi"}},'
        '"numaUsages":[{"nodeUsage":{"resources":{"cpu":"9","memory":"1Mi"}},"numaNodeID":0,"systemUsage":{}}],'
        '"systemUsage":{"resources":{"cpu":"1","memory":"1Mi"}}},'
        '"podsMetric":[{"name":"a","namespace":"default",'
        '"podUsage":{"resources":{"cpu":"310m","memory":"3Mi"}},'
        '"priority":"koord-prod","qos":"LS"}],'
        '"prodReclaimableMetric":{},'
        '"updateTime":"2023-11-14T22:13:20Z"}'
    )


def test_a_window_has_every_percentile() -> None:
    """Under the names of the aggregation types."""
    (window,) = reported(
        measured(node=(2.0, MIB), system=(1.0, MIB))
    ).node_metric.aggregated_node_usages  # type: ignore[union-attr]

    assert set(window.usage) == {"avg", "p50", "p90", "p95", "p99"}
    assert str(window.usage["p95"].resources["cpu"]) == "2"
    assert str(window.duration) == "5m0s"


def test_a_cold_window_is_empty() -> None:
    """Samples of less than half of it say nothing about all of it."""
    node = reported(measured(seconds=149, node=(2.0, MIB))).node_metric

    assert node is not None
    assert node.aggregated_node_usages[0].usage == {}
    assert str(node.node_usage.resources["cpu"]) == "2"


def test_an_unmeasured_node_reports_nothing() -> None:
    """Better an old status, which grows stale, than a wrong one."""
    report = MetricReport(
        store=MetricStore(60, 1),
        policy=ReportPolicy(),
        pods=[],
        host_applications=[],
        numa_nodes=[],
    )

    assert report.status(START_S, None) is None


def test_a_pod_without_samples_is_left_out() -> None:
    """A pod without samples has just started, or was deleted."""
    assert reported(measured(node=(1.0, MIB))).pods_metric == ()


@pytest.mark.parametrize(
    ("policy", "hot", "expected"),
    [
        ("usageWithoutPageCache", True, "1Mi"),
        ("usageWithPageCache", True, "2Mi"),
        ("usageWithHotPageCache", True, "3Mi"),
        ("usageWithHotPageCache", False, "1Mi"),
    ],
)
def test_memory_follows_the_policy(policy: str, hot: bool, expected: str) -> None:
    """Of the node and of what is neither pods nor programs.  Hot page cache needs a kernel."""
    store = measured(node=(1.0, MIB), system=(1.0, MIB))
    for second in range(300):
        time_s = START_S - 300 + second
        for kind in ("NODE_MEMORY", "SYSTEM_MEMORY"):
            store.add(Metric[f"{kind}_WITH_PAGE_CACHE"], "", time_s, 2 * MIB)
            store.add(Metric[f"{kind}_WITH_HOT_PAGES"], "", time_s, 3 * MIB)
    node = reported(store, policy=ReportPolicy(memory=policy), knows_hot_pages=hot).node_metric

    assert node is not None
    assert str(node.node_usage.resources["memory"]) == expected
    assert str(node.system_usage.resources["memory"]) == expected


def test_gpus_are_reported_individually() -> None:
    """Percent of cores, bytes, and percent of memory."""
    store = measured(node=(1.0, MIB), pod=(1.0, MIB))
    for owner, core, memory in (
        ("0", Metric.NODE_GPU_CORE, Metric.NODE_GPU_MEMORY),
        ("uid-a/0", Metric.POD_GPU_CORE, Metric.POD_GPU_MEMORY),
    ):
        store.add(core, owner, START_S, 80)
        store.add(memory, owner, START_S, 25 * MIB)
    gpu = Gpu(minor=0, uuid="GPU-1", model="X", memory_bytes=100 * MIB, bus_id="0")

    status = reported(store, gpus=[gpu])

    assert status.node_metric is not None
    for devices in (
        status.node_metric.node_usage.devices,
        status.pods_metric[0].pod_usage.devices,
    ):
        (device,) = devices
        assert (device.id, device.minor, device.type) == ("GPU-1", 0, "gpu")
        assert {name: str(amount) for name, amount in device.resources.items()} == {
            "koordinator.sh/gpu-core": "80",
            "koordinator.sh/gpu-memory": "25Mi",
            "koordinator.sh/gpu-memory-ratio": "25",
        }


def test_predictions_are_reported() -> None:
    """The report has the reclaimable amounts and the peak."""
    report = MetricReport(
        store=measured(node=(1.0, MIB)),
        policy=ReportPolicy(),
        pods=[],
        host_applications=[],
        numa_nodes=[],
    )
    status = report.status(
        START_S, Prediction(PredictedAmounts(3400, MIB), PredictedAmounts(6600, 2 * MIB))
    )

    assert status is not None
    assert status.prod_reclaimable_metric is not None
    assert status.prod_peak_metric is not None
    assert str(status.prod_reclaimable_metric.resource.resources["cpu"]) == "3400m"
    assert str(status.prod_peak_metric.resource.resources["memory"]) == "2Mi"


def test_the_policy_has_defaults_and_lower_bounds() -> None:
    """60 s and 300 s; never below 30 s and 60 s."""
    assert report_policy(NodeMetricSpec()) == ReportPolicy()
    hasty = MetricCollectPolicy(
        report_interval_seconds=1,
        aggregate_duration_seconds=1,
        node_aggregate_policy=AggregatePolicy(durations=(Duration(hours=1),)),
    )
    result = report_policy(NodeMetricSpec(metric_collect_policy=hasty))

    assert (result.report_s, result.aggregate_s, result.longest_s) == (30, 60, 3600)
