"""Services and batch pods on shared nodes: what is given away, held back and evicted."""

import json
from typing import Any

import pytest
import yaml

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InputError
from koordinator.simulator import Simulation, parse_workload
from koordinator.simulator.colocation_report import ColocationReport
from koordinator.simulator.results import SimulationResult

POOL = {"name": "node", "count": 1, "cpu": 10, "memory": "100Gi"}
PROFILE = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {
        "selector": {"matchLabels": {"app": "batch"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
    },
}


def config(**threshold: Any) -> dict[str, Any]:
    """Return slo-controller-config: 65 % of the CPUs are given away, and suppressed above that."""
    strategy = {"enable": True, "cpuSuppressPolicy": "cfsQuota", **threshold}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {
            "colocation-config": json.dumps({"enable": True, "cpuReclaimThresholdPercent": 65}),
            "resource-threshold-config": json.dumps({"clusterStrategy": strategy}),
        },
    }


def pods(name: str, count: int, cpu: int, *, at: str = "0s", **more: Any) -> dict[str, Any]:
    """Return pods that come at once; services, or jobs of an hour if called batch."""
    is_batch = name == "batch"
    template = {
        "cpu": cpu,
        "memory": more.pop("memory", "1Gi"),
        "priority": 5000 if is_batch else 9000,
        "qos": "BE" if is_batch else "LS",
        "usage": more.pop("usage", {"cpu": 100}),
    }
    stream = {"name": name, "template": template, **more}
    stream["arrival"] = {"bursts": [{"count": count, "at": at}]}
    return stream | ({"duration": {"constant": "1h"}} if is_batch else {})


def described(*streams: Any, horizon: str = "3h", spikes: Any = (), **threshold: Any) -> Any:
    """Return a workload without noise."""
    return {
        "horizon": horizon,
        "nodePools": [POOL],
        "podStreams": list(streams),
        "colocation": {"noisePercent": 0, "safePercent": 70, "spikes": list(spikes)},
        "objects": [config(**threshold), PROFILE],
    }


def run(data: Any, *, colocates: bool = True) -> SimulationResult:
    """Run it with nothing left to chance."""
    workload = parse_workload(yaml.safe_dump(data), "test")
    return Simulation(workload, stopwatch=VirtualClock(), colocates=colocates).run()


def measured(result: SimulationResult) -> ColocationReport:
    """Return what was measured of colocation."""
    assert result.report.colocation is not None
    return result.report.colocation


def test_batch_pods_live_on_what_services_leave_unused() -> None:
    """The service requests all ten CPUs and uses two: 6.5 - 2 are given away; without it none."""
    data = described(
        pods("web", 1, 10, usage={"cpu": 20}), pods("batch", 2, 2, at="5m"), horizon="1h"
    )

    result = run(data)
    before = run(data, colocates=False)

    (node,) = result.cluster.list(Node).items
    assert node.status.allocatable["kubernetes.io/batch-cpu"].value() == 4500
    on_node = {p.metadata.name for p in result.cluster.list(Pod).items if p.spec.node_name}
    assert on_node == {"web-0", "batch-0", "batch-1"}
    (job, *_) = (p for p in result.cluster.list(Pod).items if p.metadata.name == "batch-0")
    assert job.spec.priority_class_name == "koord-batch"
    assert job.spec.containers[0].resources.requests["kubernetes.io/batch-cpu"].value() == 2000
    assert [p.node for p in before.placements if p.pod.startswith("default/batch")] == ["", ""]
    assert measured(result).totals.services_cpu == pytest.approx(0.2, abs=0.01)
    assert measured(before).totals.best_effort_cpu == 0


def test_a_spike_holds_best_effort_back_and_its_work_takes_longer() -> None:
    """At full speed for half an hour, then for half an hour at an eighth: 0.5 CPUs of four."""
    spike = {"stream": "web", "at": "35m", "lasts": "30m", "factor": 3}
    data = described(
        pods("web", 1, 10, usage={"cpu": 20}), pods("batch", 2, 2, at="5m"), spikes=[spike]
    )

    result = run(data)

    jobs = [p for p in result.placements if p.pod.startswith("default/batch")]
    # 26:15 of the half hour were lost; while it lasted 0.5 CPUs did the work of four.
    for job in jobs:
        assert job.ended_s is not None
        assert job.bound_s is not None
        assert job.ended_s - job.bound_s == pytest.approx(3600 + 1800 * 7 / 8, abs=60)
    totals = measured(result).totals
    assert totals.best_effort_core_hours == pytest.approx(4, abs=0.1)
    assert (totals.finished, totals.evicted) == (2, 0)
    # Above 70 % only until the node agent has looked: one second of three hours.
    assert totals.at_risk_hours == pytest.approx(1 / 3600, rel=0.01)


@pytest.mark.slow
def test_best_effort_that_hardly_gets_anything_is_evicted() -> None:
    """Below 30 % of its request; its owner submits it again, and its work starts over."""
    spike = {"stream": "web", "at": "35m", "lasts": "30m", "factor": 3}
    data = described(
        pods("web", 1, 10, usage={"cpu": 20}),
        pods("batch", 2, 2, at="5m"),
        spikes=[spike],
        cpuEvictBESatisfactionLowerPercent=30,
        cpuEvictBESatisfactionUpperPercent=60,
    )

    result = run(data)

    totals = measured(result).totals
    assert totals.evicted >= 1
    assert totals.lost_core_hours >= 1  # half an hour of two CPUs
    assert any("BECPUEvict" in event.text for event in result.report.events)
    assert totals.finished == 2


def test_best_effort_is_evicted_before_memory_runs_out() -> None:
    """At 70 % of the node's memory, until it is below 68 %."""
    data = described(
        pods("web", 1, 10, usage={"low": 20, "high": 20, "memory": 20}, memory="80Gi"),
        pods("web2", 1, 1, at="30m", memory="10Gi"),
        pods("batch", 6, 1, at="5m", memory="8Gi"),
        horizon="40m",
        memoryEvictThresholdPercent=70,
    )
    data["nodePools"] = [POOL | {"cpu": 14}]
    data["podStreams"][1]["template"]["memory"] = "20Gi"

    result = run(data)

    # 16 + 48 GiB are in use, then 84: two jobs are too much.
    assert measured(result).totals.evicted == 2
    assert {e.text.rpartition(": ")[2] for e in result.report.events} == {"BEMemoryEvict"}


def test_services_that_overload_a_node_by_themselves_are_at_risk_all_the_same() -> None:
    """Half of the time, with and without best effort."""
    spike = {"stream": "web", "at": "30m", "lasts": "30m", "factor": 4}
    data = described(
        pods("web", 1, 10, usage={"cpu": 20}), pods("batch", 1, 1), horizon="1h", spikes=[spike]
    )

    for colocates in (True, False):
        assert measured(run(data, colocates=colocates)).totals.at_risk == pytest.approx(
            0.5, abs=0.01
        )


@pytest.mark.slow
def test_prod_pods_that_are_known_for_a_day_leave_mid_resources() -> None:
    """Mid resources are requests less peak usage and a margin, and 0 before."""
    data = described(pods("web", 1, 10, usage={"cpu": 20}), pods("batch", 1, 1), horizon="26h")
    data["sampleEvery"] = "1h"
    data["colocation"]["step"] = "10m"

    mid = measured(run(data)).samples.mid_cpu

    assert not any(mid[:24])
    assert 0.7 < mid[-1] < 0.8


def test_a_failed_node_uses_nothing_and_its_jobs_restart() -> None:
    """From the failure on; what they had done is lost."""
    data = described(pods("web", 1, 10, usage={"cpu": 20}), pods("batch", 2, 2, at="5m"))
    data["outages"] = [
        {"pool": "node", "at": "35m", "nodes": 1, "repair": {"constant": "2m"}},
    ]

    result = run(data)

    totals = measured(result).totals
    assert totals.finished == 2
    assert totals.lost_core_hours == pytest.approx(2, abs=0.1)  # half an hour of four CPUs
    ended = [p.ended_s for p in result.placements if p.pod.startswith("default/batch")]
    assert ended == pytest.approx([(37 + 60) * 60] * 2, abs=60)


@pytest.mark.slow
def test_a_run_repeats_exactly() -> None:
    """With noise, too."""
    data = described(pods("web", 2, 4, usage={"low": 10, "high": 60}), pods("batch", 6, 1))
    data["colocation"]["noisePercent"] = 10

    assert measured(run(data)) == measured(run(data))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"objects": [PROFILE]},
            "objects: must contain the ConfigMap koordinator-system/slo-controller",
        ),
        ({"colocation": {"step": "1s"}}, "colocation.step: must be at least 10s, got 1s"),
        (
            {"colocation": {"spikes": [{"stream": "x", "at": "1h", "lasts": "1h", "factor": 2}]}},
            "spikes\\[0\\].stream: must be one of web, batch, got 'x'",
        ),
        (
            {"podStreams": [pods("web", 1, 1)]},
            "podStreams: must have at least one stream or variant of qos BE",
        ),
        (
            {"podStreams": [pods("batch", 1, 1, usage={"cpu": 5, "high": 9})]},
            "usage.cpu: must not be set together with low or high",
        ),
        (
            {"podStreams": [pods("batch", 1, 1, usage={"low": 5})]},
            "usage.high: is required with low",
        ),
        (
            {"podStreams": [pods("batch", 1, 1, usage={"low": 50, "high": 9})]},
            "usage.high: must be at least 50, the low end, got 9",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(change: Any, problem: str) -> None:
    """With the path of the field."""
    data = described(pods("web", 1, 1), pods("batch", 1, 1)) | change
    with pytest.raises(InputError, match=problem):
        parse_workload(yaml.safe_dump(data), "test")
