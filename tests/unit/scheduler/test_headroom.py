"""Headroom: an upper bound of pods of a kind that fit, cached while the cluster changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.worlds import add, configuration, node, placed_on, pod, world

from koordinator.scheduler.cycle import SchedulingCycle, headroom
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.snapshot import ClusterState, PodClass

RACKS = 3
changes = st.lists(
    st.tuples(st.sampled_from(["place", "displace", "node", "drop"]), st.integers(0, 20)),
    max_size=12,
)


def cycle_of(state: ClusterState) -> SchedulingCycle:
    (profile,) = build_profiles(configuration(), state.axis).profiles
    return SchedulingCycle(profile, state)


def change(state: ClusterState, number: int, what: str, size: int) -> None:
    """Apply a change to the cluster if it is possible."""
    names, pods = list(state.nodes.rows), list(state.pods.by_key)
    if what == "place" and names:
        small = pod(f"p{number}", cpu=1 + size % 3, priority=size % 2 * 10)
        add(state, placed_on(small, names[size % len(names)]))
    elif what == "displace" and pods:
        state.displace(pods[size % len(pods)])
    elif what == "node":
        add(state, node(f"n{size % 8}", cpu=1 + size % 7, memory=f"{1 + size % 5}Gi"))
    elif what == "drop" and names:
        state.drop_node(names[size % len(names)])


def fitting(cycle: SchedulingCycle, kind: PodClass) -> np.ndarray:
    """Return how many pods fit on each row by actual decisions."""
    rows = cycle.choose_run([kind] * 100)
    assert rows is not None
    return np.bincount(rows, minlength=len(cycle.state.nodes))


@pytest.mark.parametrize("is_noted", [False, True])
@settings(max_examples=examples(20), deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), events=changes)
def test_the_bound_is_never_below_what_fits(
    is_noted: bool, sizes: list[int], events: list[tuple[str, int]]
) -> None:
    """A gang that exceeds the bound cannot fit, anywhere and in each domain."""
    state = world(*(node(f"n{i}", cpu=size) for i, size in enumerate(sizes)))
    cycle = cycle_of(state)
    wanted = state.classes.of(pod("wanted", cpu=2))
    if is_noted:
        cycle.note_headroom(wanted, fitting(cycle, wanted))
    for number, event in enumerate(events):
        change(state, number, *event)
        there = fitting(cycle, wanted)
        racks = np.arange(len(there)) % RACKS
        bound = cycle.bound(wanted)
        assert bound is not None
        assert there.sum() <= bound.most()
        assert np.bincount(racks, there).max(initial=0) <= bound.most(of_row=racks)


@settings(max_examples=examples(20), deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), events=changes)
def test_the_bound_without_less_important_pods(
    sizes: list[int], events: list[tuple[str, int]]
) -> None:
    """The bound counts pods that fit without these pods, and at most those that requests allow."""
    state = world(*(node(f"n{i}", cpu=size) for i, size in enumerate(sizes)))
    cycle = cycle_of(state)
    wanted = state.classes.of(pod("wanted", cpu=2))
    for number, event in enumerate(events):
        change(state, number, *event)
        bound = cycle.bound(wanted)
        assert bound is not None
        most = bound.most(10)

        kept = [placed for placed in state.pods.by_key.values() if placed.priority >= 10]
        emptied = world(*(one for one in state.nodes.objects if one is not None))
        for placed in kept:
            add(emptied, placed_on(placed.pod, state.nodes.names[placed.row]))
        other = cycle_of(emptied)
        assert most == fitting(other, emptied.classes.of(pod("wanted", cpu=2))).sum()


def test_the_bound_of_several_kinds() -> None:
    """Two kinds together need at least the smaller amount of each resource."""
    state = world(node("a", 4, memory="8Gi"), node("b", 3, memory="2Gi"))
    cycle = cycle_of(state)
    kinds = [
        state.classes.of(pod("cpus", cpu=2, memory="1Gi")),
        state.classes.of(pod("bytes", cpu=1, memory="4Gi")),
    ]
    bound = cycle.bound(*kinds)
    assert bound is not None
    assert bound.most() == 4 + 2


def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full table is cleared; results do not change."""
    monkeypatch.setattr(headroom, "KEEP_BYTES", 100)
    state = world(*(node(f"n{i}", cpu=8) for i in range(4)))
    cycle = cycle_of(state)
    for size in (*range(1, 9), *range(1, 9)):
        bound = cycle.bound(state.classes.of(pod(f"p{size}", cpu=size)))
        assert bound is not None
        assert bound.most() == 4 * (8 // size)


def test_a_change_of_very_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests of less important pods are computed again."""
    monkeypatch.setattr(headroom, "MOST_ROWS", 1)
    state = world(*(node(f"n{i}", cpu=2) for i in range(4)))
    cycle = cycle_of(state)
    wanted = state.classes.of(pod("wanted", cpu=2))
    for i in range(4):
        add(state, placed_on(pod(f"low{i}", cpu=1), f"n{i}"))
        bound = cycle.bound(wanted)
        assert bound is not None
        assert (bound.most(), bound.most(10)) == (3 - i, 4)
    for i in range(4):
        add(state, placed_on(pod(f"high{i}", cpu=1, priority=20), f"n{i}"))
    assert bound is not None
    assert bound.most(10) == 0
