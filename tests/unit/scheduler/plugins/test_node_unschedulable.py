"""Cordoned nodes."""

from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused
from tests.worlds import node, pod

from koordinator.scheduler.plugins.node_unschedulable import PLUGIN

KEY = "node.kubernetes.io/unschedulable"


def test_cordoned_node_is_unresolvable(world: World) -> None:
    """Evictions do not uncordon it."""
    state = world(node("open"), node("cordoned", unschedulable=True))
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, pod("p")) == {"cordoned": "node(s) were unschedulable"}
    assert hopeless(plugin, state, pod("p")) == {"cordoned"}


def test_toleration_of_the_unschedulable_taint_passes(world: World) -> None:
    """DaemonSet pods tolerate it by key, or tolerate all taints; another effect does not match."""
    state = world(node("cordoned", unschedulable=True))
    plugin = built(PLUGIN, state)

    for toleration in ({"key": KEY, "operator": "Exists"}, {"operator": "Exists"}):
        assert refused(plugin, state, pod("p", tolerations=[toleration])) == {}
    other = {"key": KEY, "operator": "Exists", "effect": "NoExecute"}
    assert list(refused(plugin, state, pod("p", tolerations=[other]))) == ["cordoned"]
