"""A workload from its file to the report: what is measured is true."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from tests.worlds import configuration

from koordinator.api.kubescheduler import (
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    Plugin,
    PluginArgs,
    Plugins,
    PluginSet,
)
from koordinator.api.pod import Pod
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.decoders import decode_json
from koordinator.scheduler.contract import PluginSpec, Reads, Rejections
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.simulator import (
    Simulation,
    SimulationResult,
    parse_workload,
    shipped_configuration,
    simulate,
)
from koordinator.simulator.embedded import STOCK
from koordinator.simulator.gauge import main_reason
from koordinator.simulator.run_report import RunReport
from koordinator.simulator.stages import PodStage

GPU_POOL = {
    "name": "gpu",
    "count": 2,
    "cpu": 32,
    "memory": "64Gi",
    "gpus": {"count": 2, "memory": "48Gi", "model": "L20"},
}
CPU_POOL = {"name": "cpu", "count": 2, "cpu": 8, "memory": "64Gi"}


def stream(name: str, count: int, at: str = "0s", duration: str = "", **template: Any) -> Any:
    """Return pods that come at once and work for ever, unless a duration is given."""
    made = {"name": name, "arrival": {"bursts": [{"count": count, "at": at}]}, "template": template}
    return made | ({"duration": {"constant": duration}} if duration else {})


def run(*streams: Any, until: str = "1h", **more: Any) -> SimulationResult:
    data = {"nodePools": [GPU_POOL, CPU_POOL], "podStreams": list(streams), "horizon": until}
    workload = parse_workload(yaml.safe_dump(data | more), "test")
    return Simulation(workload, stopwatch=VirtualClock()).run()


def test_allocation_is_measured_per_pool() -> None:
    """Shares of GPUs count as shares; a pod counts where it is, and no longer than it is there."""
    result = run(
        stream("whole", 1, gpus=1, cpu=1),
        stream("part", 1, gpuPercent=50, cpu=1),
        stream("web", 4, duration="30m", cpu=2, nodeSelector={"koordinator.sh/node-pool": "cpu"}),
        sampleEvery="10m",
    )
    samples = result.report.samples

    assert samples.time_s == (0, 600, 1200, 1800, 2400, 3000, 3600)
    assert samples.allocated["gpu"].gpu == (0.375,) * 7
    assert samples.allocated["gpu"].cpu == (2 / 64,) * 7
    assert samples.allocated["cpu"].cpu == (0.5, 0.5, 0.5, 0, 0, 0, 0)
    assert samples.pods_running == (6, 6, 6, 2, 2, 2, 2)
    assert samples.pods_finished[-1] == 4


def test_a_shared_gpu_is_filled_before_the_next_one() -> None:
    """The devices are allocated, not only counted: ten pods of 20 % take two GPUs."""
    result = run(stream("part", 10, gpuPercent=20, cpu=1))
    devices = {
        (pod.spec.node_name, pod.metadata.annotations["scheduling.koordinator.sh/device-allocated"])
        for pod in result.cluster.list(Pod).items
    }

    assert len(devices) == 2


def test_fragmentation_counts_the_pods_of_the_workload() -> None:
    """The free part of a GPU fits pods of 40 % at first, and none later."""
    one_gpu = GPU_POOL | {"count": 1, "gpus": {"count": 1, "memory": "48Gi"}}
    result = run(
        stream("first", 1, gpuPercent=40, cpu=1),
        stream("second", 1, at="30m", gpuPercent=40, cpu=1),
        stream("third", 1, at="45m", gpuPercent=20, cpu=1),
        nodePools=[one_gpu],
        sampleEvery="20m",
    )

    # 60 % are left, then 20 %, which suit one pod in three, then nothing
    assert result.report.samples.gpu_fragmentation == (0.0, 0.0, pytest.approx(2 / 3), None)


def test_pending_pods_are_counted_by_the_reason_that_can_pass() -> None:
    """Nodes that can never take the pod don't explain why it waits."""
    result = run(
        stream("gpu", 6, gpus=1, cpu=1, nodeSelector={"node.koordinator.sh/gpu-model": "L20"}),
        stream("cpu", 1, cpu=64),
    )

    assert {k: v[0] for k, v in result.report.samples.pending_by_reason.items()} == {
        "Insufficient nvidia.com/gpu": 2,
        "Insufficient cpu": 1,
    }


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "0/9 nodes are available: 2 Insufficient cpu, 7 Insufficient memory.",
            "Insufficient memory",
        ),
        (
            "0/9 nodes are available: 1 Too many pods, 8 node(s) didn't match. preemption: 9 no.",
            "Too many pods",
        ),
        (
            "0/9 nodes are available: 9 node(s) had untolerated taint(s).",
            "node(s) had untolerated taint(s)",
        ),
        ("invalid resource unit koordinator.sh/gpu-core: 150", None),
    ],
)
def test_the_main_reason_is_read_from_the_condition(message: str, reason: str | None) -> None:
    """A message that is no list of reasons is the reason."""
    assert main_reason(message) == (reason or message)


def test_the_same_seed_gives_the_same_run_and_another_one_does_not() -> None:
    """Everything but the measured time of the scheduler is the same."""
    random = {
        "name": "s",
        "arrival": {"poisson": {"perHour": 120}},
        "duration": {"exponential": {"mean": "20m"}},
        "template": {"cpu": 2, "gpuPercent": 30},
    }
    first, again = run(random, seed=5), run(random, seed=5)
    other = run(random, seed=6)

    assert first.report == again.report
    assert first.placements == again.placements
    assert first.placements != other.placements


def test_placements_have_the_outcome_of_each_pod() -> None:
    """A pod that never got a node has a reason."""
    result = run(stream("ok", 1, cpu=1, duration="10m"), stream("big", 1, cpu=64))
    ok, big = result.placements

    assert (ok.pod, ok.submitted_s, ok.bound_s, ok.ended_s) == ("default/ok-0", 0, 0, 600)
    assert ok.stage is PodStage.FINISHED
    assert (big.node, big.bound_s, big.stage) == ("", None, PodStage.PENDING)
    assert big.message.startswith("0/4 nodes are available: 4 Insufficient cpu.")


def test_a_run_can_be_watched_and_cut_short(tmp_path: Path) -> None:
    """The callback follows each sample, ``until_s`` replaces the horizon, a file name is enough."""
    path = tmp_path / "w.yaml"
    data = {"nodePools": [CPU_POOL], "podStreams": [stream("a", 1, cpu=1)], "sampleEvery": "1m"}
    path.write_text(yaml.safe_dump(data))
    calls: list[None] = []

    result = simulate(path, until=150, on_sample=lambda: calls.append(None))

    assert result.report.samples.time_s == (0, 60, 120, 150)
    assert len(calls) == 4


def test_another_configuration_can_be_tried() -> None:
    """The tried configuration is kube-scheduler's, which spreads where the default packs."""
    pods = stream("s", 2, gpus=1, cpu=1)
    workload = parse_workload(
        yaml.safe_dump({"nodePools": [GPU_POOL], "podStreams": [pods], "horizon": "1m"}), "test"
    )
    used = [
        len({placement.node for placement in simulate(workload, config).placements})
        for config in (None, configuration())
    ]

    assert used == [1, 2]


def test_a_profile_of_another_name_gets_the_pods_that_name_none() -> None:
    """Any workload can be run with the configuration that the chart installs."""
    workload = parse_workload(
        yaml.safe_dump(
            {"nodePools": [CPU_POOL], "podStreams": [stream("s", 2, cpu=1)], "horizon": "1m"}
        ),
        "test",
    )

    placements = simulate(workload, shipped_configuration()).placements

    assert all(placement.node for placement in placements)


def test_a_plugin_of_ones_own_is_simulated() -> None:
    """The plugin decides in virtual time as on a cluster."""
    pods = stream("s", 2, cpu=1)
    workload = parse_workload(
        yaml.safe_dump({"nodePools": [GPU_POOL], "podStreams": [pods], "horizon": "1m"}), "test"
    )
    refusing = PluginSpec("Refusing", PluginArgs, build_refusing)
    profile = KubeSchedulerProfile(
        scheduler_name="default-scheduler",
        plugins=Plugins(filter=PluginSet(enabled=(Plugin(name="Refusing"),))),
    )
    config = KubeSchedulerConfiguration(profiles=(profile,))

    result = simulate(workload, config, plugins=[refusing])

    assert {placement.node for placement in result.placements} == {""}


class Refusing:
    reads = Reads.NODE

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections.where(np.ones(len(snapshot), bool), "no")


def build_refusing(_args: PluginArgs, _axis: ResourceAxis) -> Refusing:
    return Refusing()


def test_a_report_survives_its_journey_as_json() -> None:
    """The output of ``-o json`` can be read back."""
    report = run(stream("a", 1, cpu=1)).report

    assert decode_json(msgspec.json.encode(report), RunReport) == report


def test_a_pod_may_have_to_go_in_the_moment_in_which_it_gets_its_node() -> None:
    """The pod never ran; its owner submits it again."""
    gangs = stream("gang", 1, gpus=2, cpu=2, members=2, priority=100) | {
        "arrival": {"poisson": {"perHour": 2}},
        "duration": {"exponential": {"mean": "30m"}},
    }
    shares = stream("share", 1, gpuPercent=30, cpu=1) | {
        "arrival": {"poisson": {"perHour": 12}},
        "duration": {"exponential": {"mean": "50m"}},
    }
    outages = [{"pool": "gpu", "mtbf": "3h", "repair": {"constant": "3m"}}]
    result = run(gangs, shares, until="6h", failures=outages, seed=1, sampleEvery="3h")

    lost = [each for each in result.placements if each.stage is PodStage.LOST]
    assert any(each.bound_s is None and each.ended_s is not None for each in lost)
    assert any("made room for default/gang-" in event.text for event in result.report.events)


def test_gpus_count_where_a_profile_assigns_no_devices() -> None:
    """By the requests of running pods, as kube-scheduler counts."""
    data = {
        "nodePools": [GPU_POOL, CPU_POOL],
        "podStreams": [stream("train", 1, cpu=1, gpus=1), stream("large", 1, cpu=1, gpus=2)],
        "horizon": "1h",
    }
    workload = parse_workload(yaml.safe_dump(data), "test")

    result = Simulation(workload, STOCK, stopwatch=VirtualClock()).run()

    assert result.report.samples.allocated["gpu"].gpu[-1] == 3 / 4
