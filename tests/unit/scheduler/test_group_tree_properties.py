"""Invariants of trees of PodGroups in random worlds."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.test_composite_pod_groups import ON, PROFILES, composite, leaf
from tests.unit.scheduler.test_gangs import placed
from tests.unit.scheduler.test_scheduling_pod_groups import member
from tests.unit.scheduler.test_topology_placements import RACK
from tests.worlds import START_S, embedded, node, pod

from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

LEAVES = {"a": "job", "b": "r0", "c": "r0", "d": "r1", "e": "r1"}
COMPOSITES = {"job": "", "r0": "job", "r1": "job"}


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """Draw minimums and constraints of a tree of three composites, and pods that come and go."""
    kinds = st.sampled_from(["member", "member", "member", "node", "other", "delete"])
    names = st.sampled_from(sorted(LEAVES))
    return {
        "least": {name: draw(st.integers(0, 2)) for name in (*LEAVES, *COMPOSITES)},
        "near": {name: draw(st.booleans()) for name in COMPOSITES},
        "cpus": [draw(st.integers(1, 5)) for _ in range(2)],
        "events": draw(
            st.lists(st.tuples(kinds, names, st.integers(1, 3)), min_size=6, max_size=20)
        ),
    }


def racked(at: int, cpu: int) -> Any:
    return node(f"r{at % 2}n{at}", cpu, labels={RACK: f"r{at % 2}"})


def objects(tree: dict[str, Any]) -> list[Any]:
    rack: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    least, near = tree["least"], tree["near"]
    composites = [
        composite(name, least[name], parent, **(rack if near[name] else {}))
        for name, parent in COMPOSITES.items()
    ]
    return composites + [leaf(name, least[name], parent) for name, parent in LEAVES.items()]


def is_met(tree: dict[str, Any], name: str, count: Counter[str]) -> bool:
    """Return whether a group has enough members with nodes, by its definition."""
    least = max(tree["least"][name], 1)
    if name in LEAVES:
        return count[name] >= least
    children = [child for child, parent in (*LEAVES.items(), *COMPOSITES.items()) if parent == name]
    return sum(is_met(tree, child, count) for child in children) >= least


def check_start(tree: dict[str, Any], before: set[str], now: set[str]) -> None:
    """Check that groups with new members have enough of them, and so have all above."""
    count = Counter(name[0] for name in now if name[0] in LEAVES)
    for fresh in {name[0] for name in now - before if name[0] in LEAVES}:
        above = fresh
        while above:
            assert is_met(tree, above, count), (above, count)
            above = LEAVES.get(above) or COMPOSITES.get(above, "")


def check_racks(tree: dict[str, Any], where: dict[str, str]) -> None:
    """Check that all pods below a group with a constraint are in one rack."""
    for name in (one for one, near in tree["near"].items() if near):
        below = {one for one, parent in LEAVES.items() if name in (parent, COMPOSITES[parent])}
        assert len({on[:2] for key, on in where.items() if key[0] in below}) <= 1


def happen(one: Embedded, number: int, event: tuple[str, str, int]) -> None:
    kind, name, amount = event
    if kind == "member":
        one.load([member(f"{name}{number}", name, cpu=amount)])
    elif kind == "node":
        one.load([racked(number + 2, amount)])
    elif kind == "other":
        one.load([pod(f"x{number}", amount)])
    else:
        for key in sorted(it.metadata.name for it in one.cluster.list(Pod).items)[:1]:
            one.cluster.delete(Pod, key, "default")


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES, ids=["GangScheduling", "Coscheduling"])
@settings(max_examples=examples(15))
@given(tree=trees())
@pytest.mark.integration
def test_every_level_of_a_tree_starts_whole_and_in_its_domain(
    profile: Any, tree: dict[str, Any]
) -> None:
    """No member gets a node unless its PodGroup and every group above have enough."""
    nodes = [racked(at, cpu) for at, cpu in enumerate(tree["cpus"])]
    one = embedded(*nodes, *objects(tree), config=profile, gates=ON)
    for number, event in enumerate(tree["events"]):
        happen(one, number, event)
        before = set(placed(one))
        one.clock.advance_to(START_S + 40 * number)
        one.run_to_fixed_point()
        one.scheduler.validate()
        check_start(tree, before, set(placed(one)))
        check_racks(tree, placed(one))
