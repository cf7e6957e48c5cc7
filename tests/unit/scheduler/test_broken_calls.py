"""Decision 0007's table: whatever call raises that leaves loop or bindings, the loop goes on.

The calls are found by tracing a world, so a new one is in this test on the day when it is written.
"""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.scheduler.broken_calls import Calls, CallSite, play
from tests.unit.scheduler.broken_plugins import Boom


@functools.cache
def undisturbed() -> tuple[tuple[CallSite, ...], frozenset[str]]:
    """Return all calls, and who has a node if none of them raises."""
    calls = Calls()
    _, placed = play(calls)
    return tuple(calls.sites), frozenset(placed)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.data())
def test_a_call_that_raises_costs_nobody_its_node(data: st.DataObject) -> None:
    """No exception leaves a step, what broke is told, and books are in order afterwards."""
    sites, expected = undisturbed()
    site = data.draw(st.sampled_from(sites))

    world, placed = play(Calls([site]))

    assert placed == expected
    assert all(isinstance(fault.error, Boom) for fault in world.faults)


@pytest.mark.slow
def test_when_every_call_raises_once_all_pods_get_their_nodes_all_the_same() -> None:
    """One fault after the other, in one world."""
    sites, expected = undisturbed()
    assert len(sites) > 100

    world, placed = play(Calls(sites), rounds=40)

    assert placed == expected
    assert len(world.faults) > len(sites) / 2
