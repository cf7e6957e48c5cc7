"""Nodes that a job takes: the original's example, its decisions, and where we differ."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.topology_reference import cluster, place

from koordinator.domain.network import (
    DomainLayer,
    DomainPlan,
    GatherRules,
    NetworkTree,
    OfferSlots,
    plan,
)

HALLS = DomainLayer("HallLayer", ("hall",)), DomainLayer("RackLayer", ("rack",))
HALL, RACK, NODE = 1, 2, 3

PATHS = {f"h{number}": (f"p{(number + 3) // 4}", f"r{(number + 1) // 2}") for number in range(1, 9)}
SLOTS = dict(zip(PATHS, (2, 1, 3, 2, 2, 4, 0, 1), strict=True))


def tree_of(paths: Mapping[str, Sequence[str]]) -> NetworkTree:
    tree = NetworkTree(HALLS)
    for row, (node, (hall, rack)) in enumerate(paths.items()):
        tree.put(row, node, {"hall": hall, "rack": rack})
    return tree


def numbers(paths: Mapping[str, Sequence[str]], of: Mapping[str, int]) -> np.ndarray:
    return np.array([of.get(node, 0) for node in paths], np.int64)


def shares(
    domain_plan: DomainPlan | None, paths: Mapping[str, Sequence[str]]
) -> list[tuple[str, int]] | None:
    names = list(paths)
    return (
        None if domain_plan is None else [(names[row], count) for row, count in domain_plan.shares]
    )


def chosen(count: int, must: int = 0, **multiples: int) -> list[tuple[str, int]] | None:
    rules = GatherRules(must, {NODE: multiples["node"]} if multiples else {})
    offer = OfferSlots.of(numbers(PATHS, SLOTS))
    return shares(plan(tree_of(PATHS), rules, offer, count), PATHS)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (5, [("h3", 3), ("h4", 2)]),
        (6, [("h6", 4), ("h5", 2)]),
        (7, [("h6", 4), ("h5", 2), ("h8", 1)]),
        (4, [("h6", 4)]),
        (16, None),
    ],
)
def test_a_job_goes_to_the_deepest_domain_that_fits_it_best(
    count: int, expected: list[tuple[str, int]] | None
) -> None:
    """Slots of two halls of two racks: h1 2, h2 1 | h3 3, h4 2 and h5 2, h6 4 | h7 0, h8 1."""
    assert chosen(count) == expected


def test_must_gather_is_never_left() -> None:
    """Seven fit into a hall, but into no rack."""
    assert chosen(7, must=HALL) is not None
    assert chosen(7, must=RACK) is None


def test_multiple_of_a_layer_rounds_the_offers_of_its_domains() -> None:
    """Pairs per node: h6 has two pairs, h5 one, h1, h3 and h4 one each."""
    assert chosen(6, node=2) == [("h6", 4), ("h5", 2)]
    assert chosen(5, node=2) is None


def test_members_that_are_placed_keep_the_others_with_them() -> None:
    """With a member in rack r1 the next one has to go there, though others fit better."""
    placed = numbers(PATHS, {"h2": 1})
    offer = OfferSlots.of(numbers(PATHS, SLOTS), placed)
    tree = tree_of(PATHS)

    assert shares(plan(tree, GatherRules(RACK), offer, 3), PATHS) == [("h2", 1), ("h1", 2)]
    assert plan(tree, GatherRules(RACK), offer, 4) is None


def test_a_member_that_is_placed_again_completes_the_multiple() -> None:
    """Three of four are in r2 and four in r3: the missing one goes to r2."""
    placed = numbers(PATHS, {"h3": 3, "h6": 4})
    offer = OfferSlots.of(numbers(PATHS, SLOTS), placed)

    result = plan(tree_of(PATHS), GatherRules(0, {RACK: 4}), offer, 1)

    assert shares(result, PATHS) == [("h3", 1)]


def test_of_halls_the_one_where_fewer_racks_are_needed_is_taken() -> None:
    """The original takes hall a, whose room fits better, and five racks of it."""
    paths = {f"a{i}": ("a", f"ra{i}") for i in range(5)} | {f"b{i}": ("b", f"rb{i}") for i in "12"}
    slots = {node: 2 if node < "b" else 6 for node in paths}

    result = plan(tree_of(paths), GatherRules(), OfferSlots.of(numbers(paths, slots)), 8)

    assert shares(result, paths) == [("b1", 6), ("b2", 2)]
    assert len(place(cluster(paths), slots, 8) or ()) == 4


def test_the_rest_goes_to_the_rack_that_it_fits_best() -> None:
    """Racks of 6, 5 and 1: seven members leave the rack of 5 whole, where the original takes it."""
    paths = {name: ("hall", f"r{name}") for name in "abc"}
    slots = dict(zip("abc", (6, 5, 1), strict=True))

    result = plan(tree_of(paths), GatherRules(), OfferSlots.of(numbers(paths, slots)), 7)

    assert shares(result, paths) == [("a", 6), ("c", 1)]
    assert place(cluster(paths), slots, 7) == [("a", 6), ("b", 1)]


@st.composite
def networks(draw: st.DrawFn) -> dict[str, tuple[str, str]]:
    paths = {}
    for hall in range(draw(st.integers(1, 3))):
        for rack in range(draw(st.integers(1, 3))):
            for number in range(draw(st.integers(1, 3))):
                paths[f"n{hall}{rack}{number}"] = (f"p{hall}", f"r{hall}{rack}")
    return paths


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data(), paths=networks(), count=st.integers(1, 12), must=st.integers(0, 3))
def test_decisions_are_the_original_s_unless_fewer_domains_do(
    data: st.DataObject, paths: dict[str, tuple[str, str]], count: int, must: int
) -> None:
    """The original's racks: the same number or fewer; in a single rack the same nodes in order."""
    slots = {node: data.draw(st.integers(0, 4)) for node in paths}
    near = {node: data.draw(st.sampled_from([0, 0, 0, 1])) for node in paths}
    level = data.draw(st.sampled_from([0, 0, HALL, RACK, NODE]))
    multiples = {level: data.draw(st.integers(2, 3))} if level else {}
    nothing = np.zeros(len(paths), np.int64)
    offer = OfferSlots(numbers(paths, slots), nothing, nothing, numbers(paths, near), nothing)

    result = shares(plan(tree_of(paths), GatherRules(must, multiples), offer, count), paths)
    expected = place(cluster(paths), slots, count, must=must, multiples=multiples, near=near)

    if expected is None:
        assert result is None or multiples  # then a wider domain may do
        return
    assert result is not None
    assert spread(paths, result) <= spread(paths, expected)
    if spread(paths, result) == spread(paths, expected) == (1, 1) or multiples:
        assert result == expected or spread(paths, result) < spread(paths, expected)


def spread(paths: dict[str, tuple[str, str]], pairs: list[tuple[str, int]]) -> tuple[int, int]:
    return len({paths[n][0] for n, _ in pairs}), len({paths[n] for n, _ in pairs})


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data(), paths=networks(), count=st.integers(1, 12), must=st.integers(0, 3))
def test_a_plan_takes_no_more_than_there_is_and_keeps_every_rule(
    data: st.DataObject, paths: dict[str, tuple[str, str]], count: int, must: int
) -> None:
    """All members or none; one domain of the must-gather layer; multiples; no slot twice."""
    slots = {node: data.draw(st.integers(0, 4)) for node in paths}
    placed = {node: data.draw(st.sampled_from([0, 0, 0, 2])) for node in paths}
    multiples = {RACK: 2} if data.draw(st.booleans()) else {}
    offer = OfferSlots.of(numbers(paths, slots), numbers(paths, placed))

    result = shares(plan(tree_of(paths), GatherRules(must, multiples), offer, count), paths)

    if result is None:
        return
    assert sum(number for _, number in result) == count
    assert all(number <= slots[node] for node, number in result)
    assert len({node for node, _ in result}) == len(result)
    keys = {(*paths[node], node)[:must] for node, _ in result}
    there = {(*paths[node], node)[:must] for node, number in placed.items() if number}
    assert len(keys) == 1
    assert not there or keys <= there
    racks = {paths[node] for node, _ in result}
    for rack in racks if multiples and (len(racks) > 1 or count % 2 == 0) else ():
        inside = sum(n for node, n in (*result, *placed.items()) if paths[node] == rack)
        assert inside % 2 == 0


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data(), paths=networks(), count=st.integers(1, 12))
def test_no_choice_of_racks_in_one_hall_is_smaller(
    data: st.DataObject, paths: dict[str, tuple[str, str]], count: int
) -> None:
    """Brute force over all sets of racks of all halls finds none with fewer that has room."""
    slots = {node: data.draw(st.integers(0, 4)) for node in paths}
    result = shares(
        plan(tree_of(paths), GatherRules(HALL), OfferSlots.of(numbers(paths, slots)), count), paths
    )

    headrooms: dict[str, dict[str, int]] = {}
    for node, (hall, rack) in paths.items():
        racks = headrooms.setdefault(hall, {})
        racks[rack] = racks.get(rack, 0) + slots[node]
    sizes = [
        size
        for racks in headrooms.values()
        for size in range(1, len(racks) + 1)
        for chosen in combinations(racks.values(), size)
        if sum(chosen) >= count
    ]
    assert (None if result is None else spread(paths, result)[1]) == min(sizes, default=None)
