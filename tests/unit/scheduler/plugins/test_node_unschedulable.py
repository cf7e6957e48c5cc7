"""Cordoned nodes."""

from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused
from tests.worlds import node, pod

from koordinator.scheduler.plugins.node_unschedulable import PLUGIN

KEY = "node.kubernetes.io/unschedulable"


def test_a_cordoned_node_is_refused_for_good(world: World) -> None:
    """Evicting pods does not uncordon it."""
    state = world(node("open"), node("cordoned", unschedulable=True))
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, pod("p")) == {"cordoned": "node(s) were unschedulable"}
    assert hopeless(plugin, state, pod("p")) == {"cordoned"}


def test_who_tolerates_the_taint_of_cordoned_nodes_may_go_there(world: World) -> None:
    """Daemons do, by key or by tolerating everything; another effect does not help."""
    state = world(node("cordoned", unschedulable=True))
    plugin = built(PLUGIN, state)

    for toleration in ({"key": KEY, "operator": "Exists"}, {"operator": "Exists"}):
        assert refused(plugin, state, pod("p", tolerations=[toleration])) == {}
    other = {"key": KEY, "operator": "Exists", "effect": "NoExecute"}
    assert list(refused(plugin, state, pod("p", tolerations=[other]))) == ["cordoned"]
