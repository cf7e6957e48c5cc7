"""Overview of a cluster: nodes as columns, pending pods by cause."""

import json
from contextlib import suppress

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.dashboard.dashboards import HOSTILE, NOW, crowded, gpu_node, overview, settled
from tests.worlds import START_S, device, embedded, gpu_pod, metric, node, pod

from koordinator.api.meta import Condition
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.dashboard.frames import by_cause
from koordinator.dashboard.node_facts import NodeHealth
from koordinator.dashboard.overview import COLUMNS, UNKNOWN, ClusterOverview, OverviewBuilder
from koordinator.dashboard.sources import SourcePhase, SourceStatus
from koordinator.dashboard.timeline import Timeline
from koordinator.dashboard.waiting_pods import UNTRIED, WaitingPods
from koordinator.foundation.errors import AlreadyExistsError, NotFoundError
from koordinator.simulator.gauge import waiting_cause


def column(cluster_overview: ClusterOverview, name: str) -> list[int]:
    return [int(value) for value in cluster_overview.nodes.values[:, COLUMNS.index(name)]]


def test_nodes_are_sorted_by_name_with_shares_in_thousandths() -> None:
    result = overview(settled(node("b", cpu=4), node("a", cpu=8), pod("p", cpu=2, on="a")))

    assert [one.name for one in result.nodes.facts] == ["a", "b"]
    assert column(result, "cpu") == [250, 0]
    assert column(result, "pods") == [1, 0]
    assert column(result, "gpu") == [UNKNOWN, UNKNOWN]
    assert result.totals.cpu == (2000, 12000)


def test_partially_used_gpus_are_holes_and_unused_ones_free() -> None:
    """Of four GPUs one is used, one half used: half of one is a hole, two are free."""
    world = settled(
        *gpu_node("g", 4),
        gpu_pod("whole", "g", minors=[0], gpu_core=100, gpu_memory_ratio=100),
        gpu_pod("half", "g", minors=[1], gpu_core=50, gpu_memory_ratio=50),
    )
    result = overview(world)

    assert column(result, "gpu") == [375]
    assert column(result, "holes") == [125]
    assert column(result, "freeGpus") == [2]
    assert result.nodes.facts[0].gpus == 4


def test_worst_condition_is_the_state_of_a_node() -> None:
    """Not ready is worse than an unhealthy device, which is worse than cordoned."""
    shut = node("down", unschedulable=True)
    down = replace(
        shut, status=replace(shut.status, conditions=(Condition(type="Ready", status="False"),))
    )
    broken = [node("broken", cpu=8), device("broken", gpus=2, unhealthy=[1])]
    result = overview(settled(node("ok"), node("shut", unschedulable=True), down, *broken))

    names = [one.name for one in result.nodes.facts]
    assert dict(zip(names, column(result, "state"), strict=True)) == {
        "broken": NodeHealth.UNHEALTHY_DEVICE,
        "down": NodeHealth.NOT_READY,
        "ok": NodeHealth.READY,
        "shut": NodeHealth.CORDONED,
    }


def test_load_comes_from_the_node_metric() -> None:
    result = overview(settled(node("a", cpu=8), node("b", cpu=8), metric("a", cpu="2")))

    assert column(result, "load") == [250, UNKNOWN]


def test_pending_pods_are_grouped_by_cause_longest_waiting_first() -> None:
    (cause,) = by_cause(overview(settled(*crowded())).waiting, {})

    assert cause.cause == "too little cpu is free"
    assert cause.pods == 4
    assert cause.namespaces == ["blue", "red"]
    assert [one.pod for one in cause.named][:2] == ["blue/waits-0", "blue/waits-1"]


def test_pod_without_profile_has_its_scheduler_name_as_cause() -> None:
    result = overview(settled(node("a"), pod("lost", schedulerName=HOSTILE)))

    assert HOSTILE in result.waiting[0].cause
    assert result.waiting[0].position == 0


def test_timeline_is_bounded_and_cut_by_an_earlier_time() -> None:
    base = overview(settled(*crowded()))
    timeline = Timeline(most=10)
    for second in range(1000):
        status = SourceStatus(phase=SourcePhase.LIVE, now_s=START_S + second)
        timeline.add(ClusterOverview(status, base.nodes, base.totals, base.waiting))
    assert len(timeline) <= 10
    status = SourceStatus(phase=SourcePhase.LIVE, now_s=START_S + 500)
    timeline.add(ClusterOverview(status, base.nodes, base.totals, base.waiting))

    data = timeline.as_data()
    assert data["atS"] == sorted(data["atS"])
    assert max(data["atS"]) == START_S + 500
    assert set(data["causes"]) == {"too little cpu is free"}


def test_causes_that_differ_in_names_and_numbers_are_one_curve() -> None:
    """A cause without similar ones keeps its words."""
    base = overview(settled(*crowded()))
    first = base.waiting[0]
    causes = [f"its gang red/job-{n} starts with 4 members, and there are {n}" for n in range(3)]
    causes.append("too little cpu is free")
    timeline = Timeline()
    waiting = WaitingPods.of(
        [replace(first, cause=cause) for cause in causes], np.arange(len(causes))
    )
    timeline.add(ClusterOverview(base.status, base.nodes, base.totals, waiting))
    assert timeline.as_data()["causes"] == {
        "its gang … starts with … members, and there are …": [3],
        "too little cpu is free": [1],
    }


def test_gang_members_have_the_cause_of_the_tried_member() -> None:
    base = overview(settled(*crowded())).waiting[0]
    tried = replace(base, gang="red/ring", attempts=1, cause="too little cpu is free")
    others = [
        replace(tried, name=f"other-{n}", attempts=0, cause=UNTRIED, plugin="") for n in range(3)
    ]
    result = WaitingPods.of([*others, tried], np.arange(4))
    assert {one.cause for one in result} == {"too little cpu is free"}
    assert list(result.by_cause) == ["too little cpu is free"]


def test_room_in_the_network_does_not_split_causes() -> None:
    tried = "no candidate topology nodes can accommodate job, it has; best was {} with room for {}"
    causes = {
        waiting_cause(tried.format(where, many))
        for where, many in (("Spine/s0", "7 of 12"), ("Spine/s1", "0 of 4"))
    }
    assert causes == {"no network domain has room for its gang"}


def test_linked_gpus_are_the_largest_free_partition() -> None:
    """A partition with a used GPU does not count; without partitions the number is unknown."""
    report = device("a", gpus=4)
    table = {
        "4": [{"minors": [0, 1, 2, 3], "allocationScore": 1}],
        "2": [{"minors": pair, "allocationScore": 1} for pair in ([0, 1], [2, 3])],
    }
    note = {"scheduling.koordinator.sh/gpu-partitions": json.dumps(table)}
    linked = replace(report, metadata=replace(report.metadata, annotations=note))
    taken = gpu_pod("p", "a", minors=[3], gpu_core=100, gpu_memory_ratio=100)

    for pods, most in (([], 4), ([taken], 2)):
        world = settled(*gpu_node("a", 4)[:1], linked, *gpu_node("b", 4), *pods)
        assert column(overview(world), "linkedGpus") == [most, UNKNOWN]


STEPS = st.lists(
    st.tuples(st.sampled_from(("add", "end", "node", "remove", "wait")), st.integers(0, 5)),
    max_size=8,
)


@settings(max_examples=examples(25))
@given(STEPS)
def test_cached_overview_equals_a_fresh_one(steps: list[tuple[str, int]]) -> None:
    """The property holds after any sequence of events."""
    world = embedded(node("n0", cpu=4), *(pod(f"p{n}", cpu=3) for n in range(3)))
    handle = world.scheduler.handle
    builder = OverviewBuilder(handle)
    for what, n in steps:
        world.run_to_fixed_point()
        builder.build(NOW)
        with suppress(NotFoundError, AlreadyExistsError):
            if what == "add":
                world.load([pod(f"p{n}", cpu=2 + n, priority=n)])
            elif what == "end":
                world.cluster.delete(Pod, f"p{n}", "default", grace_period_s=0)
            elif what == "node":
                world.load([node(f"n{n}", cpu=2)])
            elif what == "remove":
                world.cluster.delete(Node, f"n{n}")
            else:
                world.clock.advance_to(world.clock.now_s() + 60 * n)
        world.scheduler.step()
        fresh, cached = OverviewBuilder(handle).build(NOW), builder.build(NOW)
        assert list(cached.waiting) == list(fresh.waiting)
        assert cached.nodes.values.tolist() == fresh.nodes.values.tolist()
