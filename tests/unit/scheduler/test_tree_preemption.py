"""Preemption for trees of PodGroups with topology constraints below their topmost group.

Source of the rules: kubernetes 1.37.2 pkg/scheduler/framework/preemption/podgrouppreemption.go.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.test_composite_pod_groups import (
    EITHER,
    composite,
    group_condition,
    leaf,
    members,
    world,
)
from tests.unit.scheduler.test_gangs import placed
from tests.unit.scheduler.test_scheduling_pod_groups import member, pod_group
from tests.unit.scheduler.test_topology_placements import RACK
from tests.unit.scheduler.watches import events, run_until
from tests.worlds import budget, node, pod

from koordinator.api.meta import KubeObject
from koordinator.scheduler.features.gangs import topology_preemption
from koordinator.simulator import Embedded

IN_RACK: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": RACK}]}}


def tree(least: int, *names: str, size: int = 2) -> list[KubeObject]:
    """Return a tree of groups that must each be in one rack, without its pods."""
    groups = [leaf(name, size, "job", **IN_RACK) for name in names]
    return [composite("job", least, priority=9), *groups]


def pods_of(*names: str, size: int = 2, **more: Any) -> list[KubeObject]:
    spec = {"cpu": 2, "priority": 9, **more}
    return [one for name in names for one in members(name, size, **spec)]


def rack(name: str, *cpus: int) -> list[KubeObject]:
    return [node(f"{name}{at}", cpu, labels={RACK: name}) for at, cpu in enumerate(cpus)]


def low(name: str, on: str, cpu: int = 2, **more: Any) -> KubeObject:
    return pod(name, cpu, nodeName=on, **{"priority": 0} | more)


def racks_of(one: Embedded, group: str) -> set[str]:
    return {on[0] for name, on in placed(one).items() if name.startswith(group)}


@EITHER
def test_each_group_gets_a_rack_of_its_own(profile: Any) -> None:
    """Rack x is free; of y two pods go; no pod of z, which is too small."""
    nodes = [*rack("x", 2, 2), *rack("y", 2, 2), *rack("z", 2)]
    running = [low("v0", "y0"), low("v1", "y1"), low("v2", "z0")]
    one = world(*nodes, *running, *tree(2, "a", "b"), *pods_of("a", "b"), profile=profile)
    run_until(one)

    assert racks_of(one, "a") | racks_of(one, "b") == {"x", "y"}
    assert [len(racks_of(one, name)) for name in "ab"] == [1, 1]
    assert "v2" in placed(one)
    assert [group_condition(one, name) for name in "ab"] == [("True", ""), ("True", "")]


@EITHER
def test_no_eviction_for_a_tree_that_fits_no_racks(profile: Any) -> None:
    """Four nodes are enough, but no rack takes two members of a group."""
    nodes = [*rack("x", 2), *rack("y", 2), *rack("z", 2), *rack("w", 2)]
    running = [low(f"v{at}", f"{name}0") for at, name in enumerate("xyzw")]
    one = world(*nodes, *running, *tree(2, "a", "b"), *pods_of("a", "b"), profile=profile)
    run_until(one)

    assert set(placed(one)) == {"v0", "v1", "v2", "v3"}


def test_as_few_as_possible_go() -> None:
    """Pods come back while there is room, the most important first."""
    nodes = [*rack("x", 4, 4)]
    running = [
        low("v0", "x0", 2, priority=5),
        low("v1", "x0", 2),
        low("v2", "x1", 2),
        low("kept", "x1", 2, labels={"app": "kept"}),
    ]
    objects = [*nodes, *running, budget("b", 0, app="kept"), *tree(1, "a")]
    one = world(*objects, *pods_of("a"))
    run_until(one)

    assert set(placed(one)) == {"v0", "kept", "a0", "a1"}


@pytest.mark.parametrize("depends", [False, True])
def test_members_that_depend_on_other_nodes_may_be_too_many(
    monkeypatch: pytest.MonkeyPatch, *, depends: bool
) -> None:
    """Each pod that comes back would have all of them checked; others are checked on its node."""
    monkeypatch.setattr(topology_preemption, "MOST_CHECKS", 7)
    spread = {
        "maxSkew": 9,
        "topologyKey": RACK,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    more: dict[str, Any] = {"topologySpreadConstraints": [spread]} if depends else {}
    running = [low(f"v{at}", f"x{at}", 1) for at in range(4)]
    one = world(*rack("x", 2, 2, 2, 2), *running, *tree(1, "a"), *pods_of("a", **more))
    run_until(one)

    assert {"a0", "a1"}.isdisjoint(placed(one)) is depends


def test_an_important_pod_and_one_of_the_tree_stay() -> None:
    """The tree has a member already; a pod of its priority is no victim."""
    nodes = [*rack("x", 2, 2), *rack("y", 2, 2)]
    first = member("a0", "a", cpu=2, priority=9, nodeName="x0")
    running = [low("peer", "x1", priority=9), low("v0", "y0"), low("v1", "y1")]
    rest = pods_of("b")
    one = world(*nodes, *running, *tree(2, "a", "b", size=1), first, *rest[:1])
    run_until(one)

    assert {"a0", "peer", "b0"} <= set(placed(one))
    assert len({"v0", "v1"} & set(placed(one))) == 1


def test_a_gang_goes_as_a_whole() -> None:
    """One member of the gang has to go, so the other one goes, too."""
    nodes = [*rack("x", 2, 2), *rack("y", 2)]
    gang = pod_group("g", 2, disruptionMode={"all": {}})
    running = [member("g0", "g", cpu=2, nodeName="x0"), member("g1", "g", cpu=2, nodeName="y0")]
    one = world(*nodes, gang, *running, *tree(1, "a"), *pods_of("a"))
    run_until(one)

    assert {"a0", "a1"} <= set(placed(one))
    assert not {"g0", "g1"} & set(placed(one))
    assert ("Normal", "Preempted") in [event[:2] for event in events(one, "g1")]


def test_members_that_never_preempt_wait() -> None:
    nodes = [*rack("x", 2, 2)]
    running = [low("v0", "x0"), low("v1", "x1")]
    pods = pods_of("a", preemptionPolicy="Never")
    one = world(*nodes, *running, *tree(1, "a"), *pods)
    run_until(one)

    assert set(placed(one)) == {"v0", "v1"}


CPUS = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@settings(max_examples=examples(25), deadline=None)
@given(
    racks=st.lists(CPUS, min_size=1, max_size=3),
    fill=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3), st.integers(0, 12)), max_size=6),
    least=st.integers(1, 2),
)
def test_preemption_evicts_only_for_groups_that_start(
    racks: list[list[int]], fill: list[tuple[int, int, int]], least: int
) -> None:
    """Important pods stay; if any pod goes, enough groups start, each in one rack."""
    nodes = [one for at, cpus in enumerate(racks) for one in rack("xyz"[at], *cpus)]
    names = [one.metadata.name for one in nodes]
    left = dict(zip(names, [cpu for cpus in racks for cpu in cpus], strict=True))
    running = []
    for number, (place, cpu, priority) in enumerate(fill):
        name = names[place % len(names)]
        if left[name] >= cpu:
            left[name] -= cpu
            running.append(low(f"v{number}", name, cpu, priority=priority))
    one = world(*nodes, *running, *tree(least, "a", "b"), *pods_of("a", "b"))
    run_until(one)
    run_until(one, 40)

    there = placed(one)
    preempted = {one.metadata.name for one in running if one.metadata.name not in there}
    assert preempted <= {f"v{at}" for at, (_, _, priority) in enumerate(fill) if priority < 9}
    started = [name for name in "ab" if racks_of(one, name)]
    assert all(len(racks_of(one, name)) == 1 for name in started)
    assert len(started) >= least or not started
    assert all(sum(member.startswith(name) for member in there) == 2 for name in started)
    assert started or not preempted
