"""The workload file: what it means, and what is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from koordinator.api.device import Device
from koordinator.api.node import Node
from koordinator.api.policy import PriorityClass
from koordinator.foundation.errors import InputError
from koordinator.simulator import demo_workload, parse_workload, read_workload
from koordinator.simulator.generation import SimulationPlan, generate

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs/how-to/describe-a-workload.md"
POOL: dict[str, Any] = {"name": "p", "count": 2, "cpu": 4, "memory": "8Gi"}
STREAM: dict[str, Any] = {
    "name": "s",
    "arrival": {"bursts": [{"count": 3}]},
    "template": {"cpu": 1, "memory": "1Gi"},
}


def plan(
    pool: dict[str, Any] | None = None,
    stream: dict[str, Any] | None = None,
    *,
    seed: int = 1,
    until_s: float = 86_400.0,
    **more: Any,
) -> SimulationPlan:
    """Return the objects of a small workload, with some fields replaced."""
    data = {"nodePools": [POOL | (pool or {})], "podStreams": [STREAM | (stream or {})], **more}
    return generate(parse_workload(yaml.safe_dump(data), "test.yaml"), seed, until_s)


# -- nodes -----------------------------------------------------------------------------------


def test_a_gpu_pool_has_nodes_and_devices_as_the_components_publish_them() -> None:
    """The node offers the sum of its healthy devices, under all names that pods use."""
    gpus = {"count": 4, "memory": "48Gi", "model": "L20"}
    made = plan({"gpus": gpus, "zones": ["a", "b"], "labels": {"rack": "7"}})
    nodes = [obj for obj in made.objects if isinstance(obj, Node)]
    devices = [obj for obj in made.objects if isinstance(obj, Device)]

    assert made.nodes == {"p": ("p-0", "p-1")}
    assert [obj.metadata.name for obj in devices] == ["p-0", "p-1"]
    assert [info.minor for info in devices[0].spec.devices] == [0, 1, 2, 3]
    assert {name: str(amount) for name, amount in nodes[1].status.allocatable.items()} == {
        "cpu": "4",
        "memory": "8Gi",
        "pods": "110",
        "koordinator.sh/gpu": "400",
        "koordinator.sh/gpu-core": "400",
        "koordinator.sh/gpu-memory-ratio": "400",
        "koordinator.sh/gpu-memory": "192Gi",
        "nvidia.com/gpu": "4",
    }
    assert nodes[1].metadata.labels == {
        "kubernetes.io/hostname": "p-1",
        "koordinator.sh/node-pool": "p",
        "topology.kubernetes.io/zone": "b",
        "node.koordinator.sh/gpu-model": "L20",
        "node.koordinator.sh/gpu-vendor": "nvidia",
        "rack": "7",
    }


# -- pods ------------------------------------------------------------------------------------


def test_a_variant_replaces_fields_of_the_template() -> None:
    """Whole GPUs and percents replace one another; the rest is inherited; weights are followed."""
    variants = [{"weight": 3, "gpus": 2}, {"weight": 1, "cpu": "500m"}]
    stream = {
        "arrival": {"bursts": [{"count": 400}]},
        "template": {"cpu": 1, "gpuPercent": 50},
        "variants": variants,
    }
    requests = [
        {name: str(amount) for name, amount in s.pod.spec.containers[0].resources.requests.items()}
        for s in plan(stream=stream).submissions
    ]
    whole = {"cpu": "1", "nvidia.com/gpu": "2"}
    part = {
        "cpu": "500m",
        "koordinator.sh/gpu-core": "50",
        "koordinator.sh/gpu-memory-ratio": "50",
    }

    assert all(amounts in (whole, part) for amounts in requests)
    assert requests.count(whole) == pytest.approx(300, abs=30)


def test_priorities_come_from_classes() -> None:
    """There is one class per priority and patience in use, none for priority 0."""
    stream = {
        "template": {"priority": 9000},
        "variants": [{"preempts": False}, {"priority": -5}, {"priority": 0}],
    }
    classes = {
        obj.metadata.name: (obj.value, obj.preemption_policy)
        for obj in plan(stream=stream).objects
        if isinstance(obj, PriorityClass)
    }

    assert classes == {
        "priority-9000-never-preempting": (9000, "Never"),
        "priority-minus-5": (-5, "PreemptLowerPriority"),
    }


def test_pods_leave_dead_nodes_after_the_tolerated_time() -> None:
    """A toleration of the stream replaces the default one."""
    plain = plan(toleration="90s").submissions[0].pod
    own = plan(stream={"template": {"tolerations": [{"operator": "Exists"}]}}).submissions[0].pod

    assert [t.toleration_seconds for t in plain.spec.tolerations] == [90, 90]
    assert [t.toleration_seconds for t in own.spec.tolerations] == [None]


def test_a_poisson_stream_has_its_rate() -> None:
    """Arrivals are spread over the whole time and ordered."""
    made = plan(stream={"arrival": {"poisson": {"perHour": 100}}})
    times_s = np.array([s.at_s for s in made.submissions])

    assert len(times_s) == pytest.approx(2_400, rel=0.1)
    assert (np.diff(times_s) >= 0).all()
    assert np.median(times_s) == pytest.approx(43_200, rel=0.1)


def test_a_diurnal_stream_swings_between_its_rates() -> None:
    """Highest at the peak, lowest half a day away from it."""
    diurnal = {"lowPerHour": 10, "highPerHour": 400, "peakAt": "15h"}
    hours = [s.at_s / 3600 for s in plan(stream={"arrival": {"diurnal": diurnal}}).submissions]

    assert len(hours) == pytest.approx(24 * 205, rel=0.1)
    assert sum(14 <= hour < 16 for hour in hours) == pytest.approx(800, rel=0.2)
    assert sum(2 <= hour < 4 for hour in hours) < 60


def test_bursts_come_at_their_time_and_within_the_horizon() -> None:
    """Arrivals are spread evenly over ``over``, and cut at the horizon."""
    bursts = [{"count": 2, "at": "1h"}, {"count": 4, "at": "30m", "over": "4m"}]
    bursts.append({"count": 9, "at": "30h"})
    made = plan(stream={"arrival": {"bursts": bursts}})

    assert [s.at_s for s in made.submissions] == [1800, 1860, 1920, 1980, 3600, 3600]
    assert [s.pod.metadata.name for s in made.submissions][:2] == ["s-0", "s-1"]


def test_another_stream_does_not_change_this_one() -> None:
    """Chance is drawn per stream: a workload can be extended and still compared."""
    poisson = STREAM | {"arrival": {"poisson": {"perHour": 50}}}
    alone = plan(podStreams=[poisson])
    beside = plan(podStreams=[poisson | {"name": "first"}, poisson])

    times = [s.at_s for s in alone.submissions]
    assert [s.at_s for s in beside.submissions if s.kind == "s"] == times
    assert [s.at_s for s in beside.submissions if s.kind == "first"] != times


def test_another_seed_gives_other_times() -> None:
    """An equal seed gives equal times."""
    stream = {"arrival": {"poisson": {"perHour": 50}}}

    assert plan(stream=stream, seed=1) == plan(stream=stream, seed=1)
    assert plan(stream=stream, seed=1).submissions != plan(stream=stream, seed=2).submissions


# -- failures --------------------------------------------------------------------------------


def test_nodes_fail_by_themselves_and_together() -> None:
    """Single failures follow the mean time between them; an outage takes nodes side by side."""
    made = plan(
        {"count": 50},
        failures=[{"pool": "p", "mtbf": "24h", "repair": {"constant": "1h"}}],
        outages=[{"pool": "p", "at": "2h", "first": 3, "nodes": 2}],
    )
    together = [o for o in made.outages if o.at_s == 7_200]

    assert len(made.outages) == pytest.approx(50, rel=0.4)
    assert [(o.node, o.repaired_after_s) for o in together] == [("p-03", 3600), ("p-04", 3600)]


# -- the file --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodePool": []}, 'nodePool: unknown field; did you mean "nodePools"?'),
        ({"nodePools": []}, "nodePools: must have at least one pool"),
        ({"nodePools": [POOL, POOL]}, "nodePools[1].name: must be unique, got 'p' again"),
        ({"horizon": "1 day"}, "horizon: '1 day' is not a duration; must be"),
        ({"horizon": "0s"}, "horizon: must be more than 0s, got 0s"),
        ({"nodePools": [POOL | {"cpu": "many"}]}, "nodePools[0].cpu: 'many' is not a quantity"),
        (
            {"nodePools": [POOL | {"cpu": -1}]},
            "nodePools[0].cpu: must be more than 0, got -1",
        ),
        (
            {"nodePools": [POOL | {"count": 0}]},
            "nodePools[0].count: must be an integer of ",
        ),
        (
            {"nodePools": [POOL | {"name": "Not_a_name"}]},
            "nodePools[0]: gives an invalid Node: metadata.name: must be ",
        ),
        (
            {"podStreams": [STREAM | {"arrival": {}}]},
            "podStreams[0].arrival: must have at least one of poisson, diurnal, bursts",
        ),
        (
            {"podStreams": [STREAM | {"arrival": {"poisson": {"perHour": -1}}}]},
            "podStreams[0].arrival.poisson.perHour: must be a number of at least 0, got -1.0",
        ),
        (
            {"podStreams": [STREAM | {"duration": {"constant": "1h", "uniform": {}}}]},
            "podStreams[0].duration.uniform.low: is required",
        ),
        (
            {"podStreams": [STREAM | {"duration": {}}]},
            "podStreams[0].duration: must have exactly one of constant, exponential",
        ),
        (
            {"podStreams": [STREAM | {"template": {"gpus": 1, "gpuPercent": 50}}]},
            (
                "podStreams[0].template.gpuPercent: must not be set together with gpus, got 50 "
                "with gpus 1"
            ),
        ),
        (
            {"podStreams": [STREAM | {"variants": [{"gpuPercent": 120}]}]},
            "podStreams[0].variants[0].gpuPercent: must be an integer of 1..100, got 120",
        ),
        (
            {"podStreams": [STREAM | {"template": {"labels": {"a b": "c"}}}]},
            "podStreams[0]: gives an invalid Pod: metadata.labels",
        ),
        (
            {"failures": [{"pool": "q", "mtbf": "1h"}]},
            "failures[0].pool: must be one of p, got 'q'",
        ),
        (
            {"outages": [{"pool": "p", "at": "1h", "first": 1, "nodes": 2}]},
            "outages[0].nodes: must be in 0..1, the nodes of pool p, got 1..2",
        ),
    ],
)
def test_workload_errors_name_the_field(change: dict[str, Any], message: str) -> None:
    """File, field, what was found, what is accepted."""
    data = {"nodePools": [POOL], "podStreams": [STREAM]} | change

    with pytest.raises(InputError, match=re.escape(f"mine.yaml: {message}")):
        parse_workload(yaml.safe_dump(data), "mine.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [", "not valid YAML"), ("- 1", "must be an object"), ("", "must be an object")],
)
def test_a_file_that_is_no_workload_is_refused(text: str, message: str, tmp_path: Path) -> None:
    """No YAML at all, a list, nothing."""
    path = tmp_path / "w.yaml"
    path.write_text(text)

    with pytest.raises(InputError, match=f"w.yaml: .*{message}"):
        read_workload(path)


def test_the_examples_are_workloads() -> None:
    """The guide's is complete, and the shipped example is the demo's, to the byte."""
    (example,) = re.findall(
        r"^```yaml\n(# A complete example.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    demo = ROOT / "src/koordinator/simulator/data/demo.yaml"

    assert parse_workload(example, "guide").pod_streams
    assert (ROOT / "examples/ai-and-services.yaml").read_bytes() == demo.read_bytes()
    assert sum(pool.count for pool in demo_workload().node_pools) == 300
