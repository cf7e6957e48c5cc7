"""Metrics of pods, containers and host applications at a scrape, under the original's names."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.nodes import START_S, Tree, machine, pod, slo

from koordinator.api.codec import decode
from koordinator.api.node_metric import NodeMetricStatus
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.metrics_snapshot import MetricsSnapshot
from koordinator.koordlet.kernel_readings import Pressure
from koordinator.koordlet.metrics import Metric, MetricStore

POD = {"pod_uid": "uid-a", "pod_name": "a", "pod_namespace": "default"}
CONTAINER = {"container_id": "containerd://a-c0", "container_name": "c0", **POD}


@pytest.fixture
def tree() -> Tree:
    return Tree()


def snapshot(tree: Tree, *pods: Any, now_s: float = START_S, **changes: Any) -> MetricsSnapshot:
    """Return a snapshot of a node without samples, unless they are given."""
    node = machine(8, allocatable={"kubernetes.io/batch-cpu": 1500})
    view = tree.view(*pods, machine_=node, slo=changes.pop("spec", None), now_s=now_s)
    blank = {"store": MetricStore(600, 1), "pressures": {}, "cookies": {}}
    return MetricsSnapshot(view=view, **{**blank, **changes})


def shown(made: MetricsSnapshot, name: str) -> list[tuple[dict[str, str], float]]:
    """Return the series of a name without the label of the node, which all have."""
    registry = CollectorRegistry()
    NodeGauges(registry, "n1", START_S).publish(made)
    samples = [s for f in registry.collect() for s in f.samples if s.name == f"koordlet_{name}"]
    assert all(sample.labels["node"] == "n1" for sample in samples)
    return [
        ({key: text for key, text in sample.labels.items() if key != "node"}, sample.value)
        for sample in samples
    ]


def test_cycles_and_instructions_of_containers(tree: Tree) -> None:
    """For five minutes; a deleted pod leaves no series."""
    view = tree.add_pod(pod("a", "LS", requests={"cpu": 1}))
    store = MetricStore(600, 1)
    for kind, value in (("cycle", 300.0), ("instruction", 200.0)):
        store.add(Metric.CONTAINER_CPI, f"containerd://a-c0/{kind}", START_S, value)

    assert shown(snapshot(tree, view, store=store), "container_cpi") == [
        ({**CONTAINER, "cpi_field": "cycles"}, 300.0),
        ({**CONTAINER, "cpi_field": "instructions"}, 200.0),
    ]
    assert shown(snapshot(tree, store=store), "container_cpi") == []
    old = snapshot(tree, view, store=store, now_s=START_S + 301)
    assert shown(old, "container_cpi") == []


def test_pressure_of_pods_and_containers(tree: Tree) -> None:
    """Three averages; a kernel without full CPU pressure has no such series, and a label for it."""
    view = tree.add_pod(pod("a", "LS", requests={"cpu": 1}))
    both, some = (Pressure(some=(1, 2, 3), full=full) for full in ((4, 5, 6), None))
    made = snapshot(
        tree, view, pressures={"uid-a": {"mem": both}, "containerd://a-c0": {"cpu": some}}
    )

    of_pod = [
        (s["psi_resource_type"], s["psi_degree"], s["psi_precision"], s["cpu_full_supported"], v)
        for s, v in shown(made, "pod_psi")
    ]
    assert of_pod == [
        ("mem", "some", "avg10", "true", 1),
        ("mem", "some", "avg60", "true", 2),
        ("mem", "some", "avg300", "true", 3),
        ("mem", "full", "avg10", "true", 4),
        ("mem", "full", "avg60", "true", 5),
        ("mem", "full", "avg300", "true", 6),
    ]
    labels, value = shown(made, "container_psi")[0]
    of_cpu = {"psi_resource_type": "cpu", "psi_precision": "avg10", "psi_degree": "some"}
    assert labels == {**CONTAINER, **of_cpu, "cpu_full_supported": "false"}
    assert (value, len(shown(made, "container_psi"))) == (1, 3)


def test_caches_bandwidth_and_programs(tree: Tree) -> None:
    """By class and cache; by name of the program."""
    store = MetricStore(600, 1)
    store.add(Metric.RESCTRL_LLC, "BE/1", START_S, 4096)
    store.add(Metric.RESCTRL_MB, "BE/1/mbm_total_bytes", START_S, 77)
    store.add(Metric.HOST_APP_CPU, "nginx", START_S, 1.5)
    spec = slo(hostApplications=[{"name": "nginx", "qos": "LS", "priority": "koord-prod"}])
    made = snapshot(tree, store=store, spec=spec)

    assert shown(made, "resctrl_llc_occupancy") == [({"cache_id": "1", "qos": "BE"}, 4096)]
    assert shown(made, "resctrl_memory_bandwidth") == [
        ({"cache_id": "1", "qos": "BE", "mb_type": "mbm_total_bytes"}, 77)
    ]
    program = {"host_application_name": "nginx", "priority_class": "koord-prod", "qos": "LS"}
    assert shown(made, "host_application_resource_usage") == [({**program, "resource": "cpu"}, 1.5)]


def test_core_scheduling_cookies_are_metrics(tree: Tree) -> None:
    """The group and the cookie are labels, as in the original."""
    view = tree.add_pod(pod("a", "BE"))
    made = snapshot(tree, view, cookies={view.containers[0].folder: ("team", 12)})

    assert shown(made, "container_core_sched_cookie") == [
        ({**CONTAINER, "core_sched_group": "team", "core_sched_cookie": "12"}, 1)
    ]


def test_batch_resources_of_the_node_and_of_containers(tree: Tree) -> None:
    """In the units of the API: thousandths of a CPU, bytes."""
    batch: dict[str, str | int] = {
        "kubernetes.io/batch-cpu": 200,
        "kubernetes.io/batch-memory": "64Mi",
    }
    view = tree.add_pod(pod("a", "BE", requests=batch, limits=batch))
    made = snapshot(tree, view)

    node = {s["resource"]: v for s, v in shown(made, "node_resource_allocatable")}
    assert node["kubernetes.io/batch-cpu"] == 1500
    for name in ("container_resource_requests", "container_resource_limits"):
        assert shown(made, name) == [
            ({**CONTAINER, "resource": "kubernetes.io/batch-cpu", "unit": "integer"}, 200),
            ({**CONTAINER, "resource": "kubernetes.io/batch-memory", "unit": "byte"}, 64 << 20),
        ]


def test_sizes_of_cpu_pools_are_metrics(tree: Tree) -> None:
    """Pool sizes are always exported, single CPUs only on request."""
    bound = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-5"}'}
    view = tree.add_pod(pod("a", "LSR", requests={"cpu": 6}, annotations=bound))

    assert shown(snapshot(tree, view), "cpuset_share_pool_cpu_cores") == [({}, 2)]
    assert shown(snapshot(tree, view), "cpuset_be_share_pool_cpu_cores") == [({}, 8)]
    assert shown(snapshot(tree, view), "cpuset_share_pool_info") == []
    made = snapshot(tree, view, shows_each_cpu=True)
    assert shown(made, "cpuset_share_pool_info") == [({"cpu": "6"}, 1), ({"cpu": "7"}, 1)]
    assert len(shown(made, "cpuset_be_share_pool_info")) == 8


def test_reported_usage_is_shown_if_enabled(tree: Tree) -> None:
    """Of the node and of each NUMA node, the system's part apart."""
    used = {"resources": {"cpu": "1500m", "memory": "1Gi"}}
    status = decode(
        {
            "nodeMetric": {
                "nodeUsage": used,
                "systemUsage": used,
                "numaUsages": [{"numaNodeID": 1, "nodeUsage": used, "systemUsage": {}}],
            }
        },
        NodeMetricStatus,
    )
    made = snapshot(tree, usage=status)
    cpu, memory = {"resource": "cpu", "unit": "core"}, {"resource": "memory", "unit": "byte"}

    assert shown(made, "node_metric_node_usage") == [(cpu, 1.5), (memory, 1 << 30)]
    assert shown(made, "node_metric_system_usage") == [(cpu, 1.5), (memory, 1 << 30)]
    of_node = [
        ({**labels, "numa_node_id": "1"}, v) for labels, v in ((cpu, 1.5), (memory, 1 << 30))
    ]
    assert shown(made, "node_metric_numa_node_usage") == of_node
    assert shown(made, "node_metric_numa_system_usage") == []
    assert shown(snapshot(tree), "node_metric_node_usage") == []


def test_best_effort_usage_and_oom_scores_are_metrics(tree: Tree) -> None:
    """The page has the usage of the tier, and the OOM score of each pod."""
    own = {"koordinator.sh/oom-score-adj": "300"}
    view = tree.add_pod(pod("a", "BE", annotations=own))
    store = MetricStore(600, 1)
    store.add(Metric.BE_CPU, "", START_S, 2.5)

    assert shown(snapshot(tree, store=store), "be_suppress_be_used_cpu_cores") == [({}, 2.5)]
    assert shown(snapshot(tree, view), "container_oom_score_adj") == []
    made = snapshot(tree, view, shows_oom_scores=True)
    assert shown(made, "container_oom_score_adj") == [({"container_name": "c0", **POD}, 300)]
