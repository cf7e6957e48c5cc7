"""A rack of GPU servers loses power while training runs, seen from the outside."""

import pytest

from koordinator.api.node import Node
from koordinator.foundation.clock import VirtualClock
from koordinator.simulator import Simulation, parse_workload
from koordinator.simulator.results import SimulationResult
from koordinator.simulator.run_report import KindTotals
from koordinator.simulator.stages import PodStage

STORY = """
title: a power cut
horizon: 8h
sampleEvery: 1m
toleration: 2m
nodePools:
- {name: gpu, count: 4, cpu: 64, memory: 256Gi, gpus: {count: 4, memory: 80Gi}}
podStreams:
- name: training
  arrival: {bursts: [{count: 8}]}
  duration: {constant: 3h}
  template: {cpu: 8, memory: 32Gi, gpus: 2}
- name: service
  arrival: {bursts: [{count: 4}]}
  resubmit: {limit: 1, after: 1m}
  template: {cpu: 4, memory: 8Gi, spread: [{topologyKey: kubernetes.io/hostname}]}
outages:
- {pool: gpu, at: 1h, nodes: 2, repair: {constant: 1h}}
"""


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return Simulation(parse_workload(STORY, "story"), stopwatch=VirtualClock()).run()


def totals(result: SimulationResult, kind: str) -> KindTotals:
    return next(totals for totals in result.report.kinds if totals.kind == kind)


def test_lost_training_is_submitted_again_and_finishes(result: SimulationResult) -> None:
    """Every GPU was taken: the lost pods wait for the repair, then do their work from the start."""
    training = totals(result, "training")

    assert (training.failed, training.resubmitted, training.finished) == (4, 4, 8)
    again = [p for p in result.placements if p.pod.endswith("-r1") and p.kind == "training"]
    assert [(p.submitted_s, p.bound_s, p.ended_s) for p in again] == [
        (3_600 + 50 + 120 + 10, 7_200, 7_200 + 3 * 3_600)
    ] * 4


def test_services_move_to_the_nodes_that_are_left(result: SimulationResult) -> None:
    """Services without GPUs run again a minute after their eviction."""
    lost = [p for p in result.placements if p.kind == "service" and p.stage is PodStage.LOST]
    again = [p for p in result.placements if p.kind == "service" and p.pod.endswith("-r1")]

    assert {p.node for p in lost} == {"gpu-0", "gpu-1"}
    assert {p.node for p in again} == {"gpu-2", "gpu-3"}
    assert [p.bound_s for p in again] == [3_600 + 50 + 120 + 60] * len(lost)


def test_the_report_shows_the_cut(result: SimulationResult) -> None:
    """Half of the GPUs are given away during the outage; four pods wait with a reason."""
    report = result.report
    at = {time_s: row for row, time_s in enumerate(report.samples.time_s)}
    gpu = report.samples.allocated["gpu"].gpu

    assert report.node_failures == 2
    assert (gpu[at[3_540]], gpu[at[5_400]], gpu[at[7_200]]) == (1.0, 0.5, 1.0)
    assert report.samples.pods_pending[at[5_400]] == 4
    reason = next(iter(report.samples.pending_by_reason))
    assert reason == "Insufficient nvidia.com/gpu"


def test_afterwards_the_cluster_is_as_before(result: SimulationResult) -> None:
    """No taint is left, every node is ready."""
    for node in result.cluster.list(Node).items:
        assert not node.spec.taints
        assert [c.status for c in node.status.conditions if c.type == "Ready"] == ["True"]
