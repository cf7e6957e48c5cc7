"""Table of decision 0007: the loop continues whatever call out of loop or bindings raises.

The calls are found by tracing a world, so new ones are covered automatically.
"""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.broken_calls import Calls, CallSite, play
from tests.unit.scheduler.broken_plugins import Boom


@functools.cache
def without_nominated_pods() -> tuple[tuple[CallSite, ...], frozenset[str]]:
    """Return all calls, and the nodes of pods if none of them raises."""
    calls = Calls()
    _, placed = play(calls)
    return tuple(calls.sites), frozenset(placed)


@pytest.mark.slow
@settings(max_examples=examples(10))
@given(st.data())
@pytest.mark.integration
def test_raising_call_costs_no_pod_its_node(data: st.DataObject) -> None:
    """No exception leaves a step, the fault is reported, and invariants hold afterwards."""
    sites, expected = without_nominated_pods()
    site = data.draw(st.sampled_from(sites))

    world, placed = play(Calls([site]))

    assert placed == expected
    assert all(isinstance(fault.error, Boom) for fault in world.faults)


@pytest.mark.slow
def test_all_pods_get_nodes_if_every_call_raises_once() -> None:
    """The faults occur one after the other in one world."""
    sites, expected = without_nominated_pods()
    assert len(sites) > 100

    world, placed = play(Calls(sites), rounds=40)

    assert placed == expected
    assert len(world.faults) > len(sites) / 2
