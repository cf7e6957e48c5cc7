"""Taints and tolerations."""

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused, scored
from tests.worlds import node, pod

from koordinator.scheduler.plugins.taint_toleration import PLUGIN

REASON = "node(s) had untolerated taint(s)"


@pytest.mark.parametrize(
    ("toleration", "accepted"),
    [
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "a"}, True),  # no operator is Equal, no effect is all effects
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "value": "b"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"value": "a"}, False),  # only Exists may go without a key
    ],
)
def test_toleration_matches_by_key_value_and_effect(
    world: World, toleration: dict[str, str], accepted: bool
) -> None:
    """The taint is ``team=a:NoSchedule``."""
    state = world(node("n", taints=["team=a:NoSchedule"]))

    assert bool(refused(built(PLUGIN, state), state, pod("p", tolerations=[toleration]))) is not (
        accepted
    )


def test_hard_taints_are_unresolvable(world: World) -> None:
    """Hard taints are NoSchedule and NoExecute, not PreferNoSchedule."""
    state = world(
        node("schedule", taints=["a=1:NoSchedule"]),
        node("execute", taints=["a=1:NoExecute"]),
        node("prefer", taints=["a=1:PreferNoSchedule"]),
        node("clean"),
    )
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, pod("p")) == {"schedule": REASON, "execute": REASON}
    assert hopeless(plugin, state, pod("p")) == {"schedule", "execute"}


def test_all_taints_must_be_tolerated(world: World) -> None:
    """Tolerating one of two taints is not enough."""
    state = world(node("n", taints=["a=1:NoSchedule", "b=1:NoSchedule"]))
    one = [{"key": "a", "operator": "Exists"}]

    assert refused(built(PLUGIN, state), state, pod("p", tolerations=one)) == {"n": REASON}


def test_the_node_with_the_most_soft_taints_scores_nothing(world: World) -> None:
    """With 3, 1 and 0 of them: 100 - 100, 100 - 33, 100."""
    soft = ["a=1:PreferNoSchedule", "b=1:PreferNoSchedule", "c=1:PreferNoSchedule"]
    state = world(node("three", taints=soft), node("one", taints=soft[:1]), node("none"))

    assert scored(built(PLUGIN, state), state, pod("p")) == {"three": 0, "one": 67, "none": 100}


def test_tolerated_soft_taints_do_not_count(world: World) -> None:
    """Without any left all nodes score 100."""
    state = world(node("soft", taints=["a=1:PreferNoSchedule"]), node("clean"))
    tolerant = pod("p", tolerations=[{"key": "a", "operator": "Exists"}])

    assert scored(built(PLUGIN, state), state, tolerant) == {"soft": 100, "clean": 100}


def test_a_toleration_of_hard_taints_does_not_cover_soft_ones(world: World) -> None:
    """A toleration applies to its effect only."""
    state = world(node("soft", taints=["a=1:PreferNoSchedule"]), node("clean"))
    hard = pod("p", tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule"}])

    assert scored(built(PLUGIN, state), state, hard) == {"soft": 0, "clean": 100}
