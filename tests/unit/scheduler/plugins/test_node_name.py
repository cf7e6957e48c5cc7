"""Pods with ``spec.nodeName``."""

import msgspec
import numpy as np
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, refused
from tests.worlds import node, pod

from koordinator.scheduler.plugins.node_name import PLUGIN
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot


def test_a_pod_without_node_name_passes(world: World) -> None:
    """Pending pods have no node name."""
    state = world(node("a"))

    assert refused(built(PLUGIN, state), state, pod("p")) == {}


def test_only_the_named_node_is_accepted(world: World) -> None:
    """Views of some rows, in any order, give the same result."""
    state = world(node("a"), node("b"), node("c"))
    plugin, named = built(PLUGIN, state), _naming(state, "b")

    assert plugin.hints.filters(Snapshot(state), named)
    assert plugin.filter(Snapshot(state), named).codes.tolist() == [1, 0, 1]
    rows = np.array([1, 0])
    assert plugin.filter(Snapshot(state)[rows], named).codes.tolist() == [0, 1]


def test_name_of_no_node_is_rejected_everywhere(world: World) -> None:
    """Evictions cannot help."""
    state = world(node("a"))
    rejections = built(PLUGIN, state).filter(Snapshot(state), _naming(state, "elsewhere"))

    assert (rejections.codes.tolist(), rejections.unresolvable) == ([1], True)


def _naming(state: ClusterState, name: str) -> PodClass:
    """Return a class with a node name; interning a pod drops it."""
    pod_class = state.classes.of(pod("p"))
    pod_class.spec = msgspec.structs.replace(pod_class.spec, node_name=name)
    return pod_class
