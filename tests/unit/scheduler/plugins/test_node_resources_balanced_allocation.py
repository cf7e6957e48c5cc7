"""Preference for nodes whose resources are used to the same degree."""

from tests.keywords import as_keywords
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, scored
from tests.worlds import node, pod

from koordinator.scheduler.plugins.node_resources_balanced_allocation import PLUGIN

FOO = "example.com/foo"


def test_of_two_resources_it_is_half_their_difference(world: World) -> None:
    """75 % of cpu and 25 % of memory: 100 - (75 - 25) / 2 = 75."""
    state = world(node("n", cpu=4, memory="8Gi"), pod("p", cpu=1, memory="1Gi", on="n"))

    assert scored(built(PLUGIN, state), state, pod("new", cpu=2, memory="1Gi")) == {"n": 75}


def test_of_three_resources_it_is_the_standard_deviation(world: World) -> None:
    """Fractions 0, 0.5 and 1 deviate by sqrt(1 / 6) = 0.408: 59."""
    resources = [{"name": name} for name in ("cpu", "memory", FOO)]
    state = world(node("n", cpu=4, memory="8Gi", **as_keywords({FOO: 2})))
    plugin = built(PLUGIN, state, resources=resources)

    assert scored(plugin, state, pod("new", cpu=4, requests={FOO: 1})) == {"n": 59}


def test_requests_over_capacity_count_as_full(world: World) -> None:
    """Cpu at 200 % counts as 100 %, memory is at 50 %: 75."""
    state = world(node("n", cpu=2, memory="8Gi"), pod("p", cpu=3, memory="3Gi", on="n"))

    assert scored(built(PLUGIN, state), state, pod("new", cpu=1, memory="1Gi")) == {"n": 75}


def test_a_resource_alone_is_balanced(world: World) -> None:
    """The node has no memory to compare with."""
    state = world(node("n", cpu=4, memory=0))

    assert scored(built(PLUGIN, state), state, pod("new", cpu=3)) == {"n": 100}


def test_real_requests_count_not_defaults(world: World) -> None:
    """Unlike NodeResourcesFit, missing requests count as 0: 50 % of cpu, 0 % of memory."""
    state = world(node("n", cpu=4, memory="200Mi"))

    assert scored(built(PLUGIN, state), state, pod("new", cpu=2)) == {"n": 75}


def test_pods_without_requests_are_not_scored(world: World) -> None:
    """A score of pods without requests would send all of them to the emptiest node."""
    state = world(node("n", **as_keywords({FOO: 1})))

    assert scored(built(PLUGIN, state), state, pod("new")) == {}
    assert scored(built(PLUGIN, state), state, pod("new", requests={FOO: 1})) == {}
