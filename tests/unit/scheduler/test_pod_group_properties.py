"""Invariants of PodGroups of scheduling.k8s.io in random worlds."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.test_gangs import placed
from tests.unit.scheduler.test_scheduling_pod_groups import PROFILES, member, pod_group
from tests.unit.scheduler.test_topology_placements import ON, RACK
from tests.worlds import START_S, embedded, node, pod

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

GROUPS = ("g", "h")
NODES = [
    node(f"r{at % 2}{at}", cpu, labels={RACK: f"r{at % 2}"}) for at, cpu in enumerate((4, 6, 8))
]


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    least = {name: draw(st.integers(1, 4)) for name in GROUPS}
    near = {name: draw(st.booleans()) for name in GROUPS}
    whole = {name: draw(st.booleans()) for name in GROUPS}
    kinds = st.sampled_from(["member", "group", "node", "other", "delete", "time"])
    events = draw(
        st.lists(
            st.tuples(kinds, st.sampled_from(GROUPS), st.integers(1, 4), st.booleans()),
            min_size=4,
            max_size=16,
        )
    )
    return {"least": least, "near": near, "whole": whole, "events": events}


def group(name: str, world: dict[str, Any]) -> Any:
    spec: dict[str, Any] = {
        "disruptionMode": {"all": {}} if world["whole"][name] else {"single": {}}
    }
    if world["near"][name]:
        spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
    return pod_group(name, world["least"][name], **spec)


def happen(one: Embedded, number: int, world: dict[str, Any], event: Any) -> None:
    kind, name, amount, flag = event
    if kind == "member":
        one.load([member(f"{name}{number}", name, cpu=amount)])
    elif kind == "group":
        known = {g.metadata.name for g in one.cluster.list(type(group(name, world))).items}
        if name not in known:
            one.load([group(name, world)])
    elif kind == "node":
        free = [n for n in NODES if n.metadata.name not in names(one, Node)]
        one.load(free[:1])
    elif kind == "other":
        one.load([pod(f"x{number}", amount, priority=9 if flag else 0)])
    elif kind == "delete":
        for pod_name in sorted(names(one, Pod))[:1]:
            one.cluster.delete(Pod, pod_name, "default")


def names(one: Embedded, kind: Any) -> set[str]:
    return {obj.metadata.name for obj in one.cluster.list(kind).items}


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES, ids=["GangScheduling", "Coscheduling"])
@settings(max_examples=examples(25))
@given(world=worlds())
def test_groups_start_whole_and_in_one_rack(profile: Any, world: dict[str, Any]) -> None:
    """No group starts with fewer members than required, and none spans racks."""
    one = embedded(NODES[0], config=profile, gates=ON)
    started: set[str] = set()
    for number, event in enumerate(world["events"]):
        before = placed(one)
        happen(one, number, world, event)
        one.clock.advance_to(START_S + 40 * number)
        one.run_to_fixed_point()
        one.scheduler.validate()
        now = placed(one)
        racks: defaultdict[str, set[str]] = defaultdict(set)
        count: defaultdict[str, int] = defaultdict(int)
        for name, on in now.items():
            if name[0] in GROUPS:
                racks[name[0]].add(on[:2])
                count[name[0]] += 1
        for name in GROUPS:
            fresh = {key for key in now if key[0] == name} - before.keys()
            if fresh and name not in started:
                assert count[name] >= world["least"][name]
                started.add(name)
            if not count[name]:
                started.discard(name)
            if world["near"][name]:
                assert len(racks[name]) <= 1
