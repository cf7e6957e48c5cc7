"""Bars over time: who held which GPU, and when."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.dashboard.dashboards import gpu_node
from tests.worlds import START_S, add, gpu_pod, world

from koordinator.api.meta import Condition, OwnerReference
from koordinator.api.pod import Pod
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator import Simulation, parse_workload
from koordinator.simulator.device_bars import LOST, BarLanes, DeviceBars
from koordinator.simulator.stages import PodStage

WORKLOAD = b"""
title: Two nodes that fail, whole GPUs and shares of them
horizon: 3h
nodePools:
- {name: gpu, count: 2, cpu: 32, memory: 256Gi, gpus: {count: 2, memory: 80Gi, model: H100}}
podStreams:
- name: train
  arrival: {poisson: {perHour: 20}}
  duration: {exponential: {mean: 20m}}
  template: {cpu: 2, memory: 16Gi}
  variants:
  - {weight: 2, gpus: 1}
  - {weight: 1, gpus: 2}
- name: share
  arrival: {poisson: {perHour: 30}}
  duration: {exponential: {mean: 15m}}
  template: {cpu: 1, memory: 1Gi}
  variants: [{gpuPercent: 50}, {gpuPercent: 25}]
failures: [{pool: gpu, mtbf: 60m, repair: {constant: 10m}}]
"""


def holding(name: str, *minors: int, namespace: str = "default", share: int = 100) -> Pod:
    """Return a pod on node a that holds so much of each of these GPUs."""
    amount = share * len(minors)
    pod = gpu_pod(name, "a", minors=minors, gpu_core=amount, gpu_memory_ratio=amount)
    return replace(pod, metadata=replace(pod.metadata, namespace=namespace))


def shown(state: ClusterState) -> list[tuple[str, int, str]]:
    """Return what is held now, as the state has it: node, minor and pod."""
    bars = DeviceBars()
    bars.update(state, START_S)
    lanes = bars.lanes()
    return [(*lanes.lanes[bar.lane], bar.pod) for bar in lanes.bars]


def test_initial_allocations_start_when_the_pod_was_bound() -> None:
    """The lanes of a node are all of its GPUs, held or not."""
    state = world(*gpu_node("a", 4), holding("p", 1, 2), holding("q", 3, share=50))
    bars = DeviceBars()
    bars.update(state, START_S + 100)
    drawn = bars.lanes()
    assert (drawn.count, drawn.lanes) == (4, (("a", 0), ("a", 1), ("a", 2), ("a", 3)))
    assert [(bar.lane, bar.pod, bar.end_s, bar.percent) for bar in drawn.bars] == [
        (1, "default/p", None, 100),
        (2, "default/p", None, 100),
        (3, "default/q", None, 50),
    ]
    assert {bar.start_s <= START_S + 100 for bar in drawn.bars} == {True}


def test_bars_of_evicted_pods_have_the_reason() -> None:
    """By the condition that an eviction leaves; one that waits again has lost its place."""
    state = world(*gpu_node("a", 4), *(holding(f"p{minor}", minor) for minor in range(4)))
    bars = DeviceBars()
    bars.update(state, START_S)
    evicted = state.pods.by_key["default/p0"]
    condition = Condition(
        type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message="for q"
    )
    evicted.renew(replace(evicted.pod, status=replace(evicted.pod.status, conditions=(condition,))))
    state.displace("default/p0")
    back = state.pods.by_key["default/p1"]
    state.displace("default/p1")
    state.put_unbound(back.key, back.pod, back.pod_class)
    state.displace("default/p2")
    bars.update(state, START_S + 60)
    ends = {bar.pod: (bar.end_s, bar.why) for bar in bars.lanes().bars}
    assert ends == {
        "default/p0": (START_S + 60, "PreemptionByScheduler: for q"),
        "default/p1": (START_S + 60, LOST),
        "default/p2": (START_S + 60, ""),
        "default/p3": (None, ""),
    }


@pytest.mark.parametrize(
    ("name", "owner", "labels", "job", "workload"),
    [
        ("train-17", "", {}, "train-17", "train"),
        ("train-17-r2", "", {}, "train-17", "train"),
        ("redis-r1", "", {}, "redis-r1", "redis-r1"),
        ("web-bcd24-x7x7x", "web-bcd24", {"pod-template-hash": "bcd24"}, "web-bcd24", "web"),
        ("etl-28739-x7x7x", "etl-28739", {}, "etl-28739", "etl"),
        ("x-0-r1", "x", {}, "x", "x"),
    ],
)
def test_pods_in_place_of_others_belong_to_the_same_job_and_workload(
    name: str, owner: str, labels: dict[str, str], job: str, workload: str
) -> None:
    """A resubmitted pod is of the job of the first one, a ReplicaSet of its Deployment."""
    pod = holding(name, 0)
    owners = (OwnerReference(name=owner, kind="Any", controller=True),) if owner else ()
    meta = replace(pod.metadata, owner_references=owners, labels=labels)
    bars = DeviceBars()
    bars.update(world(*gpu_node("a", 1), replace(pod, metadata=meta)), START_S)

    (job_bar,) = bars.lanes().jobs
    assert (job_bar.name, job_bar.workload) == (f"default/{job}", f"default/{workload}")


@pytest.mark.integration
def test_resubmitted_pods_of_a_run_are_no_workloads_of_their_own() -> None:
    """The legend of a run with failures has one entry for each stream of pods."""
    run = Simulation(parse_workload(WORKLOAD, "w.yaml"), seed=1).run()

    lanes = run.devices.lanes()
    assert any("-r1" in bar.pod for bar in lanes.bars)
    assert {job.workload for job in lanes.jobs} == {"default/train", "default/share"}


def test_others_are_bars_without_names() -> None:
    """Names, jobs, quotas and reasons of others are hidden, also from a search."""
    state = world(*gpu_node("a", 2), holding("own", 0), holding("secret", 1, namespace="red"))
    bars = DeviceBars()
    bars.update(state, START_S)
    drawn = bars.lanes(sees=lambda namespace: namespace == "default")
    assert [(bar.lane, bar.pod) for bar in drawn.bars] == [(0, "default/own"), (1, "")]
    assert "red" not in repr(drawn)
    assert bars.lanes(text="secret", sees=lambda name: name == "default").count == 0
    assert bars.lanes(text="secret").lanes == (("a", 1),)


def test_lanes_come_in_pages_and_by_name() -> None:
    objects = [obj for name in ("a", "b", "c") for obj in gpu_node(name, 2)]
    bars = DeviceBars()
    bars.update(world(*objects, holding("p", 1)), START_S)
    assert bars.lanes(first=4, most=10).lanes == (("c", 0), ("c", 1))
    assert bars.lanes(most=3).count == 6
    assert bars.lanes(text="b").lanes == (("b", 0), ("b", 1))
    assert bars.lanes(text="default/p").lanes == (("a", 1),)
    assert bars.lanes(first=99).lanes == ()


def test_the_oldest_bars_are_dropped_and_the_start_moves() -> None:
    state = world(*gpu_node("a", 1))
    bars = DeviceBars(most=3)
    for number in range(5):
        add(state, holding(f"p{number}", 0))
        bars.update(state, START_S + 10 * number)
        state.displace(f"default/p{number}")
        bars.update(state, START_S + 10 * number + 5)
    drawn = bars.lanes()
    assert [bar.pod for bar in drawn.bars] == ["default/p2", "default/p3", "default/p4"]
    assert drawn.since_s == START_S + 15


def test_another_state_or_an_earlier_time_resets_the_bars() -> None:
    """As when a user moves back in a recording."""
    bars = DeviceBars()
    bars.update(world(*gpu_node("a", 1), holding("p", 0)), START_S)
    bars.update(world(*gpu_node("a", 1), holding("q", 0)), START_S + 10)
    assert [bar.pod for bar in bars.lanes().bars] == ["default/q"]


changes = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20)


@settings(max_examples=examples(20))
@given(changes)
def test_looking_at_changes_shows_what_a_look_at_everything_does(
    written: list[tuple[int, bool]],
) -> None:
    """Pods come to their GPU and go from it in any order."""
    state = world(*gpu_node("a", 4))
    bars = DeviceBars()
    for at, (minor, looks) in enumerate(written):
        name = f"p{minor}"
        if f"default/{name}" in state.pods.by_key:
            state.displace(f"default/{name}")
        else:
            add(state, holding(name, minor))
        if looks:
            bars.update(state, START_S + at)
    bars.update(state, START_S + len(written))
    drawn = bars.lanes()
    now = [(*drawn.lanes[bar.lane], bar.pod) for bar in drawn.bars if bar.end_s is None]
    assert sorted(now) == sorted(shown(state))


@pytest.mark.integration
def test_a_run_gives_no_gpu_twice_at_any_time() -> None:
    """The shares on a GPU add up to no more than all of it; bars are as long as pods ran."""
    simulation = Simulation(parse_workload(WORKLOAD, "w"), seed=3)
    drawn: BarLanes = simulation.run().devices.lanes()
    assert len(drawn.bars) > 40
    moments: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for bar in drawn.bars:
        moments[bar.lane].append((bar.start_s, bar.percent))
        if bar.end_s is not None:
            moments[bar.lane].append((bar.end_s, -bar.percent))
    for steps in moments.values():
        allocated = 0
        for _, change in sorted(steps):  # at one moment, what ends ends first
            allocated += change
            assert allocated <= 100
    spans = {(bar.pod, bar.start_s) for bar in drawn.bars}
    ran = {
        (run.pod.key, run.bound_s)
        for run in simulation.world.history
        if run.bound_s is not None and run.stage is not PodStage.PENDING
    }
    assert ran == spans


def test_an_empty_state_has_no_lanes() -> None:
    assert DeviceBars().lanes() == BarLanes(
        first=0, count=0, since_s=None, lanes=(), jobs=(), bars=()
    )
